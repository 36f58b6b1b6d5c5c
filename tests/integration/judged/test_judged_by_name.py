"""A run with several judges and rubrics: each metric has the verdicts of its judge by its rubric."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from assay.errors import SpecError
from assay.gates.run_verdict import failed_canaries
from assay.model.case import Assertion, Case
from assay.model.run import MetricSpec, PauseCause, RunState, SpendCap
from assay.testing.judges import says, system_of
from assay.testing.providers import ProviderRequest, Reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.judged.conftest import Stage

    from assay.model.run import RowResult, RunSpec, Score

    SetUp = Callable[..., Stage]
    CaseOf = Callable[..., Case]

TONE = """\
name: tone
description: Whether it is friendly.
scale: {minimum: 1, maximum: 5, whole: true}
criteria:
  - {name: politeness, description: Whether the customer is treated with respect.}
"""
LAW = TONE.replace("name: tone", "name: law").replace("politeness", "lawfulness")
PARTS = {"reasoning": "Fine.", "accuracy": 0.9, "completeness": 0.8, "relevance": 0.7, "overall_score": 0.8}
PRICE = (1_200 * 1 + 150 * 5) / 1e6


def by_rubric(request: ProviderRequest) -> Reply:
    """Give the verdict that the rubric asks for; `strict` gives lower scores than `fast`."""
    is_strict = request.body["model"] == "judge-2"
    system = system_of(request)
    for criterion in ("politeness", "lawfulness"):
        if criterion in system:
            return says({"reasoning": "Hm.", criterion: 2 if is_strict else 5})(request)
    if "overall_score" in system:
        return says(PARTS)(request)
    if "criterion" in system:
        return says({"reasoning": "Polite.", "score": 0.25 if is_strict else 1})(request)
    return says({"reasoning": "Right.", "score": 2 if is_strict else 4})(request)


def settings_of(stage: Stage, canary_rate: float = 0.0) -> RunSpec:
    """Return the settings of a run with two judges and three rubrics of `judge_score`."""
    judges = tuple(
        stage.who(model=model, name=name, canary_rate=canary_rate)
        for name, model in (("fast", "judge-1"), ("strict", "judge-2"))
    )
    metrics = (
        MetricSpec("quality"),
        MetricSpec("facts", kind="judge_score"),
        MetricSpec("tone", kind="judge_score", rubric="tone", rubric_yaml=TONE),
        MetricSpec("law", kind="judge_score", judge="strict", rubric="law", rubric_yaml=LAW),
        MetricSpec("second", kind="quality", judge="strict"),
        MetricSpec("assertions", judge="strict"),
    )
    return stage.settings(*metrics, judges=judges)


def scores_of(row: RowResult) -> dict[str, Score]:
    """Return the scores of a row by metric."""
    return {score.metric: score for score in row.scores}


async def test_each_metric_has_its_judge_and_its_rubric(set_up: SetUp, case_of: CaseOf) -> None:
    """Over the wire and back, in scores, in the summary of each judge, and in one account of the run."""
    stage = set_up(by_rubric)
    cases = [case_of(number, assertions=(Assertion("llm-rubric", "is polite"),)) for number in range(3)]
    run, rows = await stage.done(settings_of(stage), cases)
    assert [judge.name for judge in run.spec.judges] == ["fast", "strict"]
    for row in rows:
        scores = scores_of(row)
        assert {name: score.value for name, score in scores.items()} == {
            "quality": 4, "facts": 0.8, "tone": 1.0, "law": 0.25, "second": 2, "assertions": 0.25
        }  # fmt: skip
        verdicts = {name: score.judgements[0] for name, score in scores.items()}
        origins = {name: (verdict.rubric, verdict.judge) for name, verdict in verdicts.items()}
        assert {name: (rubric, judge.partition("@")[0]) for name, (rubric, judge) in origins.items()} == {
            "quality": ("quality", "openai:judge-1"), "facts": ("answer", "openai:judge-1"),
            "tone": ("tone", "openai:judge-1"), "law": ("law", "openai:judge-2"),
            "second": ("quality", "openai:judge-2"), "assertions": ("check_criterion", "openai:judge-2"),
        }  # fmt: skip
    assert Counter(request.body["model"] for request in stage.provider.requests) == {"judge-1": 9, "judge-2": 9}
    assert run.summary is not None
    judging = run.summary.judging
    assert judging is not None
    assert (judging.verdict_count, judging.asked_count, len(judging.fingerprints)) == (18, 18, 6)
    assert [(juror.name, juror.verdict_count) for juror in judging.jurors] == [("fast", 9), ("strict", 9)]
    assert judging.cost_usd == pytest.approx(18 * PRICE)
    assert judging.account_usd is not None
    assert judging.account_usd >= 18 * PRICE


async def test_each_judge_has_its_canaries(set_up: SetUp, case_of: CaseOf) -> None:
    """A judge that passes known bad answers is named, and only its own settings accept that."""
    stage = set_up(by_rubric)
    settings = settings_of(stage, canary_rate=0.5)
    settings = replace(settings, metrics=(settings.metrics[0], settings.metrics[4]))
    cases = [case_of(number) for number in range(20)]
    run, _ = await stage.done(settings, cases)
    assert run.summary is not None
    assert run.summary.judging is not None
    of_fast, of_strict = run.summary.judging.canaries
    assert (of_fast.judge, of_strict.judge) == ("fast", "strict")
    assert of_fast.false_pass.wrong_count >= 2
    assert of_strict.false_pass.wrong_count == 0
    assert failed_canaries(run.summary).startswith("fast: do not trust these verdicts")
    accepted = replace(of_fast, is_accepted=True)
    judging = replace(run.summary.judging, canaries=(accepted, of_strict))
    assert failed_canaries(replace(run.summary, judging=judging)).startswith("strict: do not trust these verdicts")


async def test_a_cap_pauses_all_judges_and_a_higher_one_resumes_them(set_up: SetUp, case_of: CaseOf) -> None:
    """The cap is the run's; what was paid before is not paid again."""
    stage = set_up(by_rubric)
    cases = [case_of(number) for number in range(4)]
    async with stage.judge(), stage.orchestrator() as client:
        settings = replace(settings_of(stage), spend_cap_nano_usd=30_000_000)
        settings = replace(settings, metrics=settings.metrics[:5])
        run = await stage.follow(client, await stage.create(client, settings, cases))
        assert (run.state, run.pause_cause) == (RunState.PAUSED, PauseCause.JUDGE)
        await client.update_run(run.run_id, spend_cap=SpendCap(10**9))
        await client.resume_run(run.run_id)
        run = await stage.follow(client, run)
    assert run.state is RunState.COMPLETED
    assert len(stage.provider.requests) == 4 * 5
    assert run.spec.spend_cap_nano_usd == 10**9


async def test_a_metric_that_names_no_judge_of_the_run_is_refused(set_up: SetUp, case_of: CaseOf) -> None:
    """With every other problem, at its place in the request."""
    stage = set_up()
    settings = settings_of(stage)
    wrong = (replace(settings.metrics[0], judge="stict"), replace(settings.metrics[1], rubric="no-such"))
    async with stage.judge(), stage.orchestrator() as client:
        for metrics, fields in ((wrong, {"metrics[0].judge"}), (wrong[1:], {"metrics[0].rubric"})):
            with pytest.raises(SpecError) as caught:
                await stage.create(client, replace(settings, metrics=metrics), [case_of(1)])
            assert {problem.field for problem in caught.value.problems} == fields
