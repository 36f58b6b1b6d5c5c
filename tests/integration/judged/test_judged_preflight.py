"""Before the first question: the preflight check of a judge, and the calibration that the run names."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from assay.client.calibrations import set_calibration
from assay.model.interval import Interval
from assay.model.judge_calibration import JudgeCalibration
from assay.model.run import PauseCause, RunState
from assay.reports.document.document import judging_document
from assay.reports.words.calibration_text import NO_CALIBRATION, calibration_sentences
from assay.reports.words.judging_text import judging_line
from assay.testing.judges import says
from assay.testing.providers import Reply, Tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.judged.conftest import Stage

    from assay.model.case import Case

    SetUp = Callable[..., Stage]
    CaseOf = Callable[..., Case]
    from collections.abc import Callable

    from tests.integration.judged.conftest import Stage

    from assay.model.case import Case


GOOD = {"reasoning": "It is right.", "score": 4}


@pytest.mark.parametrize(
    ("refusal", "changes", "words"),
    [
        (Reply("no such key", status=401), {"key_variable": "PATH"}, "key was refused (401 from 127.0.0.1:"),
        (Reply("no such model", status=404), {}, "was not found (404 from 127.0.0.1:"),
        (Reply("no more", status=429, error={"code": "insufficient_quota"}), {}, "may spend no more (429 from"),
        (Reply("OK"), {"spend_cap_usd": 1e-9}, "the spend cap of 1e-09 dollars is reached"),
    ],
    ids=["key", "model", "quota", "cap"],
)
@pytest.mark.parametrize("jurors", [0, 1])
async def test_a_judge_that_refuses_every_call_is_found_before_the_agent_is_asked(
    set_up: SetUp, case_of: CaseOf, refusal: Reply, changes: dict[str, Any], words: str, jurors: int
) -> None:
    """No question is paid whose answer cannot be judged; each judge of a jury is checked."""
    stage = set_up(says(GOOD))
    stage.provider.preflight = refusal
    key = str(changes.get("key_variable", ""))
    others = tuple(stage.who(model=f"judge-{number + 2}", key_variable=key) for number in range(jurors))
    changes = dict(changes)
    cap = changes.pop("spend_cap_usd", None)
    settings = stage.settings(judge=stage.who(canary_rate=0.0, others=others, **changes), spend_cap_usd=cap)
    environment = {"PATH": "sk-0123456789-abcdefghij"}
    async with stage.judge(environment), stage.orchestrator() as client:
        run = await stage.follow(client, await stage.create(client, settings, [case_of(n) for n in range(9)]))
        assert (run.state, run.pause_cause) == (RunState.PAUSED, PauseCause.JUDGE)
        assert run.state_message.startswith("no case was asked, 9 rows await a verdict: ")
        assert words in run.state_message
        assert (stage.agent.asked, stage.provider.requests) == ([], [])
        # The first refusal is enough: another juror may not be asked any more.
        assert len(stage.provider.preflights) in ((0,) if cap is not None else (1, 1 + jurors))
        if cap is None:
            stage.provider.preflight = Reply("OK", usage=Tokens(8, 1))
            await client.resume_run(run.run_id)
            done = await stage.follow(client, run)
            assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 9)
    if jurors == 0 and cap is None:
        assert len(stage.provider.preflights) == 2  # one for each time that the run began


@pytest.mark.parametrize("passing", [Reply("busy", status=503), Reply("wait", status=429), Reply("", cut=True)])
async def test_a_failure_that_may_pass_is_left_to_the_run(set_up: SetUp, case_of: CaseOf, passing: Reply) -> None:
    """The preflight check refuses nothing that a later call may get."""
    stage = set_up(says(GOOD))
    stage.provider.preflight = passing
    run, _ = await stage.done(stage.settings(), [case_of(n) for n in range(3)])
    assert (run.state, run.counts.passed_count) == (RunState.COMPLETED, 3)


@pytest.mark.parametrize("team", ["", "search"])
async def test_report_and_account_agree_or_say_why(set_up: SetUp, case_of: CaseOf, team: str) -> None:
    """The account has the preflight call too, and what is set aside for a call whose outcome is unknown.

    Without identities, a team that a spec names shares the workers under that name and has no account of its own.
    """
    stage = set_up(Reply("{}", cut=True), says(GOOD))
    run, _ = await stage.done(dataclasses.replace(stage.settings(), team=team), [case_of(1)])
    assert run.summary is not None
    judging = run.summary.judging
    assert judging is not None
    assert judging.cost_usd is not None
    assert judging.account_usd is not None
    preflight_usd = 13e-6
    assert judging.account_usd == pytest.approx(judging.cost_usd + preflight_usd)
    assert judging.unknown_usd == pytest.approx(judging.cost_usd - 0.00195)
    assert "are set aside for calls whose outcome is unknown" in judging_line(judging)


async def test_a_judge_that_has_answered_is_not_checked_again(set_up: SetUp, case_of: CaseOf) -> None:
    """Neither is one that is not asked: whose verdicts are recorded, or that no metric needs."""
    stage = set_up(says(GOOD))
    async with stage.judge(), stage.orchestrator() as client:
        for number in range(3):
            run = await stage.follow(client, await stage.create(client, stage.settings(), [case_of(number)]))
            assert run.state is RunState.COMPLETED
        await stage.follow(client, await stage.create(client, stage.settings("exact_match"), [case_of(1)]))
    assert len(stage.provider.preflights) == 1


async def test_a_run_names_the_calibration_of_its_judge(set_up: SetUp, case_of: CaseOf) -> None:
    """By fingerprint, with n, alpha and interval, and with the pass rate that people would have given."""
    stage = set_up(says({"reasoning": "Good.", "score": 5}))
    async with stage.judge(), stage.orchestrator() as client:
        made = await stage.create(
            client, stage.settings(judge=stage.who(canary_rate=0.0)), [case_of(n) for n in range(4)]
        )
        run = await stage.follow(client, made)
        assert calibration_sentences(run) == [NO_CALIBRATION]
        assert run.summary is not None
        assert run.summary.judging is not None
        (metric,) = [each for each in run.summary.metrics if each.metric == "quality"]
        found = JudgeCalibration(
            "quality", fingerprints=run.summary.judging.fingerprints, judge="openai:judge-1", answer_count=60,
            measure="alpha_interval", alpha=0.86, interval=Interval(0.79, 0.91), trust="trusted",
            threshold=metric.threshold, rule=metric.rule, sensitivity=0.9, passed_count=40, specificity=0.8,
            failed_count=20, drawing="random",
        )  # fmt: skip
        await set_calibration(client, found)
        await set_calibration(
            client,
            JudgeCalibration(
                "quality", fingerprints=("sha256:another",), answer_count=60, measure="alpha_interval", trust="unknown",
                drawing="unknown",
            ),
        )  # fmt: skip
        again = await client.get_run(run.run_id)
        (sentence,) = calibration_sentences(again)
        await set_calibration(client, dataclasses.replace(found, passed_count=54, failed_count=6))
        uneven = await client.get_run(run.run_id)
    assert sentence.startswith("quality: TRUSTED, alpha 0.86 [0.79, 0.91] with people on 60 answers (20")
    assert "; quality: 4 of 4 rows pass, as people would 100.0% [" in sentence
    document = judging_document(again)
    assert document is not None
    assert document["calibration_messages"] == [sentence]
    assert document["calibrations"][0]["corrected"]["quality"]["value"] == 1.0
    (caution,) = calibration_sentences(uneven)
    assert caution.endswith(
        "(people failed only 6 of 60 labelled answers: the interval is too narrow if these are not drawn from this run)"
    )
