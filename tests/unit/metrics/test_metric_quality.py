"""Quality: what counts as a rating, and what does not."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics.core.score import JudgeEvidence
from assay.metrics.quality import parse_quality
from assay.model.run import ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.metrics.core.score import Metric, Row


@pytest.mark.parametrize(
    ("reply", "rating"),
    [
        ("4", 4),
        (" 4\n", 4),
        ("4/5", 4),
        ("Score: 4/5. Two facts missing", 4),
        ("Rating: 3 out of 5", 3),
        ("**5**", 5),
        ("٤", 4),
        ("5 stars", 5),
        ("4.0", 4),
        ("4.5", None),
        ("0", None),
        ("6", None),
        ("10", None),
        ("-3", None),
        ("", None),
        ("five", None),
        ("4 or 5", None),
        ("5/10", None),
        ("I found 2 errors. Score: 4", None),
        ("1-5: 4", None),
        ("Quality: 4\nQuality: 4", 4),
    ],
)
def test_replies_in_words(reply: str, rating: int | None) -> None:
    """A reply counts when it holds exactly one whole number from 1 to 5."""
    assert parse_quality(reply) == rating


@given(st.text(max_size=60))
def test_no_reply_breaks_the_reader(reply: str) -> None:
    """Whatever a judge says is a rating from 1 to 5 or none."""
    assert parse_quality(reply) in (None, 1, 2, 3, 4, 5)


@pytest.fixture
def rated(row: Callable[..., Row]) -> Callable[..., Row]:
    """A row with a verdict; an error stands for a judge that could not be asked."""

    def build(score: object, *, error: str = "", text: str = "") -> Row:
        verdict = None if score is None else {"reasoning": "r", "score": score}
        return dataclasses.replace(row("answer", ["ref"]), verdicts={"quality": JudgeEvidence(verdict, text, error)})

    return build


@pytest.mark.parametrize("score", [True, "4", 4.5, 0, 6, -3, None, [4], 10**400, float("nan"), float("inf")])
def test_invalid_verdicts_are_errors(metric: Callable[..., Metric], rated: Callable[..., Row], score: object) -> None:
    """A rating that is not a whole number from 1 to 5 is an error of the row, never a rating."""
    scored_row = metric("quality").score(rated(score))
    assert (scored_row.status, scored_row.value, scored_row.reason) == (ScoreStatus.ERROR, None, "invalid_verdict")


@pytest.mark.parametrize(("score", "rating"), [(1, 1), (5, 5), (4.0, 4)])
def test_whole_numbers_are_ratings(
    metric: Callable[..., Metric], rated: Callable[..., Row], score: float, rating: int
) -> None:
    """JSON has one kind of number: 4.0 is the rating 4, in an object as in words."""
    assert metric("quality").score(rated(score)).value == rating
    for text in (f'So: {{"reasoning": "r", "score": {score}}}', f"Score: {score}"):
        assert metric("quality").score(rated(None, text=text)).value == rating


def test_ratings_are_averaged(
    metric: Callable[..., Metric], rated: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """The average is over valid ratings and must reach the threshold."""
    summary = fold(metric("quality"), [rated(score) for score in (4, 5, 4, 3, 5)])
    assert (summary.value, summary.meets_threshold, summary.passed_count, summary.failed_count) == (4.2, True, 4, 1)
    summary = fold(metric("quality"), [rated(4), rated(3), rated(None, error="judge_unavailable"), rated(5)])
    assert (summary.value, summary.scored_count, summary.error_count, summary.meets_threshold) == (4.0, 3, 1, True)
    assert summary.detail["normalised"] == 0.8


def test_nobody_judged(metric: Callable[..., Metric], row: Callable[..., Row], fold: Callable[..., Any]) -> None:
    """Without a verdict the row is skipped and the run has no value; an agent error fails."""
    summary = fold(metric("quality"), [row("answer", ["ref"])])
    assert (summary.value, summary.skipped_count, summary.meets_threshold) == (None, 1, None)
    assert summary.detail["note"] == "No valid quality scores"
    failed = metric("quality").score(row("", ["ref"], failed=True))
    assert (failed.status, failed.passed, failed.reason) == (ScoreStatus.ERROR, False, "agent_error")
