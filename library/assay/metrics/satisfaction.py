"""Satisfaction: similarity, findings and speed in one number.

    S = 0.5·similarity + 0.3·has_events + 0.2·max(0, 1 - latency_ms/5000), clamped to [0, 1]

has_events is 1 when the agent retrieved at least one item; the fallback phrase plays no part. Of a case of the
category `out_of_scope` there is nothing to find: has_events is 1 there when the question was declined (the status is
out_of_scope, or the folded answer holds a decline phrase), so that an honest answer earns what an invented one loses.
Missing similarity or latency: skipped. Negative, NaN or infinite latency: error. Agent error: 0.0, because a fast
crash must not earn the latency part. The aggregate is the mean.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from assay.metrics.core.declining import DECLINE_PHRASES, Declining
from assay.metrics.core.embedder_record import EmbedderFold
from assay.metrics.core.embedding import EMBEDDING
from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.similarity import similarity
from assay.metrics.core.threshold_metric import ThresholdMetric
from assay.metrics.retrieval_accuracy import is_out_of_scope
from assay.model.run import Score

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import Row

INFO = MetricInfo(
    "satisfaction",
    "Satisfaction",
    "Similarity (0.5), findings (0.3) and speed (0.2) in one number.",
    (
        *EMBEDDING,
        DECLINE_PHRASES,
        Parameter("threshold", "number", None, "Least score with which a row passes.", 0.0, 1.0),
    ),
    reads=("answer", "references", "embeddings", "retrieved", "latency", "status", "category"),
    needs="references",
    values="0 to 1",
)

_SLOWEST_MS = 5000.0


def satisfaction(cosine: float, has_events: bool, latency_ms: float) -> float:
    """Return the satisfaction score of a similarity in [-1, 1] and a latency in milliseconds."""
    speed = max(0.0, 1.0 - latency_ms / _SLOWEST_MS)
    return max(0.0, min(1.0, 0.5 * cosine + 0.3 * has_events + 0.2 * speed))


class Satisfaction(ThresholdMetric):
    """Parameters: `model`, `dimension`, `windowed`, `decline_phrases`, `threshold` (on each row; None: no verdict)."""

    info = INFO
    fold_class = EmbedderFold
    version = "2"

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        self._declining = Declining(parameters["decline_phrases"])

    def work(self, row: Row) -> int:
        """Return an upper bound of the work of looking for phrases."""
        return self._declining.work(row.response) if is_out_of_scope(row.case) else 0

    def score(self, row: Row) -> Score:
        """Return the row's satisfaction."""
        assert self.embedding is not None
        if row.response.is_failed:
            return self._scored(0.0, "agent_error", {})
        compared = similarity(row, self.embedding)
        latency_ms = row.response.latency_ms
        if compared.skipped:
            return self._skipped(compared.reason)
        if compared.value is None:
            return self._failed(compared.reason, compared.detail)
        if latency_ms is None:
            return self._skipped("no_latency")
        if not math.isfinite(latency_ms) or latency_ms < 0:
            return self._failed("invalid_latency", compared.detail)
        has_events = bool(row.response.retrieved)
        if is_out_of_scope(row.case):
            has_events = self._declining.is_declined(row.response)
        parts = {"similarity": compared.value, "has_events": has_events, "latency_ms": latency_ms}
        return self._scored(satisfaction(compared.value, has_events, latency_ms), "", {**compared.detail, **parts})

    def _scored(self, value: float, reason: str, detail: dict[str, Any]) -> Score:
        detail = {"version": self.version, **detail}
        return self._scored_by_threshold(value, detail, reason=reason)

    def _failed(self, reason: str, detail: dict[str, Any]) -> Score:
        return self._not_computed(reason, {"version": self.version, **detail})
