"""Checks by embeddings: the similarity of an answer to given texts. Types and defaults are promptfoo's.

    similar, similar:cosine   u·v / (‖u‖‖v‖) of answer and text, at least `threshold` (0.75)
    similar:dot               u·v, at least `threshold`
    similar:euclidean         ‖u − v‖, at most `threshold`; its score is 1 / (1 + ‖u − v‖)

The most similar text counts. Scores are clamped to [0, 1]. A blank answer scores 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay.metrics.checks.answer_checks import Outcome
from assay.metrics.core.explanations import listed, quoted
from assay.metrics.core.similarity import language_warnings
from assay.statistics.thresholds import exceeds, meets
from assay.text.equality import is_blank

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import EmbeddingEvidence
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Assertion

SIMILAR_CHECKS: Mapping[str, str] = {
    "similar": "the cosine of the embeddings of the answer and one of these texts is at least `threshold` (0.75)",
    "similar:cosine": "the same",
    "similar:dot": "the dot product is at least `threshold` (0.75)",
    "similar:euclidean": "the distance is at most `threshold` (0.75)",
}
"""The checks that compare vectors, with their summaries."""

_BY_COSINE = frozenset({"similar", "similar:cosine"})
_DEFAULT_THRESHOLD = 0.75
_MAX_TEXTS = 100


def similar_texts(check: Assertion) -> tuple[str, ...]:
    """Return the texts that the answer is compared with; empty if the value has none."""
    values = check.value if isinstance(check.value, list) else [check.value]
    texts = tuple(str(value) for value in values if isinstance(value, str | int | float) and not is_blank(str(value)))
    return texts if len(texts) == len(values) else ()


def is_by_cosine(check: Assertion) -> bool:
    """Return whether a check by embeddings compares cosines instead of vectors."""
    return check.type in _BY_COSINE


def similar_problem(check: Assertion) -> str:
    """Return the problem of such a check's value, as the end of a sentence, or the empty string."""
    texts = similar_texts(check)
    if not texts:
        return "needs a string as its value, or a list of strings"
    return f"has {len(texts):,} texts, more than {_MAX_TEXTS}" if len(texts) > _MAX_TEXTS else ""


def similar_outcome(check: Assertion, response: AgentResponse, evidence: EmbeddingEvidence | None) -> Outcome:
    """Return the outcome of a check by embeddings.

    Args:
        check: Of a type in SIMILAR_CHECKS.
        response: The answer.
        evidence: The answer's cosines with the check's texts, or its vector and theirs in `others`; None if there are
            none.
    """
    if is_blank(response.text):
        return Outcome(
            False, 0.0, f"the answer is empty, expected one similar to {listed(map(quoted, similar_texts(check)))}"
        )
    if evidence is None or evidence.skipped:
        return Outcome(None, None, "no embedder")
    if evidence.error:
        return Outcome(None, None, evidence.error, is_error=True)
    texts = similar_texts(check)
    scores = [_score(check.type, evidence, text) for text in texts]
    known = [score for score in scores if score is not None]
    if not known or len(known) != len(scores):
        return Outcome(None, None, "invalid_vector", is_error=True)
    threshold = _DEFAULT_THRESHOLD if check.threshold is None else check.threshold
    if check.type == "similar:euclidean":
        nearest = min(known)
        holds, score = not exceeds(nearest, threshold), 1 / (1 + nearest)
        complaint = f"distance {nearest:.3g}, expected at most {threshold:g}"
    else:
        nearest = max(known)
        holds, score = meets(nearest, threshold), min(1.0, max(0.0, nearest))
        complaint = f"similarity {nearest:.3g}, expected at least {threshold:g}"
    complaint += f": the answer {quoted(response.text)} beside {listed(map(quoted, texts))}"
    detail = {
        **evidence.origin,
        "nearest": nearest,
        "truncated": not evidence.truncated.isdisjoint((response.text, *texts)),
        **language_warnings(evidence, texts),
    }
    return Outcome(holds, score, "" if holds else complaint, detail=detail)


def _score(kind: str, evidence: EmbeddingEvidence, text: str) -> float | None:
    """Return a cosine, a dot product or a distance; None for vectors without one."""
    if kind in _BY_COSINE:
        return evidence.cosines.get(text)
    other = evidence.others.get(text)
    if evidence.answer is None or other is None:
        return None
    import numpy as np  # imported here: runs without embeddings start without it

    u, v = np.asarray(evidence.answer, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if u.shape != v.shape or u.ndim != 1:
        return None
    measure = float(np.linalg.norm(u - v)) if kind == "similar:euclidean" else float(u @ v)
    return measure if math.isfinite(measure) else None
