"""Coverage rate: what counts as found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assay.metrics.score import Metric, Row

EXAMPLES: list[tuple[int | None, str, str]] = [
    (1, "Here is an event", ""),
    (1, "I couldn\u2019t find any events for you", "fallback_phrase"),
    (1, "I COULDN'T  find any events", "fallback_phrase"),
    (0, "Here is an event", "nothing_retrieved"),
    (1, "", "empty_output"),
    (None, "", "nothing_retrieved"),
    (1, "could not find any events", ""),
]


@pytest.mark.parametrize(("events", "answer", "reason"), EXAMPLES)
def test_known_answers(
    metric: Callable[..., Metric], row: Callable[..., Row], events: int | None, answer: str, reason: str
) -> None:
    """A row is covered with events and an answer that does not say that nothing was found."""
    score = metric("coverage").score(row(answer, events=events))
    assert (score.value, score.reason, score.passed) == (0.0 if reason else 1.0, reason, None)


def test_coverage_of_the_known_answers(
    metric: Callable[..., Metric], row: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """Two of seven are covered; without a threshold nothing is met or missed."""
    summary = fold(metric("coverage"), [row(answer, events=events) for events, answer, _ in EXAMPLES])
    assert summary.value == pytest.approx(0.2857142857, abs=1e-10)
    assert (summary.detail["covered"], summary.detail["total"]) == (2, 7)
    assert summary.meets_threshold is None


def test_the_threshold_is_on_the_rate(
    metric: Callable[..., Metric], row: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """A threshold decides the aggregate and gives no row a verdict."""
    rows = [row("Here is an event", events=1), row("Here is an event", events=0)]
    assert fold(metric("coverage", threshold=0.5), rows).meets_threshold is True
    summary = fold(metric("coverage", threshold=0.6), rows)
    assert (summary.meets_threshold, summary.passed, summary.failed) == (False, 0, 0)


def test_an_agent_error_is_not_covered(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """A failed agent stays in the total whatever it had retrieved."""
    score = metric("coverage").score(row("Here is an event", events=1, failed=True))
    assert (score.value, score.reason) == (0.0, "agent_error")


def test_phrases_can_be_chosen(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """Configured phrases replace the default ones and are folded like the answer."""
    coverage = metric("coverage", fallback_phrases=["No \u00c9vents"])
    assert coverage.score(row("Sorry: no  e\u0301vents today", events=1)).value == 0.0
    assert coverage.score(row("I couldn't find any events", events=1)).value == 1.0
