"""Semantic similarity: the cosine of the embeddings of answer and reference.

    value = u·v / (‖u‖‖v‖), in float64, clamped to [-1, 1]; with several references the highest

A row passes when its value is at least the threshold. No reference: skipped. A blank answer: 0.0, failed,
without asking the embedder. An agent error: not scored, failed if the case has a reference. Slightly
negative values are kept. The aggregate is the mean of the scored rows. It measures topic, not truth:
"There are 42 open tenders." against "There are 57 open tenders." scores 0.92.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from assay.results import Score, ScoreStatus
from assay_orchestrator.metrics.fold import MeanFold
from assay_orchestrator.metrics.intervals import wilson
from assay_orchestrator.metrics.score import not_computed, scored
from assay_orchestrator.metrics.similarity import similarity
from assay_orchestrator.metrics.thresholds import meets

if TYPE_CHECKING:
    from assay.results import CaseResult
    from assay_orchestrator.metrics.score import Row

__all__ = ["SemanticSimilarity"]


class SemanticSimilarity:
    """Parameters: `model`, `threshold` (None: no verdict)."""

    name = "semantic_similarity"
    version = "1"

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.embedding_model: str | None = parameters["model"]
        self._threshold: float | None = parameters["threshold"]

    def score(self, row: Row) -> Score:
        """Return the row's similarity."""
        assert self.embedding_model is not None
        found = similarity(row, self.embedding_model)
        if found.skipped:
            return Score(self.name, ScoreStatus.SKIPPED, reason=found.reason)
        decides = self._threshold is not None
        detail = {"version": self.version, **found.detail}
        if found.value is None and found.reason == "agent_error":
            passed = False if decides else None
            return Score(self.name, ScoreStatus.ERROR, passed=passed, reason=found.reason, detail=detail)
        if found.value is None:
            return not_computed(self.name, found.reason, decides=decides, **detail)
        if self._threshold is None:
            return scored(self.name, found.value, reason=found.reason, detail=detail)
        passed = meets(found.value, self._threshold)
        detail["threshold"] = self._threshold
        return scored(self.name, found.value, passed=passed, reason=found.reason, detail=detail)

    def aggregate(self) -> _Fold:
        """Return an empty fold."""
        return _Fold(self.name, self._threshold)


class _Fold(MeanFold):
    def __init__(self, metric: str, threshold: float | None) -> None:
        super().__init__(metric, threshold)
        self._warnings: Counter[str] = Counter()
        self._models: set[tuple[str, str]] = set()
        self._truncated = 0

    def add(self, row: CaseResult, score: Score) -> None:
        super().add(row, score)
        self._warnings.update(score.detail.get("warnings", ()))
        self._truncated += score.detail.get("truncated") is True
        if score.detail.get("revision"):
            self._models.add((score.detail["model"], score.detail["revision"]))

    def detail(self, value: float | None) -> dict[str, Any]:
        decided = self.passed + self.failed
        return {
            "pass_rate": self.passed / decided if decided else None,
            "pass_rate_interval": wilson(self.passed, decided),
            "truncated": self._truncated,
            "warnings": dict(sorted(self._warnings.items())),
            "models": [{"model": model, "revision": revision} for model, revision in sorted(self._models)],
        }
