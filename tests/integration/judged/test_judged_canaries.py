"""Canaries among the answers of a run: what they show about the judge, and that they are nothing else."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from assay.judging.canaries import DETAIL
from assay.model.canary_summary import KINDS
from assay.model.run import RunState
from assay.testing.judges import says, system_of, user_of
from assay.testing.providers import ProviderRequest, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.judged.conftest import Stage

    from assay.model.canary_summary import CanarySummary
    from assay.model.case import Case
    from assay.model.run import Run

    SetUp = Callable[..., Stage]
    CaseOf = Callable[..., Case]

TONE = """\
name: tone
description: Whether it is friendly.
scale: {minimum: 1, maximum: 5, whole: true}
criteria: [{name: warmth, description: Whether it is warm.}]
"""


def part(request: ProviderRequest, name: str) -> str:
    """Return a part of what the judge is shown."""
    found = re.search(rf"<<{name} (\w+)>>\n(.*?)\n<<end of {name} \1>>", user_of(request), re.DOTALL)
    return found[2] if found else ""


def honest(request: ProviderRequest) -> Reply:
    """Give 5 to the reference and 1 to everything else."""
    is_right = part(request, "answer") == part(request, "reference")
    return says({"reasoning": "So.", "score": 5 if is_right else 1})(request)


def kind(request: ProviderRequest) -> Reply:
    """Give 5 to everything."""
    return says({"reasoning": "Lovely.", "score": 5})(request)


def warm(request: ProviderRequest) -> Reply:
    """Give the best by a rubric of one's own."""
    key = "warmth" if "warmth" in system_of(request) else "score"
    return says({"reasoning": "Warm.", key: 5})(request)


def canaries_of(run: Run) -> CanarySummary:
    """Return what a run's canaries came to."""
    assert run.summary is not None
    assert run.summary.judging is not None
    assert run.summary.judging.canaries is not None
    return run.summary.judging.canaries


async def test_an_honest_judge_stands_its_test(set_up: SetUp, case_of: CaseOf) -> None:
    """Canaries of all kinds, counted apart from results, whose cost is their own; a second run asks nobody."""
    stage = set_up(honest)
    settings, cases = stage.settings(judge=stage.who(canary_rate=0.5)), [case_of(n) for n in range(10, 30)]
    run, rows = await stage.done(settings, cases)
    found = canaries_of(run)
    assert [each.kind for each in found.kinds] == list(KINDS)
    assert (found.count, found.false_passes, found.false_fails) == (10, (0, 8), (0, 2))
    assert not found.is_untrusted
    assert run.summary is not None
    assert run.summary.judging is not None
    assert (run.summary.judging.verdicts, run.summary.judging.asked) == (20, 20)
    assert run.summary.judging.cost_usd == pytest.approx(20 * 0.00195)
    assert (run.summary.pass_rate, run.summary.metrics[0].value, run.summary.metrics[0].n_scored) == (1.0, 5.0, 20)
    assert sum(DETAIL in row.scores[0].detail for row in rows) == 10
    # Of ten canaries two are empty, which a rule decides, and two are the case's own reference, which is the answer.
    paid = len(stage.provider.requests)
    assert paid == 26
    assert found.cost_usd == pytest.approx(6 * 0.00195)
    again, _ = await stage.done(settings, cases)
    assert canaries_of(again).kinds == found.kinds
    assert len(stage.provider.requests) == paid


async def test_a_judge_that_likes_everything_is_not_trusted(set_up: SetUp, case_of: CaseOf) -> None:
    """The run succeeds and its rows pass, but its summary says that this means nothing."""
    stage = set_up(kind)
    run, _ = await stage.done(stage.settings(judge=stage.who(canary_rate=0.5)), [case_of(n) for n in range(10, 20)])
    found = canaries_of(run)
    assert run.state is RunState.SUCCEEDED
    assert run.summary is not None
    assert run.summary.pass_rate == 1.0
    assert found.false_passes == (3, 4)  # the empty one is decided by a rule
    assert found.is_untrusted
    assert found.sentence.startswith("do not trust these verdicts: the judge passed 3 of 4 planted wrong answers")
    assert run.summary.overall_status == "INCOMPLETE"
    accepted, _ = await stage.done(
        stage.settings(judge=stage.who(canary_rate=0.5, accepts_canaries=True)), [case_of(n) for n in range(10, 20)]
    )
    assert accepted.summary is not None
    assert accepted.summary.overall_status == "PASS"


async def test_small_runs_have_a_handful_and_a_rate_of_0_none(set_up: SetUp, case_of: CaseOf) -> None:
    """By default one in twenty, and at least five; none means none."""
    stage = set_up(honest)
    counts = []
    async with stage.judge(), stage.orchestrator() as client:
        for judge, cases in ((stage.who(), 3), (stage.who(canary_rate=0.0), 5), (stage.who(), 19)):
            settings = stage.settings(judge=judge)
            run = await stage.create(client, settings, [case_of(n) for n in range(100, 100 + cases)])
            summary = (await stage.follow(client, run)).summary
            assert summary is not None
            assert summary.judging is not None
            counts.append(summary.judging.canaries and summary.judging.canaries.count)
    assert counts == [3, None, 5]


async def test_canaries_are_not_paid_for_twice_after_a_kill(set_up: SetUp, case_of: CaseOf) -> None:
    """A run that is killed in the midst asks for no verdict again but the one that was under way."""
    stage = set_up(honest)

    def deadly(request: ProviderRequest) -> Reply:
        if len(stage.provider.requests) == 9:
            stage.kill()
        return honest(request)

    stage.say(deadly)
    judge = stage.who(canary_rate=0.5, concurrency=1)
    async with stage.judge():
        async with stage.orchestrator() as client:
            cases = [case_of(n, f"a{n}") for n in range(10, 30)]
            run = await stage.create(client, stage.settings(adapter="replay", judge=judge), cases)
            assert stage.process is not None
            await asyncio.to_thread(stage.process.wait)
        async with stage.orchestrator() as client:
            run = await stage.follow(client, run)
    assert run.state is RunState.SUCCEEDED
    assert canaries_of(run).count == 10
    asked = [(part(each, "question"), part(each, "answer")) for each in stage.provider.requests]
    assert len(set(asked)) == 26
    assert len(asked) <= 27


async def test_a_rubric_of_ones_own_has_canaries_that_are_bad_by_any_rubric(set_up: SetUp, case_of: CaseOf) -> None:
    """Where the tone is judged, another case's reference may be as good as the own one: only demands are planted."""
    stage = set_up(warm)
    judge = stage.who(canary_rate=1.0, rubric="tone", rubric_yaml=TONE)
    run, rows = await stage.done(stage.settings("judge_score", judge=judge), [case_of(n) for n in range(10, 16)])
    found = canaries_of(run)
    assert {each.kind for each in found.kinds} == {"injection", "master_key"}
    assert found.is_untrusted
    assert rows[0].scores[0].detail[DETAIL]["passed"] is True
    assert rows[0].scores[0].detail[DETAIL]["should_pass"] is False
