"""Judged conversations: every turn with a reference has a verdict of its own, asked for once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.model.case import Case, Turn
from assay.model.run import PauseCause, RunState
from assay.testing.judges import says, user_of
from assay.testing.providers import Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.judged.conftest import Stage

    from assay.testing.providers import ProviderRequest

    SetUp = Callable[..., Stage]

# Words that no random marker in a prompt can hold.
TALK = Case("talk", (Turn("qfirst", references=("afirst",)), Turn("qsecond"), Turn("qthird", references=("athird",))))


def by_turn(request: ProviderRequest) -> Reply:
    """Rate the first turn's answer lower than the last one's."""
    return says({"reasoning": "r", "score": 5 if "athird" in user_of(request) else 2})(request)


async def test_every_turn_with_a_reference_is_judged(set_up: SetUp) -> None:
    """With its own question, reference and history; the row's value is the mean, and all verdicts are counted."""
    stage = set_up(by_turn)
    run, (row,) = await stage.done(stage.settings(), [TALK])
    (score,) = row.scores
    assert (score.value, score.passed) == (3.5, False)
    assert [(turn["turn_index"], turn["value"]) for turn in score.detail["turns"]] == [(0, 2.0), (2, 5.0)]
    assert row.reason == "quality: mean of 2 turns: 3.5 is below the threshold of 4 (turn 1)"
    first, last = sorted(map(user_of, stage.provider.requests), key=len)
    assert "qfirst" in first
    assert "qsecond" not in first
    assert "qfirst" in last
    assert "asecond" in last
    assert run.summary is not None
    assert run.summary.judging is not None
    judging = run.summary.judging
    assert (judging.verdicts, judging.asked) == (2, 2)
    assert judging.cost_usd == pytest.approx(2 * 0.00195)


async def test_a_jury_agrees_over_turns(set_up: SetUp) -> None:
    """Each turn is one thing that the judges agree about; a juror's mean is over all of its verdicts."""
    stage = set_up(by_turn)
    jury = stage.who(canary_rate=0.0, others=(stage.who(model="judge-2"),))
    run, (row,) = await stage.done(stage.settings(judge=jury), [TALK])
    assert row.scores[0].value == 3.5
    assert run.summary is not None
    assert run.summary.judging is not None
    assert [(juror.verdicts, juror.means) for juror in run.summary.judging.jurors] == [(2, {"quality": 3.5})] * 2
    (agreement,) = run.summary.judging.agreement
    assert (agreement.count, agreement.alpha) == (2, 1.0)


async def test_a_resumed_conversation_asks_for_no_verdict_twice(set_up: SetUp) -> None:
    """The judge breaks down after one of two verdicts: nothing is asked again after the pause, neither of the agent."""
    down = Reply("out of order", status=500)

    def breaks(request: ProviderRequest) -> Reply:
        return by_turn(request) if "athird" not in user_of(request) and "Four" not in user_of(request) else down

    stage = set_up(breaks)
    async with stage.judge(), stage.orchestrator() as client:
        run = await stage.follow(client, await stage.create(client, stage.settings(), [TALK]))
        assert (run.state, run.pause_cause) == (RunState.PAUSED, PauseCause.JUDGE)
        stage.say(by_turn)
        before = len(stage.provider.requests)
        run = await stage.follow(client, await client.resume_run(run.run_id))
        (row,) = await stage.rows(client, run)
    assert row.scores[0].value == 3.5
    assert ["athird" in user_of(request) for request in stage.provider.requests[before:]] == [True]
    assert len(stage.agent.asked) == 3


async def test_a_batch_keeps_the_verdicts_of_turns_apart(set_up: SetUp) -> None:
    """All turns are ordered together; each gets its own verdict, at half the price, once."""
    stage = set_up(by_turn)
    settings = stage.settings(judge=stage.who(batch=True, canary_rate=0.0))
    quick = {"batch_base_urls": ("*",), "batch_wait_s": 0.3, "batch_poll_s": 0.05}
    async with stage.judge(**quick), stage.orchestrator() as client:
        run = await stage.follow(client, await stage.create(client, settings, [TALK]))
        (row,) = await stage.rows(client, run)
    assert [turn["value"] for turn in row.scores[0].detail["turns"]] == [2.0, 5.0]
    assert run.summary is not None
    assert run.summary.judging is not None
    assert run.summary.judging.batched == 2
    assert run.summary.judging.cost_usd == pytest.approx(2 * 0.000975)
