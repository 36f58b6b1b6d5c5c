"""The scores of one row, its verdict, and the reason why it failed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from assay.metrics.core.row_verdict import row_message, row_verdict
from assay.metrics.core.score import Metric, Row, not_computed
from assay.metrics.rows.row_scores import score_row
from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus
from assay.model.run import RowResult, Score, ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.metrics.core.score import Metric, Row


PASSED = Score("exact_match", ScoreStatus.SCORED, value=1.0, passed=True)
FAILED = Score("exact_match", ScoreStatus.SCORED, value=0.0, passed=False)
SILENT = Score("coverage", ScoreStatus.SCORED, value=0.0, reason="nothing_retrieved")
SKIPPED = Score("semantic_similarity", ScoreStatus.SKIPPED, reason="no_reference")
BROKEN = not_computed("semantic_similarity", "embedder_unavailable", decides=True)
OPEN = Score(
    "assertions", ScoreStatus.SCORED, value=1.0, reason="not made: llm-rubric (no judge)", detail={"undecided": True}
)
ADVISORY = not_computed("satisfaction", "embedder_unavailable", decides=False)


@pytest.mark.parametrize(
    ("status", "scores", "verdict"),
    [
        (AgentStatus.ERROR, [PASSED], False),
        (AgentStatus.ERROR, [], False),
        (AgentStatus.SUCCESS, [PASSED, FAILED], False),
        (AgentStatus.SUCCESS, [BROKEN, FAILED], False),
        (AgentStatus.SUCCESS, [PASSED, BROKEN], None),
        (AgentStatus.SUCCESS, [PASSED, OPEN], None),
        (AgentStatus.SUCCESS, [FAILED, OPEN], False),
        (AgentStatus.SUCCESS, [PASSED, ADVISORY], True),
        (AgentStatus.SUCCESS, [ADVISORY], None),
        (AgentStatus.SUCCESS, [PASSED, SKIPPED, SILENT], True),
        (AgentStatus.OUT_OF_SCOPE, [PASSED], True),
        (AgentStatus.SUCCESS, [SKIPPED, SILENT], None),
        (AgentStatus.SUCCESS, [], None),
    ],
)
def test_verdict(status: AgentStatus, scores: list[Score], verdict: bool | None) -> None:
    """Failing beats unknown, unknown beats passing, and what does not decide stays out."""
    assert row_verdict(status, scores) is verdict


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        ([PASSED, SKIPPED, SILENT, ADVISORY], ""),
        ([FAILED], "exact_match: the answer differs from the reference"),
        ([BROKEN], "semantic_similarity could not be computed: the embedder was not available"),
        ([PASSED, OPEN], "assertions is undecided: not made: llm-rubric (no judge)"),
        ([FAILED, BROKEN],
         ("exact_match: the answer differs from the reference; "
          "semantic_similarity could not be computed: the embedder was not available")),
    ],
)  # fmt: skip
def test_reason(scores: list[Score], reason: str) -> None:
    """The sentence names each metric that failed or could not be computed, and nothing else."""
    assert row_message(AgentResponse(text="answer"), scores) == reason


@pytest.mark.parametrize(
    ("name", "threshold", "value", "reason"),
    [
        ("semantic_similarity", 0.75, 0.41, "semantic_similarity: 0.41 is below the threshold of 0.75"),
        ("semantic_similarity", 0.75, 0.749999, "semantic_similarity: 0.749999 is below the threshold of 0.75"),
        ("semantic_similarity", 0.75, 0.74999998, "semantic_similarity: 0.74999998 is below the threshold of 0.75"),
        ("latency", 4.0, 31.25, "latency: 31.2 is above the threshold of 4"),
        ("tokens", 12000.0, 12345.0, "tokens: 12345 is above the threshold of 12000"),
        ("tokens", 12000.0, 12001.0, "tokens: 12001 is above the threshold of 12000"),
        ("quality", 3.0, 3.0 - 1e-12, "quality: 3 is not more than 3"),
    ],
)
def test_a_missed_threshold_is_shown_with_its_value(name: str, threshold: float, value: float, reason: str) -> None:
    """Value and threshold never look equal."""
    score = Score(name, ScoreStatus.SCORED, value=value, passed=False, detail={"threshold": threshold})
    assert row_message(AgentResponse(), [score]) == reason


def test_an_agent_error_is_told_in_its_own_words() -> None:
    """The agent's failure explains the row; metrics add nothing."""
    error = AgentError(AgentErrorKind.TIMEOUT, "no answer within 30 s")
    response = AgentResponse(status=AgentStatus.ERROR, error=error)
    assert row_message(response, [FAILED]) == "agent error (timeout): no answer within 30 s"


def test_metrics_put_their_threshold_where_the_reason_finds_it(
    metric: Callable[..., Metric], row: Callable[..., Row], result: Callable[..., RowResult]
) -> None:
    """A real row that misses two thresholds is explained with both."""
    metrics = [metric("semantic_similarity"), metric("latency", threshold=2.0)]
    built = row("a", ["b"], vectors=[(1, 0), (0, 1)], latency_ms=2500.0)
    stored = result(built, metrics)
    assert stored.passed is False
    sentence = "semantic_similarity: 0 is below the threshold of 0.75; latency: 2.5 is above the threshold of 2"
    assert stored.message == sentence


@pytest.mark.parametrize(
    ("thresholds", "passed"),
    [({}, False), ({"semantic_similarity": 0.5}, True), ({"semantic_similarity": 0.8}, False), ({"rouge": 0.1}, False)],
)
def test_a_case_may_have_a_threshold_of_its_own(
    metric: Callable[..., Metric], row: Callable[..., Row], thresholds: dict[str, float], passed: bool
) -> None:
    """A case's threshold replaces the metric's for its rows, inclusive, and is shown."""
    built = row("answer", ["reference"], vectors=[(1, 0), (1, 1)])  # cosine 0.7071
    built = dataclasses.replace(built, case=dataclasses.replace(built.case, thresholds=thresholds))
    (score,) = score_row([metric("semantic_similarity")], built)
    assert score.passed is passed
    assert score.detail["threshold"] == thresholds.get("semantic_similarity", 0.75)


def test_an_agent_error_stays_a_failure(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """A case's threshold turns no agent error into a pass."""
    built = row("", ["reference"], failed=True)
    built = dataclasses.replace(built, case=dataclasses.replace(built.case, thresholds={"exact_match": 0.0}))
    (score,) = score_row([metric("exact_match")], built)
    assert (score.value, score.passed) == (0.0, False)


def test_a_defect_costs_one_score(metric: Callable[..., Metric], row: Callable[..., Row]) -> None:
    """A metric that raises is an error of its own; the others are computed."""
    broken = metric("contains", values=["x"])
    broken._values = None  # type: ignore[attr-defined]  # a defect
    first, second = score_row([broken, metric("exact_match")], row("a", ["a"]))
    assert (first.status, first.reason) == (ScoreStatus.ERROR, "metric_failed")
    assert second.passed is True
