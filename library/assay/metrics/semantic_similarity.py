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
from assay.metrics.core.embedding import EMBEDDING
from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.similarity import similarity
from assay.metrics.core.threshold_metric import ThresholdMetric
from assay.model.run import Score

if TYPE_CHECKING:
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


class _Fold(EmbedderFold):
    def detail(self, value: float | None) -> dict[str, Any]:
        return {"pass_rate": self.pass_rate, **super().detail(value)}


class SemanticSimilarity(ThresholdMetric):
    """Parameters: `model`, `dimension`, `windowed`, `threshold` (None: no verdict)."""

    info = INFO
    fold_class = _Fold

    def score(self, row: Row) -> Score:
        """Return the row's similarity."""
        assert self.embedding is not None
        compared = similarity(row, self.embedding)
        if compared.skipped:
            return self._skipped(compared.reason)
        detail = {"version": self.version, **compared.detail}
        if compared.value is None and compared.reason == "agent_error":
            return self._agent_error(detail)
        if compared.value is None:
            return self._not_computed(compared.reason, detail)
        return self._scored_by_threshold(compared.value, detail, reason=compared.reason)
