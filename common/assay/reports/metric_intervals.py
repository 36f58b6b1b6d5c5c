"""The 95 % intervals of the metrics of a run, from its rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay.metrics import METRICS
from assay.statistics.intervals import MeanInterval, wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.run import CaseResult, MetricSummary, RunSettings


class MetricIntervals:
    """Gathers the values of every metric of a run while its rows pass.

    A rate, which is a mean of zeros and ones, has Wilson's interval; a mean has the t interval, over cases where each
    was run several times. An aggregate that is no mean of the rows' values, such as a percentile, has none.

    Args:
        settings: The run's settings.
    """

    def __init__(self, settings: RunSettings) -> None:
        self._repeats = settings.repeats
        self._kinds = {metric.name: metric.kind for metric in settings.metrics}
        self._means = {name: MeanInterval() for name in self._kinds}
        self._counts = dict.fromkeys(self._kinds, 0)
        self._ones: dict[str, int | None] = dict.fromkeys(self._kinds, 0)

    def take(self, row: CaseResult) -> None:
        """Take the next row; rows come in dataset order."""
        for score in row.scores:
            if score.value is None or score.metric not in self._means:
                continue
            self._means[score.metric].take(score.value, row.case_index)
            self._counts[score.metric] += 1
            ones = self._ones[score.metric]
            self._ones[score.metric] = None if ones is None or score.value not in (0, 1) else ones + int(score.value)

    def result(self, metrics: Sequence[MetricSummary]) -> dict[str, tuple[float, float] | None]:
        """Return the interval of each metric's value; None where it has none."""
        return {metric.metric: self._interval(metric) for metric in metrics}

    def _interval(self, metric: MetricSummary) -> tuple[float, float] | None:
        found = self._means.get(metric.metric)
        if found is None or metric.value is None or found.mean is None:
            return None
        if not math.isclose(found.mean, metric.value, rel_tol=1e-9, abs_tol=1e-12):
            return None
        ones = self._ones[metric.metric]
        if ones is not None and self._repeats == 1:
            return wilson(ones, self._counts[metric.metric])
        interval = found.result()
        if interval is None:
            return None
        low, high = METRICS[self._kinds[metric.metric]].info.bounds
        return max(low, interval[0]), min(high, interval[1])
