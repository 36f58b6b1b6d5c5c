"""The embedding models behind a metric's summary, with counts of truncated texts and of warnings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from assay.metrics.core.similarity import WARNINGS
from assay.metrics.core.threshold_metric import MeanFold
from assay.metrics.core.turn_scores import turn_details

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.metrics.core.threshold_metric import ThresholdMetric
    from assay.model.run import RowResult, Score

_ORIGIN: Mapping[str, Any] = {
    "model": "",
    "revision": "",
    "precision": "",
    "engine": "",
    "dimension": 0,
    "windowed": False,
}
"""The fields of a score's detail that name the source of its vectors, with the value of an absent field."""


class EmbedderRecord:
    """Counts rows with truncated texts and with warnings, and lists the models that scored them."""

    def __init__(self) -> None:
        self._warnings: Counter[str] = Counter()
        self._origins: set[tuple[Any, ...]] = set()
        self._truncated = 0

    def add(self, score: Score) -> None:
        """Add the score of a row."""
        self.add_details([detail for _, detail in turn_details(score.detail)])

    def add_details(self, details: Sequence[Mapping[str, Any]]) -> None:
        """Add a row whose score used embeddings in each of these details."""
        self._warnings.update({warning for detail in details for warning in detail.get(WARNINGS, ())})
        self._truncated += any(detail.get("truncated") is True for detail in details)
        self._origins |= {
            tuple(detail.get(name, absent) for name, absent in _ORIGIN.items())
            for detail in details
            if detail.get("revision")
        }

    @property
    def has_rows(self) -> bool:
        """Whether any row used embeddings."""
        return bool(self._origins)

    @property
    def detail(self) -> dict[str, Any]:
        """The number of rows with a truncated text, the number by warning, and the models by name."""
        return {
            "truncated": self._truncated,
            "warnings": dict(sorted(self._warnings.items())),
            "models": [
                {name: it for name, it in zip(_ORIGIN, origin, strict=True) if it or name in ("model", "revision")}
                for origin in sorted(self._origins)
            ],
        }


class EmbedderFold(MeanFold):
    """A mean over rows that used embeddings."""

    def __init__(self, metric: ThresholdMetric) -> None:
        super().__init__(metric)
        self._record = EmbedderRecord()

    def add(self, row: RowResult, score: Score) -> None:
        """Add a row."""
        super().add(row, score)
        self._record.add(score)

    def detail(self, value: float | None) -> dict[str, Any]:
        """Return the embedding models and the counts."""
        return self._record.detail
