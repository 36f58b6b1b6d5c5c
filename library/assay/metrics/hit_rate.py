"""Hit rate: the share of questions for which an expected source was retrieved.

    hit = 1 when any retrieved source equals any expected one, else 0

A source equals an expected one when its title, its address or its id does: as texts without regard to case,
underscores and spacing; the last part of an address against a title; two addresses by host, path and query.
Nothing similar counts. With `k`, only the first k sources do. A case without expected sources is skipped;
nothing retrieved is 0, and so is an agent error that brought none. A row passes with 1. The aggregate is the
mean; threshold and goal apply to it, as "more than".
"""

from __future__ import annotations

from typing import Any

from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.source_rank import SourceRank
from assay.metrics.core.threshold_metric import MeanFold

INFO = MetricInfo(
    "hit_rate",
    "Hit rate",
    "Share of questions for which an expected source was retrieved.",
    (
        Parameter("k", "integer", None, "How many sources count, from the top; none for all.", 1),
        Parameter("threshold", "number", 0.80, "The run's rate must be more than this.", 0.0, 1.0),
        Parameter("goal", "number", 0.90, "The run's rate should be more than this.", 0.0, 1.0),
    ),
    reads=("sources", "expected_sources"),
    decides="always",
    needs="expected_sources",
    values="0 or 1",
    rule="more_than",
    unit="%",
    stats=("hits", "total"),
)


class _Fold(MeanFold):
    def detail(self, value: float | None) -> dict[str, Any]:
        return {
            "avg_hit_rate": value,
            "hits": self.passed,
            "total": self.values.count,
        }


class HitRate(SourceRank):
    """Parameters: `k`, `threshold` and `goal` (on the rate)."""

    info = INFO
    fold_class = _Fold

    def value_at(self, position: int) -> float:
        """Return 1 at any position."""
        return 1.0
