"""Coverage rate: what counts as found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from assay.metrics.core.score import Metric, Row
from assay.model.answers.agent_response import AgentStatus
from assay.model.run import ScoreStatus

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
    answer = answer or "\u3164"  # as blank as an empty answer
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
    assert (summary.meets_threshold, summary.passed_count, summary.failed_count) == (False, 0, 0)


def test_an_agent_error_is_not_covered(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """A failed agent counts in the total, whatever it retrieved."""
    score = metric("coverage").score(row("Here is an event", events=1, failed=True))
    assert (score.value, score.reason) == (0.0, "agent_error")


def test_phrases_can_be_chosen(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """Configured phrases replace the defaults and are folded like the answer."""
    coverage = metric("coverage", fallback_phrases=["No \u00c9vents"])
    assert coverage.score(row("Sorry: no  e\u0301vents today", events=1)).value == 0.0
    assert coverage.score(row("I couldn't find any events", events=1)).value == 1.0


def unanswerable(row: Row, status: AgentStatus = AgentStatus.SUCCESS) -> Row:
    """Return a row as one of a question that cannot be answered."""
    case = dataclasses.replace(row.case, category="out_of_scope")
    response = row.response if row.response.error else dataclasses.replace(row.response, status=status)
    return dataclasses.replace(row, case=case, response=response)


@pytest.mark.parametrize(
    ("answer", "events", "status", "declined"),
    [
        ("I do not know.", None, AgentStatus.SUCCESS, True),
        ("I don\u2019t know that", 0, AgentStatus.SUCCESS, True),
        ("I couldn't find any events like that.", 0, AgentStatus.SUCCESS, True),
        ("لا أعرفُ", 0, AgentStatus.SUCCESS, True),
        ("Nothing of the kind.", 0, AgentStatus.OUT_OF_SCOPE, True),
        ("The Ski Race is on Sunday.", 1, AgentStatus.SUCCESS, False),
        ("The Ski Race is on Sunday.", 0, AgentStatus.SUCCESS, False),
        ("", 0, AgentStatus.SUCCESS, False),
    ],
)
def test_a_question_that_cannot_be_answered_is_not_in_the_rate(
    metric: Callable[..., Metric],
    row: Callable[..., Row],
    answer: str,
    events: int | None,
    status: AgentStatus,
    declined: bool,
) -> None:
    """Its row is skipped, and notes whether the agent declined."""
    score = metric("coverage").score(unanswerable(row(answer, events=events), status))
    assert (score.value, score.status, score.reason) == (None, ScoreStatus.SKIPPED, "unanswerable")
    assert score.detail["declined"] is declined


def test_who_declines_is_not_worse_off_than_who_invents(
    metric: Callable[..., Metric], row: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """Declining and inventing give the same rate; separate counts distinguish them."""
    covered = [row("Here is an event", events=1), row("Here is an event", events=0)]
    honest = fold(metric("coverage"), [*covered, *[unanswerable(row("I do not know.", events=0))] * 2])
    inventing = fold(metric("coverage"), [*covered, *[unanswerable(row("On Sunday.", events=1))] * 2])
    failing = fold(metric("coverage"), [*covered, *[unanswerable(row("I do not know.", failed=True))] * 2])
    assert honest.value == inventing.value == failing.value == 0.5
    counts = [
        [each.detail[name] for name in ("unanswerable", "unanswerable_share", "declined", "declined_rate")]
        for each in (honest, inventing, failing)
    ]
    assert counts == [[2, 0.5, 2, 1.0], [2, 0.5, 0, 0.0], [2, 0.5, 0, 0.0]]
    assert (honest.scored_count, honest.skipped_count, honest.error_count) == (2, 2, 0)


def test_a_run_without_such_questions_has_no_rate_of_them(
    metric: Callable[..., Metric], row: Callable[..., Row], fold: Callable[..., Any]
) -> None:
    """0 of 0 is no rate; where every question is such a one there is no coverage."""
    detail = fold(metric("coverage"), [row("Here is an event", events=1)]).detail
    assert (detail["unanswerable"], detail["unanswerable_share"], detail["declined_rate"]) == (0, 0.0, None)
    summary = fold(metric("coverage"), [unanswerable(row("I do not know."))])
    assert (summary.value, summary.detail["unanswerable_share"]) == (None, 1.0)
