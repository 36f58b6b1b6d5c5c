"""Mean reciprocal rank: the rank of the first expected source.

    value = 1 / position of the first retrieved source that equals an expected one, counted from 1; else 0

Sources are equal as for the hit rate. Positions count the list as given, duplicates included; with `k`, only
its first k places. A case without expected sources is skipped; nothing retrieved is 0, and so is an agent
error that brought none. Rows get no verdict. The aggregate is the mean; threshold and goal apply to it, as
"more than".
"""

from __future__ import annotations

from typing import Any

from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.source_rank import SourceRank
from assay.metrics.core.threshold_metric import MeanFold

INFO = MetricInfo(
    "mrr",
    "Mean reciprocal rank",
    "How high the first expected source is ranked.",
    (
        Parameter("k", "integer", None, "How many sources count, from the top; none for all.", 1),
        Parameter("threshold", "number", 0.70, "The run's mean must be more than this.", 0.0, 1.0),
        Parameter("goal", "number", 0.85, "The run's mean should be more than this.", 0.0, 1.0),
    ),
    reads=("sources", "expected_sources"),
    decides="never",
    needs="expected_sources",
    values="0 to 1",
    rule="more_than",
)


class _Fold(MeanFold):
    def detail(self, value: float | None) -> dict[str, Any]:
        return {"avg_mrr": value}


class MeanReciprocalRank(SourceRank):
    """Parameters: `k`, `threshold` and `goal` (on the mean)."""

    info = INFO
    fold_class = _Fold

    def value_at(self, position: int) -> float:
        """Return the reciprocal rank."""
        return 1 / position
