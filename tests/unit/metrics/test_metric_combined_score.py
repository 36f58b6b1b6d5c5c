"""Combined score: hit, judge and tokens in one number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics.combined_score import CombinedScore, combined_score
from assay.metrics.core.score import Metric, Row
from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus, Source, Usage
from assay.model.case import Case, Turn
from assay.model.run import Score, ScoreStatus

DETAILS = ("avg_combined_score", "best_combined_score", "combined_of_averages", "avg_num_tokens", "total_tokens",
           "avg_hit_rate", "avg_judge_score")  # fmt: skip


def judged(
    hit: bool | None,
    judge: float | Score | None,
    usage: Usage | int | None,
    *,
    failed: bool = False,
    judge_name: str = "judge_score",
) -> Row:
    """A row with a hit or without, what the judge gave, and tokens; None for what is missing."""
    if isinstance(judge, float | int):
        judge = Score(judge_name, ScoreStatus.SCORED, value=judge)
    response = AgentResponse(
        status=AgentStatus.ERROR if failed else AgentStatus.SUCCESS,
        error=AgentError(AgentErrorKind.RAISED, "no") if failed else None,
        sources=(Source(title="X"),) if hit else (),
        usage=Usage(total_tokens=usage) if isinstance(usage, int) else usage,
    )
    turn = Turn("question", expected_sources=() if hit is None else ("X",))
    return Row(Case("case", (turn,)), response, scores={} if judge is None else {judge_name: judge})


@pytest.mark.parametrize(
    ("hit", "judge", "tokens", "combined"),
    [
        (1, 0.85, 2500, 0.4956309111),
        (1, 1, 1000, 1.0),
        (1, 0.85, 1000, 0.7836612789),
        (0.5, 0.8, 2000, 0.1264911064),
        (1, 0.9, 250, 1.7076299365),
        (0, 0.9, 800, 0.0),
        (1, 0.9, 0, None),
        (1, 1, 694, 1.2003841844),
        (1, 1, 695, 1.1995202878),
    ],
)
def test_known_values(hit: float, judge: float, tokens: int, combined: float | None) -> None:
    """The formula; no tokens means not counted, not free."""
    assert combined_score(hit, judge, tokens) == (None if combined is None else pytest.approx(combined, abs=1e-9))


@pytest.mark.parametrize(
    ("row", "value"),
    [
        (judged(True, 0.85, 2500), 0.4956309111),
        (judged(True, 0.85, Usage(input_tokens=2000, output_tokens=500)), 0.4956309111),
        (judged(True, 0.9, Usage(input_tokens=9, output_tokens=9, total_tokens=250)), 1.7076299365),
        (judged(False, 0.9, 800), 0.0),
    ],
)
def test_a_row_has_the_value_of_its_parts(metric: Callable[..., Metric], row: Row, value: float) -> None:
    """Tokens are the total, else input and output together; the parts are in the detail; no verdict."""
    score = metric("combined_score").score(row)
    assert score.value == pytest.approx(value, abs=1e-9)
    assert score.passed is None
    assert score.detail["hit"] == float(value > 0)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (judged(None, 0.9, 100), "no_expected_sources"),
        (judged(True, None, 100), "no_verdict"),
        (judged(True, Score("judge_score", ScoreStatus.SKIPPED, reason="no_reference"), 100), "no_verdict"),
        (judged(True, 0.9, None), "no_tokens"),
        (judged(True, 0.9, 0), "no_tokens"),
        (judged(True, 0.9, Usage(input_tokens=5)), "no_tokens"),
    ],
)
def test_a_missing_part_skips_the_row(metric: Callable[..., Metric], row: Row, reason: str) -> None:
    """Without hit, verdict or tokens there is no value and no 0."""
    score = metric("combined_score").score(row)
    assert (score.status, score.value, score.reason) == (ScoreStatus.SKIPPED, None, reason)


@pytest.mark.parametrize(
    ("row", "reason", "advisory"),
    [
        (
            judged(True, Score("judge_score", ScoreStatus.ERROR, reason="judge_unavailable"), 9),
            "judge_unavailable",
            True,
        ),
        (judged(True, 4.0, 100), "invalid_verdict", True),
        (judged(True, -0.5, 100), "invalid_verdict", True),
        (judged(True, 0.9, 100, failed=True), "agent_error", None),
    ],
)
def test_failures_are_errors(
    metric: Callable[..., Metric], fold: Callable[..., Any], row: Row, reason: str, advisory: bool | None
) -> None:
    """A failed judge or agent gives an error, and what is no share is never raised to a power."""
    score = metric("combined_score").score(row)
    assert (score.status, score.reason, score.detail.get("advisory")) == (ScoreStatus.ERROR, reason, advisory)
    summary = fold(metric("combined_score"), [row])
    assert (summary.value, summary.error_count, summary.own_error_count) == (None, 1, int(reason != "agent_error"))


def test_aggregates(metric: Callable[..., Metric], fold: Callable[..., Any]) -> None:
    """Mean, best, and the formula on the means, which is another number than the mean."""
    rows = [judged(True, 0.85, 2500), judged(True, 0.9, 1200), judged(False, 0.7, 900), judged(True, 0.6, 4000)]
    built = metric("combined_score")
    assert [built.score(row).value for row in rows] == pytest.approx([0.4956309111, 0.7794228634, 0, 0.2323790008])
    summary = fold(built, rows)
    assert tuple(summary.detail[name] for name in DETAILS) == pytest.approx(
        (0.3768581938, 0.7794228634, 0.2554248040, 2150, 8600, 0.75, 0.7625), abs=1e-9
    )
    assert summary.value == summary.detail["avg_combined_score"]
    assert (summary.threshold, summary.goal, summary.rule) == (None, 1.20, "more_than")
    assert (summary.meets_threshold, summary.meets_goal) == (None, False)


def test_means_are_over_scored_rows_and_tokens_over_all(
    metric: Callable[..., Metric], fold: Callable[..., Any]
) -> None:
    """Tokens are spent whether or not the judge answered; without rows every aggregate is absent."""
    detail = fold(metric("combined_score"), [judged(True, 1, 1000), judged(False, None, 3000)]).detail
    assert (detail["avg_combined_score"], detail["combined_of_averages"], detail["avg_hit_rate"]) == (1.0, 1.0, 1.0)
    assert (detail["avg_num_tokens"], detail["total_tokens"]) == (1000, 4000)
    assert set(fold(metric("combined_score"), []).detail.values()) == {None}


def test_parameters(metric: Callable[..., Metric]) -> None:
    """Exponents, the cut-off and the judging metric are configurable; that metric is computed first."""
    row = judged(True, 0.25, 4000, judge_name="mine")
    built = metric("combined_score", judge="mine", gamma=0.5, beta=1)
    assert built.score(row).value == pytest.approx(0.125)
    assert isinstance(built, CombinedScore)
    assert built.inputs == ("mine",)
    assert metric("combined_score").score(row).reason == "no_verdict"


PARTS = st.floats(0.0, 1.0)
TOKENS = st.integers(1, 10**7)


@given(PARTS, PARTS, TOKENS, PARTS, TOKENS)
def test_it_falls_in_tokens_and_rises_in_judge_and_hit(
    hit: float, judge: float, tokens: int, more: float, more_tokens: int
) -> None:
    """Monotone in each of its three parts."""
    value = combined_score(hit, judge, tokens)
    dearer = combined_score(hit, judge, tokens + more_tokens)
    better = combined_score(hit, max(judge, more), tokens)
    surer = combined_score(max(hit, more), judge, tokens)
    assert value is not None
    assert dearer is not None
    assert better is not None
    assert surer is not None
    assert dearer <= value <= min(better, surer)
