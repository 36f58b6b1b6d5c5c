"""Semantic similarity: the cosine of the embeddings of answer and reference.

    value = u·v / (‖u‖‖v‖), in float64, clamped to [-1, 1]; with several references the highest

A row passes when its value is at least the threshold. No reference: skipped. A blank answer: 0.0, failed,
without asking the embedder. An agent error: not scored, failed if the case has a reference. Slightly
negative values are kept. The aggregate is the mean of the scored rows. It measures topic, not truth:
"There are 42 open tenders." against "There are 57 open tenders." scores 0.92.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics.core.embedder_record import EmbedderFold
from assay.metrics.core.embedding import EMBEDDING, EmbeddingSettings
from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.score import not_computed, scored_by_threshold
from assay.metrics.core.similarity import similarity
from assay.model.run import Score, ScoreStatus
from assay.statistics.intervals import wilson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import Row

INFO = MetricInfo(
    "semantic_similarity",
    "Semantic similarity",
    "Cosine of the embeddings of answer and reference; measures topic, not truth.",
    (
        *EMBEDDING,
        Parameter(
            "threshold", "number", 0.75, "Least cosine with which a row passes; belongs to the model.", -1.0, 1.0
        ),
    ),
    reads=("answer", "references", "embeddings"),
    needs="references",
    values="-1 to 1",
    stats=("truncated",),
)


class SemanticSimilarity:
    """Parameters: `model`, `dimension`, `windowed`, `threshold` (None: no verdict)."""

    info = INFO
    version = "1"

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        self.name = name
        self.embedding: EmbeddingSettings | None = EmbeddingSettings.of(parameters)
        self._threshold: float | None = parameters["threshold"]

    def score(self, row: Row) -> Score:
        """Return the row's similarity."""
        assert self.embedding is not None
        found = similarity(row, self.embedding)
        if found.skipped:
            return Score(self.name, ScoreStatus.SKIPPED, reason=found.reason)
        decides = self._threshold is not None
        detail = {"version": self.version, **found.detail}
        if found.value is None and found.reason == "agent_error":
            passed = False if decides else None
            return Score(self.name, ScoreStatus.ERROR, passed=passed, reason=found.reason, detail=detail)
        if found.value is None:
            return not_computed(self.name, found.reason, decides=decides, **detail)
        return scored_by_threshold(self, found.value, self._threshold, reason=found.reason, detail=detail)

    def aggregate(self) -> _Fold:
        """Return an empty fold."""
        return _Fold(self.name, self._threshold)


class _Fold(EmbedderFold):
    def detail(self, value: float | None) -> dict[str, Any]:
        decided = self.passed + self.failed
        return {
            "pass_rate": self.passed / decided if decided else None,
            "pass_rate_interval": wilson(self.passed, decided),
            **super().detail(value),
        }
