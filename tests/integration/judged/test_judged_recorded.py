"""Runs whose verdicts came with their cases: an orchestrator without a judge service, killed in between, or refused."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.judge_specs import judge_of

from assay.errors import DatasetError, SpecError
from assay.judging.recorded_verdicts import answer_sha256
from assay.model.answers.agent_response import AgentStatus
from assay.model.case import RecordedVerdict
from assay.model.run import JudgeModel, RunState

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.judged.conftest import Stage

    from assay.model.case import Case

    SetUp = Callable[..., Stage]
    CaseOf = Callable[..., Case]

RECORDED = judge_of("replay", "by hand", canary_rate=0.0, recorded_file="verdicts.jsonl")


def verdict(answer: str, score: int = 5, **more: Any) -> RecordedVerdict:
    """Return a verdict on an answer."""
    given = {"reasoning": "By hand.", "score": score}
    return RecordedVerdict("quality", answer_sha256(answer), "by hand", given, **more)


async def test_no_judge_service_is_needed(set_up: SetUp, case_of: CaseOf) -> None:
    """Nor asked where there is one; another answer, another rubric and another repeat have no verdict."""
    stage = set_up()
    cases = [
        case_of(0, "a", verdicts=(verdict("a", 3),)),
        case_of(1, "a", verdicts=(verdict("b"),)),
        case_of(2, "a", verdicts=(dataclasses.replace(verdict("a"), rubric="answer"),)),
        case_of(3, "a", verdicts=(verdict("a", repeat=2),)),
    ]
    settings = stage.settings(adapter="replay", judge=RECORDED)
    async with stage.orchestrator(judge=False) as client:
        run = await stage.follow(client, await stage.create(client, settings, cases))
        rows = await stage.rows(client, run)
    assert run.state is RunState.COMPLETED
    assert [(row.scores[0].value, row.scores[0].reason) for row in rows] == [(3, "")] + [(None, "not_recorded")] * 3
    assert {row.status for row in rows} == {AgentStatus.SUCCESS}
    assert run.summary is not None
    judging = run.summary.judging
    assert judging is not None
    assert (judging.verdict_count, judging.recorded_count, judging.failed_count, judging.cost_usd) == (4, 1, 3, None)
    run, rows = await stage.done(settings, cases[:1])
    assert rows[0].scores[0].value == 3
    assert stage.provider.requests == []


async def test_a_resumed_run_has_its_verdicts(set_up: SetUp, case_of: CaseOf) -> None:
    """They are stored with the run: after a restart no file is read."""
    stage = set_up()
    cases = [case_of(number, verdicts=(verdict(f"a{number}"),)) for number in range(4)]
    settings = stage.settings(judge=RECORDED)
    async with stage.orchestrator(judge=False) as client:
        run = await stage.create(client, settings, cases)
    async with stage.orchestrator(judge=False) as client:
        run = await client.resume_run(run.run_id)
        assert run.spec.judges == (RECORDED,)
        run = await stage.follow(client, run)
        rows = await stage.rows(client, run)
    assert [row.scores[0].value for row in rows] == [5] * 4


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"members": (JudgeModel("openai", "m"),)}, "judges[0].recorded_file"),
        ({"members": (*RECORDED.members, JudgeModel("openai", "m"))}, "judges[0].recorded_file"),
        ({"canary_rate": 0.05}, "judges[0].canary_rate"),
        ({"rubric": "house"}, "metrics[0].rubric"),
        ({"recorded_file": "a\x1b[31m"}, "judges[0].recorded_file"),
    ],
)
async def test_a_client_that_says_something_else_is_refused(
    changes: dict[str, Any], field: str, set_up: SetUp, case_of: CaseOf
) -> None:
    """The orchestrator has the rules of the spec: a recorded run has no judge, no jury, no canary."""
    stage = set_up()
    async with stage.orchestrator(judge=False) as client:
        changes = dict(changes)
        rubric = changes.pop("rubric", "")
        settings = stage.settings("judge_score", judge=dataclasses.replace(RECORDED, **changes), rubric=rubric)
        with pytest.raises(SpecError) as caught:
            await stage.create(client, settings, [case_of(0)])
    assert field in {problem.field for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"answer_sha256": "x"}, "must be a SHA-256"),
        ({"rubric": ""}, "must have 1 to 300 characters"),
        ({"judge": "\x1b[31m"}, "must not hold control characters"),
    ],
)
async def test_a_verdict_that_is_none_is_refused_with_its_case(
    wrong: dict[str, Any], said: str, set_up: SetUp, case_of: CaseOf
) -> None:
    """Before it is stored."""
    stage = set_up()
    cases = [case_of(0, verdicts=(dataclasses.replace(verdict("a"), **wrong),))]
    async with stage.orchestrator(judge=False) as client:
        with pytest.raises(DatasetError, match=said):
            await client.upload_dataset(cases, name="d")
