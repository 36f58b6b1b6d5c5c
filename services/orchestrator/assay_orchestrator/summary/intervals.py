"""The 95 % intervals of a run's metrics: of their values, and of the rows that passed by them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from assay.model.interval import Interval
from assay.statistics.clustered_mean import ClusteredMean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.metrics.core.score import Metric
    from assay.model.run import MetricSummary, RowResult, Score


class MetricIntervals:
    """Computes the intervals of one metric.

    Args:
        metric: The metric.
    """

    __slots__ = ("_bounds", "_declined", "_passes", "_values")

    def __init__(self, metric: Metric) -> None:
        self._bounds = metric.info.bounds
        self._values, self._passes, self._declined = ClusteredMean(), ClusteredMean(), ClusteredMean()

    def add(self, score: Score, cluster: int | None) -> None:
        """Add the score of a row."""
        if score.value is not None:
            self._values.take(score.value, cluster)
        elif "declined" in score.detail:
            self._declined.take(float(score.detail["declined"]), cluster)
        if score.passed is not None:
            self._passes.take(float(score.passed), cluster)

    def of_value(self, value: float | None) -> Interval | None:
        """Return the interval of an aggregate; None if it is not a mean of the rows' values, such as a percentile."""
        if not self._is_mean(value):
            return None
        interval = self._values.interval()
        if interval is None:
            return None
        low, high = self._bounds
        return Interval(max(low, interval[0]), min(high, interval[1]))

    def of_passes(self) -> Interval | None:
        """Return the interval of the share of rows that passed by the metric; None if it decided none."""
        return Interval.of(self._passes.interval())

    def complete(self, summary: MetricSummary) -> MetricSummary:
        """Return the metric's summary with its intervals."""
        interval, passes = self.of_value(summary.value), self.of_passes()
        detail = dict(summary.detail)
        if "declined_rate" in detail:
            declined = Interval.of(self._declined.interval())
            detail["declined_interval"] = None if declined is None else declined._asdict()
        is_rate = self._values.is_rate and interval is not None
        worth = self._values.effective_count() if is_rate else None
        return replace(summary, interval=interval, effective_count=worth, pass_rate_interval=passes, detail=detail)

    def _is_mean(self, value: float | None) -> bool:
        mean = self._values.mean
        return value is not None and mean is not None and math.isclose(mean, value, rel_tol=1e-9, abs_tol=1e-12)


class RunIntervals:
    """Computes the intervals of a run: of its verdicts, agent errors and metrics.

    Args:
        metrics: The run's metrics, in report order.
    """

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self.metrics = {metric.name: MetricIntervals(metric) for metric in metrics}
        self.verdicts, self.errors = ClusteredMean(), ClusteredMean()

    def add(self, row: RowResult, cluster: int | None) -> None:
        """Add a row, with its cluster from `CaseClusters.of`."""
        for metric, score in zip(self.metrics.values(), row.scores, strict=True):
            metric.add(score, cluster)
        self.errors.take(float(row.status.is_failed), cluster)
        if row.passed is not None:
            self.verdicts.take(float(row.passed), cluster)

    def complete(self, summaries: Sequence[MetricSummary]) -> list[MetricSummary]:
        """Return the summaries of the metrics with their intervals."""
        return [
            intervals.complete(summary) for intervals, summary in zip(self.metrics.values(), summaries, strict=True)
        ]
