"""Structured verdicts and the judge score."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics.core.row_verdict import row_message
from assay.metrics.core.score import JudgeEvidence
from assay.metrics.jury.jury_scores import score_by_jury
from assay.metrics.jury.structured_verdict import StructuredVerdict, verdict_in_text, verdict_of
from assay.model.answers.agent_response import AgentResponse
from assay.model.judgement import Judgement, JudgementStatus
from assay.model.run import ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.metrics.core.score import Metric, Row

MISSING = object()


def verdict(accuracy: object, completeness: object, relevance: object, overall: object = MISSING) -> dict[str, Any]:
    """Return the object that a judge gives."""
    data: dict[str, Any] = {
        "reasoning": "because",
        "accuracy": accuracy,
        "completeness": completeness,
        "relevance": relevance,
    }
    return data if overall is MISSING else {**data, "overall_score": overall}


@pytest.mark.parametrize(
    ("data", "overall", "derived", "coherent"),
    [
        (verdict(0.9, 0.8, 0.9, 0.85), 0.85, False, True),
        (verdict(0.9, 0.8, 0.9), 0.8666666667, True, True),
        (verdict(0.9, 0.8, 0.9, None), 0.8666666667, True, True),
        (verdict(0.2, 0.3, 0.2, 0.9), 0.9, False, False),
        (verdict(0.2, 0.3, 0.2, 0.35), 0.35, False, True),
        (verdict(0.2, 0.3, 0.2, 0.36), 0.36, False, False),
        (verdict(0.2, 0.3, 0.2, 0.15), 0.15, False, True),
        (verdict(0.2, 0.3, 0.2, 0.14), 0.14, False, False),
        ({**verdict(1, 0, 1, 1), "passed": False, "note": "ignored"}, 1.0, False, True),
    ],
)
def test_valid_verdicts(data: dict[str, Any], overall: float, derived: bool, coherent: bool) -> None:
    """A missing overall score is derived; one that contradicts its parts is kept and marked."""
    read = verdict_of(data)
    assert isinstance(read, StructuredVerdict)
    assert read.overall == pytest.approx(overall)
    assert (read.derived, read.coherent) == (derived, coherent)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (verdict(0.9, 0.8, 0.9, 1.2), "invalid_overall_score"),
        (verdict(True, 0.3, 0.2, 0.9), "invalid_accuracy"),
        (verdict("0.9", 0.3, 0.2, 0.9), "invalid_accuracy"),
        (verdict(0.5, 85, 0.2), "invalid_completeness"),
        (verdict(0.5, 0.5, float("nan")), "invalid_relevance"),
        (verdict(0.5, 0.5, 10**400), "invalid_relevance"),
        ({**verdict(0.5, 0.5, 0.5), "reasoning": None}, "invalid_reasoning"),
        ({}, "invalid_reasoning"),
    ],
)
def test_invalid_verdicts(data: dict[str, Any], problem: str) -> None:
    """Ranges and types are checked, whatever the provider promised."""
    assert verdict_of(data) == problem


def test_verdicts_in_words() -> None:
    """A reply counts when it holds exactly one valid object, in a fence or not."""
    text = json.dumps(verdict(0.9, 0.8, 0.9, 0.85))
    for reply in (text, f"Here it is:\n```json\n{text}\n```\nDone.", f'{{"x": 1}} {text}'):
        assert isinstance(verdict_in_text(reply), StructuredVerdict)
    assert verdict_in_text(f"{text} or {text}") == "several_verdicts"
    for reply in ("", "no", "{", json.dumps(verdict(2, 0, 0)), f'{{"inner": {text}}}'):
        assert verdict_in_text(reply) == "invalid_verdict"


@given(st.text(max_size=200) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_no_reply_breaks_the_reader(reply: str) -> None:
    """Whatever a judge says is a verdict or a word for why it is none."""
    assert isinstance(verdict_in_text(reply), StructuredVerdict | str)


@pytest.fixture
def judged(row: Callable[..., Row]) -> Callable[..., Row]:
    """A row with a structured verdict."""

    def build(data: dict[str, Any] | None, *, error: str = "") -> Row:
        evidence = JudgeEvidence(data, error=error, judgement=Judgement("m", "r", JudgementStatus.VALID))
        return dataclasses.replace(row("answer", ["ref"]), verdicts={"structured": evidence})

    return build


def test_a_jury_is_coherent_where_all_of_it_is(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """One incoherent verdict of two marks the row."""
    coherent, incoherent = verdict(0.9, 0.8, 0.9, 0.87), verdict(0.2, 0.3, 0.2, 0.9)
    for second, is_coherent in ((coherent, True), (incoherent, False)):
        jury = JudgeEvidence(None, jury=(JudgeEvidence(coherent), JudgeEvidence(second)))
        one = dataclasses.replace(row("answer", ["ref"]), verdicts={"structured": jury})
        assert score_by_jury(metric("judge_score"), one).detail["coherent"] is is_coherent


def test_scores_are_averaged_and_marks_counted(
    metric: Callable[..., Metric], judged: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """The mean is over valid verdicts; derived and incoherent ones are counted."""
    rows = [
        judged(verdict(0.9, 0.8, 0.9)),
        judged(verdict(0.2, 0.3, 0.2, 0.9)),
        judged(verdict(1, 1, 1, 7)),
        judged(None, error="judge_unavailable"),
    ]
    summary = fold(metric("judge_score"), rows)
    assert summary.value == pytest.approx((0.8666666667 + 0.9) / 2)
    assert (summary.scored_count, summary.error_count, summary.own_error_count) == (2, 2, 2)
    assert (summary.detail["derived"], summary.detail["incoherent"]) == (1, 1)
    assert (summary.detail["avg_accuracy"], summary.meets_threshold, summary.meets_goal) == (0.55, True, True)


def test_the_verdict_of_a_row_is_more_than_the_threshold(
    metric: Callable[..., Metric], judged: Callable[..., Row]
) -> None:
    """A row with exactly the threshold does not pass, and no pass flag of the judge is read."""
    level = metric("judge_score").score(judged(verdict(0.75, 0.75, 0.75)))
    assert level.passed is False
    assert row_message(AgentResponse(text="a"), [level]) == "judge_score: 0.75 is not more than 0.75"
    assert metric("judge_score").score(judged({**verdict(0.8, 0.8, 0.8), "passed": False})).passed is True


def test_nobody_judged(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """Without a verdict the row is skipped and never 0."""
    score = metric("judge_score").score(row("answer", ["ref"]))
    assert (score.status, score.value, score.reason) == (ScoreStatus.SKIPPED, None, "no_verdict")


@pytest.mark.parametrize(
    ("scores", "scale", "overall", "parts", "derived"),
    [
        ({"politeness": 5, "warmth": 3}, (1, 5), 0.75, {"politeness": 1.0, "warmth": 0.5}, True),
        ({"politeness": 5, "overall_score": 1}, (1, 5), 0.0, {"politeness": 1.0}, False),
        ({"score": 4}, (1, 5), 0.75, {"score": 0.75}, True),
        ({"overall_score": 10}, (0, 10), 1.0, {}, False),
        ({"a": -1, "b": 1}, (-1, 1), 0.5, {"a": 0.0, "b": 1.0}, True),
    ],
)
def test_criteria_of_ones_own(
    metric: Callable[..., Metric],
    row: Callable[..., Row],
    fold: Callable[..., Any],
    scores: dict[str, float],
    scale: tuple[float, float],
    overall: float,
    parts: dict[str, float],
    derived: bool,
) -> None:
    """By a rubric of the user's own the score is on [0, 1] too, and its criteria are summed up by their names."""
    evidence = JudgeEvidence({"reasoning": "r", **scores}, scale=scale)
    judged = dataclasses.replace(row("answer", ["ref"]), verdicts={"structured": evidence})
    score = metric("judge_score").score(judged)
    assert score.value == pytest.approx(overall)
    assert score.detail["criteria"] == pytest.approx(parts)
    assert score.detail["derived"] is derived
    detail = fold(metric("judge_score"), [judged]).detail
    assert detail.get("criteria", {}) == pytest.approx(parts)
    assert detail["avg_accuracy"] is None


@pytest.mark.parametrize(
    "scores", [{"politeness": 6}, {"politeness": True}, {"politeness": "5"}, {"politeness": None}, {}]
)
def test_criteria_off_their_scale_are_no_verdict(scores: dict[str, Any]) -> None:
    """An error of the row, never a number."""
    assert isinstance(verdict_of({"reasoning": "r", **scores}, (1, 5)), str)


@pytest.mark.parametrize(("kind", "rubric"), [("judge_score", "structured"), ("quality", "quality")])
def test_where_nobody_judges_a_row_is_skipped(
    metric: Callable[..., Metric], row: Callable[..., Row], kind: str, rubric: str
) -> None:
    """The reason is the judge's word, and the sentence for people stands beside it: no 0, no verdict, no failure."""
    evidence = JudgeEvidence(None, skipped="judge_not_configured", message="no judge configured")
    score = metric(kind).score(dataclasses.replace(row("answer", ["ref"]), verdicts={rubric: evidence}))
    assert (score.status, score.value, score.passed) == (ScoreStatus.SKIPPED, None, None)
    assert (score.reason, score.message) == ("judge_not_configured", "no judge configured")
