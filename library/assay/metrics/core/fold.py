"""The counts that every metric's summary carries, and the mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.model.run import MetricSummary, Score, ScoreStatus
from assay.statistics.exact_sum import ExactSum
from assay.statistics.intervals import wilson
from assay.statistics.thresholds import holds

if TYPE_CHECKING:
    from assay.model.run import CaseResult

_AGENT_ERROR = "agent_error"
_INVALID_ANSWER = frozenset(
    ("invalid_cost", "invalid_latency", "invalid_cost_usd", "invalid_latency_ms", "invalid_latency_s")
)
"""Reasons of errors that lie in what the agent reports."""


class MeanFold:
    """Counts rows by status and verdict and averages the values.

    Args:
        metric: The metric's name.
        threshold: What the aggregate must reach; None where there is none.
        target: What it should reach beyond that; None where there is none.
        rule: How they compare: "at_least", "more_than" or "at_most".
    """

    def __init__(
        self, metric: str, threshold: float | None, *, target: float | None = None, rule: str = "at_least"
    ) -> None:
        self.metric = metric
        self.threshold = threshold
        self.target = target
        self.rule = rule
        self.values = ExactSum()
        self.n_skipped = self.n_error = self.n_own_error = self.n_invalid = 0
        self.passed = self.failed = 0
        self._has_turns = False

    def add(self, row: CaseResult, score: Score) -> None:
        """Take one more row."""
        if score.status is ScoreStatus.SCORED and score.value is not None:
            self.values.add(score.value)
            self._has_turns = self._has_turns or "turns" in score.detail
        elif score.status is ScoreStatus.SKIPPED:
            self.n_skipped += 1
        else:
            self.n_error += 1
            self.n_own_error += score.reason != _AGENT_ERROR
            self.n_invalid += score.reason in _INVALID_ANSWER
        self.passed += score.passed is True
        self.failed += score.passed is False

    def reaches(self, value: float | None, bound: float | None) -> bool | None:
        """Return whether the aggregate reaches a bound; None where either is missing."""
        return None if value is None or bound is None else holds(value, self.rule, bound)

    def interval(self) -> tuple[float, float] | None:
        """Return the 95 % interval of a value that is the share of rows that pass; None where it is none.

        Rows that are conversations may have values between 0 and 1.
        """
        return None if self._has_turns else wilson(self.passed, self.values.count)

    def detail(self, value: float | None) -> dict[str, Any]:
        """Return further aggregates; none unless overridden."""
        return {}

    def result(self) -> MetricSummary:
        """Return the summary of the rows so far."""
        value = self.values.mean
        return MetricSummary(
            metric=self.metric,
            value=value,
            n_scored=self.values.count,
            n_skipped=self.n_skipped,
            n_error=self.n_error,
            n_own_error=self.n_own_error,
            passed=self.passed,
            failed=self.failed,
            threshold=self.threshold,
            meets_threshold=self.reaches(value, self.threshold),
            target=self.target,
            meets_target=self.reaches(value, self.target),
            rule=self.rule,
            detail={**self.detail(value), **({"invalid_answers": self.n_invalid} if self.n_invalid else {})},
        )
