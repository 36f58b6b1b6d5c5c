"""The cosine of an answer with its best reference, which several metrics use."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.metrics.core.score import EmbeddingEvidence, has_reference, usable_references
from assay.text.equality import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

    from assay.metrics.core.embedding import EmbeddingSettings
    from assay.metrics.core.score import Row

WARNINGS = "warnings"
"""The field of a score's detail that lists its warnings."""
LANGUAGE_MISMATCH = "model_language_mismatch"
"""The warning that an English-only model compared a text of another script."""

_FOREIGN_SHARE = 0.30


@dataclass(frozen=True, slots=True)
class Similarity:
    """A cosine, or the reason for its absence.

    Args:
        value: In [-1, 1]; None if there is none.
        reason: "no_reference", "agent_error", "empty_output", or the failure; empty otherwise.
        skipped: Whether the row lacks an input, as opposed to a failure.
        detail: The source of the vectors, truncation and warnings.
    """

    value: float | None
    reason: str = ""
    skipped: bool = False
    detail: dict[str, Any] = field(default_factory=dict)


def cosine(first: ArrayLike, second: ArrayLike) -> float | None:
    """Return u·v / (‖u‖‖v‖) in float64, clamped to [-1, 1]; None for a zero vector or unequal lengths."""
    import numpy as np  # imported here: runs without embeddings start without it

    u, v = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if u.shape != v.shape or u.ndim != 1:
        return None
    norms = float(np.linalg.norm(u)) * float(np.linalg.norm(v))
    if norms == 0.0 or not np.isfinite(norms):
        return None
    return max(-1.0, min(1.0, float(u @ v) / norms))


def similarity(row: Row, embedding: EmbeddingSettings) -> Similarity:
    """Return the highest cosine of the answer with any of its references."""
    if not has_reference(row.case):
        return Similarity(None, "no_reference", skipped=True)
    if row.response.is_failed:
        return Similarity(None, "agent_error")
    if is_blank(row.response.text):
        # An embedding of "" is an arbitrary vector, so an empty answer is scored without one.
        return Similarity(0.0, "empty_output", detail={"model": embedding.model})
    evidence = row.embeddings.get(embedding) or EmbeddingEvidence(None, error="embedding_missing")
    if evidence.error:
        return Similarity(None, evidence.error, detail={"model": embedding.model})
    return _best(row, evidence)


def language_warnings(evidence: EmbeddingEvidence, texts: Iterable[str]) -> dict[str, list[str]]:
    """Return a warning if an English-only model embedded a text of another script."""
    if evidence.english_only and any(_foreign_share(text) > _FOREIGN_SHARE for text in texts):
        return {WARNINGS: [LANGUAGE_MISMATCH]}
    return {}


def _best(row: Row, evidence: EmbeddingEvidence) -> Similarity:
    references = usable_references(row.case)
    detail: dict[str, Any] = {
        **evidence.origin,
        "truncated": not evidence.truncated.isdisjoint((row.response.text, *references)),
        **language_warnings(evidence, references),
    }
    values = [evidence.cosines.get(text) for text in references]
    known = [value for value in values if value is not None]
    if not known:
        return Similarity(None, "invalid_vector", detail=detail)
    best = max(known)
    if len(values) > 1:
        detail["reference_index"] = row.case.references.index(references[values.index(best)])
    return Similarity(best, detail=detail)


def _foreign_share(text: str) -> float:
    letters = [char for char in text if char.isalpha()]
    if text.isascii() or not letters:
        return 0.0
    return sum("LATIN" not in unicodedata.name(char, "") for char in letters) / len(letters)
