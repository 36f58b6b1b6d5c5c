"""The base of every metric: its constructor, its folds, and the scores that depend on the threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics.core.embedding import EmbeddingSettings
from assay.metrics.core.score import not_computed, scored, scored_by_threshold
from assay.model.run import MetricSummary, Score, ScoreStatus, ThresholdRule
from assay.statistics.exact_sum import ExactSum
from assay.statistics.thresholds import holds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.info import MetricInfo
    from assay.metrics.core.score import Row
    from assay.model.judgement import Judgement
    from assay.model.run import RowResult

_AGENT_ERROR = "agent_error"
_INVALID_ANSWER = frozenset(
    ("invalid_cost", "invalid_latency", "invalid_cost_usd", "invalid_latency_ms", "invalid_latency_s")
)
"""Reasons of errors in what the agent reports."""


class MeanFold:
    """Counts rows by status and verdict and averages the values.

    Args:
        metric: The metric whose scores it folds; the aggregate is compared with its threshold and its goal.
    """

    def __init__(self, metric: ThresholdMetric) -> None:
        self.metric = metric.name
        self.threshold = metric.threshold
        self.goal = metric.goal
        self.rule = ThresholdRule(metric.info.rule)
        self.values = ExactSum()
        self.n_skipped = self.n_error = self.n_own_error = self.n_invalid = 0
        self.passed = self.failed = 0

    def add(self, row: RowResult, score: Score) -> None:
        """Add a row."""
        if score.status is ScoreStatus.SCORED and score.value is not None:
            self.values.add(score.value)
        elif score.status is ScoreStatus.SKIPPED:
            self.n_skipped += 1
        else:
            self.n_error += 1
            self.n_own_error += score.reason != _AGENT_ERROR
            self.n_invalid += score.reason in _INVALID_ANSWER
        self.passed += score.passed is True
        self.failed += score.passed is False

    @property
    def pass_rate(self) -> float | None:
        """The share of rows with a verdict that passed; None without such rows."""
        decided = self.passed + self.failed
        return self.passed / decided if decided else None

    def reaches(self, value: float | None, bound: float | None) -> bool | None:
        """Return whether the aggregate reaches a bound; None if either is missing."""
        return None if value is None or bound is None else holds(value, self.rule, bound)

    def detail(self, value: float | None) -> dict[str, Any]:
        """Return further aggregates; none unless overridden."""
        return {}

    def result(self) -> MetricSummary:
        """Return the summary of the rows so far."""
        value = self.values.mean
        return MetricSummary(
            metric=self.metric,
            value=value,
            scored_count=self.values.count,
            skipped_count=self.n_skipped,
            error_count=self.n_error,
            own_error_count=self.n_own_error,
            passed_count=self.passed,
            failed_count=self.failed,
            threshold=self.threshold,
            meets_threshold=self.reaches(value, self.threshold),
            goal=self.goal,
            meets_goal=self.reaches(value, self.goal),
            rule=self.rule,
            detail={**self.detail(value), **({"invalid_answers": self.n_invalid} if self.n_invalid else {})},
        )


class ShareFold(MeanFold):
    """The share of rows that pass a check."""

    def detail(self, value: float | None) -> dict[str, Any]:
        """Return the number of rows with a value."""
        return {"total": self.values.count}


class RightFold(MeanFold):
    """The share of rows that are right."""

    def detail(self, value: float | None) -> dict[str, Any]:
        """Return the number of right rows and the total."""
        return {"right": self.passed, "total": self.values.count}


class ThresholdMetric:
    """A metric whose aggregate, and often each row, is compared with a threshold.

    A kind of metric sets `info` and adds `score`; `Metric` lists its optional members. A kind with parameters of its
    own reads them in a constructor that calls this one.

    Args:
        name: The metric's name in this run.
        parameters: Complete, as `complete_parameters` returns them.
    """

    info: MetricInfo
    """The description of the metric."""
    version = "1"
    """Changes when the same row may get another score."""
    fold_class: type[MeanFold] = MeanFold
    """The fold of the rows' scores; it is built from the metric."""

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        self.name = name
        self.threshold: float | None = parameters["threshold"]
        self.goal: float | None = parameters.get("goal")
        self.embedding = EmbeddingSettings.of(parameters) if self.info.needs_embedder else None

    @property
    def decides(self) -> bool:
        """Whether the metric gives rows a verdict."""
        return self.info.decides == "always" or (self.info.decides == "threshold" and self.threshold is not None)

    def score(self, row: Row) -> Score:
        """Return the row's score; implemented by each kind of metric."""
        raise NotImplementedError

    def aggregate(self) -> MeanFold:
        """Return an empty fold."""
        return self.fold_class(self)

    def _skipped(self, reason: str, **fields: Any) -> Score:
        return Score(self.name, ScoreStatus.SKIPPED, reason=reason, **fields)

    def _checked(self, holds: bool, reason: str, detail: Mapping[str, Any]) -> Score:
        """Return the score of a row that passes if a check holds; a failed row carries the reason."""
        return scored(self.name, float(holds), passed=holds, reason="" if holds else reason, detail=detail)

    def _scored_by_threshold(
        self, value: float, detail: Mapping[str, Any], *, reason: str = "", judgements: tuple[Judgement, ...] = ()
    ) -> Score:
        return scored_by_threshold(self, value, self.threshold, reason=reason, detail=detail, judgements=judgements)

    def _not_computed(
        self, reason: str, detail: Mapping[str, Any], *, message: str = "", judgements: tuple[Judgement, ...] = ()
    ) -> Score:
        return not_computed(
            self.name, reason, decides=self.decides, detail=detail, message=message, judgements=judgements
        )

    def _agent_error(self, detail: Mapping[str, Any]) -> Score:
        """Return the score of an agent error, which has no value and fails if the metric gives verdicts."""
        passed = False if self.decides else None
        return Score(self.name, ScoreStatus.ERROR, passed=passed, reason=_AGENT_ERROR, detail=detail)
