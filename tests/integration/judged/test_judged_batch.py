"""Runs whose verdicts come in batches: everything is ordered at once, nobody waits, and nothing is paid twice."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from assay.results import RunState, StateChange

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.judged.conftest import Stage

    from assay.cases import Case
    from assay.client import Client
    from assay.results import Run

    SetUp = Callable[..., Stage]
    CaseOf = Callable[..., Case]

GOOD = {"reasoning": "It is right.", "score": 4}
HALF_PRICE = 0.000975
QUICK: dict[str, Any] = {"batch_base_urls": ("*",), "batch_wait_s": 0.3, "batch_poll_s": 0.05}


def batched(stage: Stage, *metrics: str, **judge: Any) -> Any:
    """Return the settings of a run whose verdicts come in batches."""
    return stage.settings(*metrics, judge=stage.who(**{"batch": True, "canary_rate": 0.0, **judge}))


async def awaiting(client: Client, run: Run) -> str:
    """Wait until a run says that it awaits a batch; return the sentence."""
    async for event in client.watch_run(run.run_id):
        if isinstance(event, StateChange) and "verdicts of a batch" in event.reason:
            assert event.state is RunState.RUNNING
            return event.reason
    raise AssertionError("the run ended without awaiting a batch")


async def test_all_verdicts_are_one_batch_at_half_the_price(set_up: SetUp, case_of: CaseOf) -> None:
    """A run of several shards is ordered whole before any verdict is fetched, says that it waits, and costs half."""
    stage = set_up()
    stage.provider.batches.is_held = True
    cases = [case_of(n, f"a{n}") for n in range(1_030)]
    settings = dataclasses.replace(batched(stage), agent=dataclasses.replace(stage.settings().agent, adapter="replay",
                                                                             target="", concurrency=32))  # fmt: skip
    async with stage.judge(**{**QUICK, "batch_wait_s": 60.0, "batch_requests": 1_030}), stage.orchestrator() as client:
        run = await stage.create(client, settings, cases)
        said = await awaiting(client, run)
        assert said == "every answer is stored, 1030 rows await verdicts of a batch"
        stage.provider.batches.is_held = False
        done = await stage.until(client, run, RunState.SUCCEEDED, RunState.FAILED, RunState.PAUSED)
        rows = await stage.rows(client, run)
    assert (done.state, done.state_reason, done.counts.passed) == (RunState.SUCCEEDED, "", 1_030)
    assert [len(batch) for batch in stage.provider.batches.submitted] == [1_030]
    assert stage.provider.requests == []
    assert done.summary is not None
    judging = done.summary.judging
    assert judging is not None
    assert (judging.asked, judging.batched, judging.cached) == (1_030, 1_030, 0)
    assert judging.cost_usd == pytest.approx(1_030 * HALF_PRICE)
    verdict = rows[0].scores[0].detail["verdict"]
    assert verdict["batched"] is True
    assert verdict["tries"] == [
        {"outcome": "replied", "input_tokens": 1_200, "output_tokens": 150, "cost_usd": pytest.approx(HALF_PRICE)}
    ]
