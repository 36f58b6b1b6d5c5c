"""Ratings of a judge by case for other tools: one per case, in dataset order, null without a rating."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.run import CaseResult, MetricSettings


class QualityScores:
    """Gathers the ratings of a run's quality metrics while its rows pass.

    With several runs of a case its entry is the mean of the ratings that there are.

    Args:
        metrics: The run's metrics.
    """

    def __init__(self, metrics: Sequence[MetricSettings]) -> None:
        self._found: dict[str, list[float | None]] = {metric.name: [] for metric in metrics if metric.kind == "quality"}
        self._case: int | None = None
        self._open: dict[str, list[float]] = {}

    def take(self, row: CaseResult) -> None:
        """Take the next row; rows come in dataset order."""
        if row.case_index != self._case:
            self._close()
            self._case = row.case_index
        for score in row.scores:
            if score.metric in self._found and score.value is not None:
                self._open.setdefault(score.metric, []).append(score.value)

    def _close(self) -> None:
        if self._case is None:
            return
        for name, ratings in self._found.items():
            seen = self._open.get(name)
            ratings.append(math.fsum(seen) / len(seen) if seen else None)
        self._open = {}

    def result(self) -> dict[str, dict[str, Any]]:
        """Return `quality_scores` by metric, when all rows were taken."""
        self._close()
        self._case = None
        return {name: {"quality_scores": ratings} for name, ratings in self._found.items()}
