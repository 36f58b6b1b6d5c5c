"""Variants that stop early by a judged metric: verdicts come later than answers, and the decision with them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from assay.agent_host.caller import AgentCaller
from assay.agent_host.user_code import UserCode
from assay.client.encoded_cases import EncodedCases
from assay.client.variants import check_variants, drive_variants, plan_stopping, start_variants
from assay.comparison.model import ComparisonSettings
from assay.datasets import records_dataset
from assay.model.run import RunState
from assay.specs.model import Spec
from assay.testing.judges import says

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.judged.conftest import Stage

    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import RowResult, Run
    from assay.testing.providers import ProviderRequest, Reply

    SetUp = Callable[..., Stage]

CASES = [{"input": f"q{number}", "expected_output": f"a{number}"} for number in range(200)]
NAMES = ("plain", "polite")


def verdict(request: ProviderRequest) -> Reply:
    """Find polite answers better."""
    return says({"reasoning": "So it is.", "score": 5 if "Dear" in request.question else 2})(request)


def polite(request: AgentRequest) -> str:
    """Answer politely."""
    return f"Dear reader, a{request.input[1:]}"


async def decided(stage: Stage, *, count: int, batch: bool = False) -> tuple[list[Run], list[list[RowResult]]]:
    """Return both runs and their rows, after the quality of ten cases has decided."""
    settings = stage.settings("quality", judge=stage.who(canary_rate=0.0, batch=batch))
    specs = [Spec(replace(settings, labels={"variant": name})) for name in NAMES]
    dataset = records_dataset(CASES[:count])
    info = check_variants(specs, dataset)
    stopping = plan_stopping("always-valid", specs, info, ComparisonSettings())
    assert (stopping.metric, stopping.scale) == ("quality", (1.0, 5.0))
    quick = {"batch_base_urls": ("*",), "batch_wait_s": 0.3, "batch_poll_s": 0.05} if batch else {}
    async with stage.judge(**quick), stage.orchestrator() as client:
        with EncodedCases() as cases:
            dataset.check(cases.add)
            runs = await start_variants(client, specs, cases, info, "group-1", stopping)
        ended = await drive_variants(
            client, runs, [UserCode(AgentCaller(stage.agent)), UserCode(AgentCaller(polite))], hidden=True
        )
        rows = [await stage.rows(client, run) for run in ended]
    for run, own in zip(ended, rows, strict=True):
        assert run.state is RunState.COMPLETED
        assert run.summary is not None
        assert run.summary.judging is not None
        found = run.summary.stopped_early
        if batch and found is None:
            continue  # all of its verdicts came before the last that the decision needed: it had ended by then
        assert found is not None
        # All differences are 3 of 4: ½ ∫ (1 + ¾λ)^n dλ reaches 20 at n = 10.
        assert (found.winner, found.case_count, found.pair_count) == ("polite", 10, 10)
        assert found.asked_count == len(own) == run.counts.total_count == run.counts.finished_count
        assert all(row.scores[0].value is not None for row in own)
        assert found.saved_tokens is not None
        assert found.saved_usd is not None
    assert len(stage.agent.asked) == ended[0].counts.finished_count
    return ended, rows


async def test_a_judged_metric_decides(set_up: SetUp) -> None:
    """The quality of few cases decides: most are neither asked nor judged, and what was asked is judged and stored."""
    stage = set_up(verdict)
    _, rows = await decided(stage, count=len(CASES))
    assert max(map(len, rows)) < len(CASES)
    assert len(stage.provider.requests) == sum(map(len, rows))


async def test_verdicts_of_a_batch_decide_after_all_answers(set_up: SetUp) -> None:
    """Every answer is there before the first verdict: nothing is left to be saved, and the decision is the same."""
    stage = set_up(verdict)
    ended, _ = await decided(stage, count=60, batch=True)
    assert any(run.summary and run.summary.stopped_early for run in ended)
    assert [run.counts.finished_count for run in ended] == [60, 60]
