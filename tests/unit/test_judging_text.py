"""What the console says of a judge: reasons of what failed, and the cost so far."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from assay.client.progress.run_progress import make_progress
from assay.model.answers.agent_response import AgentStatus
from assay.model.run import (
    AgentSettings,
    CaseResult,
    DatasetRef,
    JudgeSettings,
    MetricSettings,
    Run,
    RunCounts,
    RunSettings,
    RunState,
    Score,
    ScoreStatus,
)
from assay.reports.words.judging_text import judge_reasons, judging_cost


def verdict(key: str = "k", **changes: Any) -> dict[str, Any]:
    """Return what a score's detail holds of a verdict."""
    return {"key": key, "judge": "openai:m", "cached": False, "cost_usd": 0.25, **changes}


def failed(metric: str = "quality", **detail: Any) -> Score:
    """Return a score that fails its row."""
    return Score(metric, ScoreStatus.SCORED, 1.0, passed=False, detail=detail)


def row(*scores: Score) -> CaseResult:
    """Return a row with these scores."""
    return CaseResult("c", 0, 0, "", AgentStatus.SUCCESS, False, scores, None, "")


def test_reasons_are_those_of_what_failed() -> None:
    """A passed score and one without a threshold say nothing; a verdict that is not valid says why."""
    passed = Score("a", ScoreStatus.SCORED, 5.0, passed=True, detail={"reasoning": "Fine.", "verdict": verdict()})
    free = Score("b", ScoreStatus.SCORED, 5.0, detail={"reasoning": "Free.", "verdict": verdict()})
    invalid = Score("d", ScoreStatus.ERROR, reason="x", detail={"message": "no verdict", "verdict": verdict()})
    plain = Score("e", ScoreStatus.ERROR, reason="no_reference", detail={"message": "not judged"})
    bad = failed("c", reasoning="Wrong.", verdict=verdict())
    assert judge_reasons(row(passed, free, bad, invalid, plain)) == ["judge on c: Wrong.", "judge on d: no verdict"]


def test_reasons_and_cost_of_checks() -> None:
    """Checks that hold say nothing and cost as the others do; a jury on a check says its own."""
    jury = [{"value": 0.0, "reasoning": "Rude.", "verdict": verdict("c", judge="openai:m")}]
    checks = [
        {"passed": True, "reasoning": "Fine.", "verdict": verdict("a")},
        {"passed": False, "reasoning": "No joke.", "verdict": verdict("b")},
        {"passed": False, "jury": jury},
        {"passed": None, "reason": "no judge"},
    ]
    stored = row(failed("assertions", checks=checks))
    assert judge_reasons(stored) == ["judge on assertions: No joke.", "openai:m on assertions: Rude."]
    assert judging_cost(stored) == 0.75


def test_an_empty_answer_is_failed_by_a_rule() -> None:
    """No judge was asked, so none is named."""
    stored = row(failed(reasoning="The answer is empty.", verdict=verdict(by_rule=True)))
    assert judge_reasons(stored) == ["rule on quality: The answer is empty."]


def test_each_judge_of_a_jury_says_its_own() -> None:
    """One without a valid verdict says why it has none."""
    jury = [
        {"value": 1.0, "reasoning": "Wrong.", "verdict": verdict(judge="openai:m")},
        {"value": None, "reason": "truncated", "verdict": verdict(judge="anthropic:n")},
        "odd",
    ]
    reasons = judge_reasons(row(failed(jury=jury)))
    assert reasons == ["openai:m on quality: Wrong.", "anthropic:n on quality: truncated"]


@pytest.mark.parametrize(
    ("scores", "cost"),
    [
        ((), None),
        ((failed(verdict=verdict()),), 0.25),
        ((failed(verdict=verdict()), failed("b", verdict=verdict())), 0.25),
        ((failed(verdict=verdict("a")), failed("b", verdict=verdict("b"))), 0.5),
        ((failed(verdict=verdict(cached=True)),), None),
        ((failed(verdict=verdict(cost_usd=None)),), None),
        ((failed(verdict=verdict("a"), canary={"verdict": verdict("b")}),), 0.5),
        ((failed(jury=[{"verdict": verdict("a")}, {"verdict": verdict("b", cost_usd=1)}]),), 1.25),
        ((failed(verdict="odd", canary=3),), None),
    ],
)
def test_the_cost_of_a_row_is_what_was_paid(scores: tuple[Score, ...], cost: float | None) -> None:
    """A verdict that several metrics rest on counts once, one from the cache not at all, a canary's as well."""
    assert judging_cost(row(*scores)) == cost


def test_a_run_says_who_judges_and_what_was_paid_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    """At its beginning, and when it ends early; a metric that needs no judge makes no line."""
    judge = JudgeSettings("openai", "m", spend_cap_usd=2.5)
    for metric, lines in (("quality", ["judge  openai:m, spend cap $2.5"]), ("latency", [])):
        settings = RunSettings("test", AgentSettings("replay"), [MetricSettings(metric)], judge=judge)
        run = Run("r1", settings, DatasetRef("d", "qa", "json", 3), RunState.RUNNING, "", RunCounts(3), "now")
        with make_progress(run, hidden=False, clock=lambda: 0.0) as progress:
            for index in range(2):
                progress.take(replace(row(failed(verdict=verdict())), case_index=index))
        said = capsys.readouterr().err.splitlines()
        assert said[1:-1] == lines
        assert said[-1] == "2/3 cases  0.0% passed  judging $0.5000"
