"""The scores of one row: order of computation, thresholds of the case's own, defects."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from assay.metrics.rows.row_scores import score_row
from assay.model.run import ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.metrics.core.score import Metric, Row


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
    """No threshold of a case turns an agent error into a pass."""
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
