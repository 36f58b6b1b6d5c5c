"""Latency: how long the agent took, in seconds, and its tier.

    below 2 Excellent 1.0 · 2 to 5 Good 0.8 · above 5 to 10 Acceptable 0.5 · above 10 Poor 0.2

value = the wall time of the successful attempt, from a monotonic clock. An agent error has no latency, whatever
was measured: a call that fails at once is not fast. Time-outs are counted beside the figures. Negative, NaN or
infinite: error; missing: skipped. With `exclude_cold` a row with a cold call (of a conversation in any of its turns) is
skipped with `cold_call`: the first call may hold imports and connections. A threshold is the longest time a row may
take and the mean may have.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.metrics.core.info import SHARE, MetricInfo, Parameter
from assay.metrics.core.row_verdict import timed_out
from assay.metrics.core.threshold_metric import MeanFold, ThresholdMetric
from assay.model.run import Score, ScoreStatus
from assay.statistics.exact_sum import ExactSum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.metrics.core.score import Row
    from assay.model.run import RowResult

INFO = MetricInfo(
    "latency",
    "Latency",
    "Wall time of the agent in seconds, and its tier.",
    (
        Parameter("threshold", "number", None, "Longest time in seconds with which a row passes.", 0.0, 3600.0),
        Parameter("exclude_cold", "boolean", False, "Whether rows with the agent's first, cold call are left out."),
    ),
    reads=("latency",),
    values="from 0, in seconds",
    rule="at_most",
    unit="s",
    stats=("mean", "p50", "p95", "max", "mean_score"),
    score_stats={"mean_score": SHARE},
)

RANGES = {"Excellent": "below 2 s", "Good": "of 2 to 5 s", "Acceptable": "of 5 to 10 s", "Poor": "above 10 s"}
"""The meaning of each tier in words."""
RATINGS = {"Excellent": 1.0, "Good": 0.8, "Acceptable": 0.5, "Poor": 0.2}


def rating(latency_s: float) -> str:
    """Return the tier of a latency in seconds, at least 0."""
    if latency_s < 2:
        return "Excellent"
    if latency_s <= 5:
        return "Good"
    return "Acceptable" if latency_s <= 10 else "Poor"


class Times(NamedTuple):
    """Number, mean, median, 95th percentile and maximum of times; None without times."""

    time_count: int = 0
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    max: float | None = None


class TimesFold:
    """Folds times of one unit.

    It keeps 8 bytes per row: percentiles by linear interpolation need every value.
    """

    def __init__(self) -> None:
        self._values = array("d")
        self._sum = ExactSum()

    def add(self, time: float) -> None:
        """Add a time."""
        self._values.append(time)
        self._sum.add(time)

    def result(self) -> Times:
        """Return the figures of the times so far."""
        if not self._values:
            return Times()
        ordered = sorted(self._values)
        return Times(len(ordered), self._sum.mean, _percentile(ordered, 0.50), _percentile(ordered, 0.95), ordered[-1])


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile by linear interpolation between closest ranks."""
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


class _Fold(MeanFold):
    def __init__(self, metric: ThresholdMetric) -> None:
        super().__init__(metric)
        self._latencies = TimesFold()
        self._ratings: Counter[str] = Counter()
        self._timeouts = 0

    def add(self, row: RowResult, score: Score) -> None:
        self._timeouts += timed_out(row)
        super().add(row, score)
        if score.value is not None:
            self._latencies.add(score.value)
            self._ratings[rating(score.value)] += 1

    def detail(self, value: float | None) -> dict[str, Any]:
        times = self._latencies.result()
        scores = math.fsum(RATINGS[tier] * count for tier, count in sorted(self._ratings.items()))
        return {
            "mean_s": times.mean,
            "p50_s": times.p50,
            "p95_s": times.p95,
            "max_s": times.max,
            "timeouts": self._timeouts,
            "mean_score": scores / self.values.count if self.values.count else None,
            "ratings": {tier: self._ratings[tier] for tier in RATINGS},
        }


class Latency(ThresholdMetric):
    """Parameters: `threshold` in seconds (None: no verdict), `exclude_cold`."""

    info = INFO
    fold_class = _Fold
    version = "2"

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        self._excludes_cold: bool = parameters["exclude_cold"]

    def score(self, row: Row) -> Score:
        """Return the row's latency in seconds."""
        if row.response.is_failed:
            detail = {"version": self.version, "advisory": True}
            return Score(self.name, ScoreStatus.ERROR, reason="agent_error", detail=detail)
        if self._excludes_cold and row.response.cold:
            return self._skipped("cold_call")
        latency_ms = row.response.latency_ms
        if latency_ms is None:
            return self._skipped("no_latency")
        latency_s = latency_ms / 1000
        if not math.isfinite(latency_s) or latency_s < 0:
            return self._not_computed("invalid_latency", {"version": self.version})
        tier = rating(latency_s)
        return self._scored_by_threshold(latency_s, {"version": self.version, "rating": tier, "score": RATINGS[tier]})
