"""A metric in Python code: what a row's score is, given what its function said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics import build_metric, complete_parameters
from assay.metrics.core.row_verdict import row_verdict
from assay.metrics.core.score import Row
from assay.metrics.rows.row_scores import score_row
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.metric_call import MetricOutcome
from assay.model.run import MetricSpec, RowResult, Score, ScoreStatus

CASE = Case("c", (Turn("q"),))


def score_of(outcome: MetricOutcome | None, case: Case = CASE, **parameters: Any) -> Score:
    """Return the score of a row about which the function said something, or nothing."""
    complete = complete_parameters("python", {"function": "metrics:m", **parameters}, where="m")
    outcomes = {} if outcome is None else {"m": outcome}
    (score,) = score_row(
        [build_metric(MetricSpec("m", complete, "python"))], Row(case, AgentResponse(text="a"), outcomes=outcomes)
    )
    return score


@pytest.mark.parametrize(
    ("outcome", "parameters", "passed", "reason"),
    [
        (MetricOutcome(0.5), {}, None, ""),
        (MetricOutcome(0.5), {"threshold": 0.5}, True, ""),
        (MetricOutcome(0.5), {"threshold": 0.6}, False, ""),
        (MetricOutcome(0.5), {"threshold": 0.6, "higher_is_better": False}, True, ""),
        (MetricOutcome(0.7), {"threshold": 0.6, "higher_is_better": False}, False, ""),
        (MetricOutcome(1.0, is_boolean=True), {}, True, ""),
        (MetricOutcome(0.0, is_boolean=True), {}, False, "returned_false"),
        (MetricOutcome(1.0, is_boolean=True), {"higher_is_better": False}, False, "returned_true"),
        (MetricOutcome(0.0, is_boolean=True), {"higher_is_better": False}, True, ""),
        (MetricOutcome(1.0, is_boolean=True), {"threshold": 2}, False, ""),
        (MetricOutcome(0.0), {}, None, ""),
    ],
)
def test_the_verdict_of_a_row(
    outcome: MetricOutcome, parameters: dict[str, Any], passed: bool | None, reason: str
) -> None:
    """A threshold decides in the metric's direction; without one, true and false do, and a number does not."""
    score = score_of(outcome, **parameters)
    assert (score.value, score.passed, score.reason) == (outcome.value, passed, reason)


def test_the_threshold_of_a_case_is_in_the_direction_of_the_metric() -> None:
    """A case's threshold replaces the metric's and keeps its direction."""
    own = Case("c", (Turn("q"),), thresholds={"m": 0.8})
    assert score_of(MetricOutcome(0.7), own, threshold=0.5).passed is False
    assert score_of(MetricOutcome(0.7), own, threshold=0.5, higher_is_better=False).passed is True


def test_what_has_no_value() -> None:
    """None is skipped and an error leaves the row undecided, with or without a threshold."""
    none = score_of(MetricOutcome(reasoning="no reference"))
    assert (none.status, none.reason) == (ScoreStatus.SKIPPED, "not_applicable")
    assert none.detail["reasoning"] == "no reference"
    assert score_of(None).reason == "no_function_value"
    every: list[dict[str, Any]] = [{}, {"threshold": 1}]
    for parameters in every:
        failed = score_of(MetricOutcome(error="function_raised", message="m", traceback="t"), **parameters)
        assert (failed.status, failed.reason, failed.passed) == (ScoreStatus.ERROR, "function_raised", None)
        assert (failed.message, failed.detail["traceback"]) == ("m", "t")
        right = Score("exact_match", ScoreStatus.SCORED, 1.0, True)
        assert row_verdict(AgentResponse().status, [right, failed]) is None


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20), st.booleans())
def test_the_aggregate_is_the_mean_in_the_direction_of_the_metric(values: list[float], higher: bool) -> None:
    """Whatever a function returns, the run reaches its own mean as threshold, and misses one beyond it."""
    mean = sum(values) / len(values)
    for threshold, reached in ((mean, True), (mean + (1e3 if higher else -1e3), False)):
        given_ = {"function": "metrics:m", "threshold": threshold, "higher_is_better": higher}
        metric = build_metric(MetricSpec("m", complete_parameters("python", given_, where="m"), "python"))
        fold = metric.aggregate()
        for index, value in enumerate(values):
            score = metric.score(Row(CASE, AgentResponse(), outcomes={"m": MetricOutcome(value)}))
            row = RowResult("c", index, 1, "", AgentResponse().status, score.passed, (score,), None, "")
            fold.add(row, score)
        summary = fold.result()
        assert summary.value == pytest.approx(mean, abs=1e-3)
        if not reached:
            assert summary.meets_threshold is False
