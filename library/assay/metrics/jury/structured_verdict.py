"""Validation of a judge's structured verdicts.

    {"reasoning": text, "accuracy": x, "completeness": x, "relevance": x, "overall_score": x}, each x in [0, 1]

Providers do not enforce ranges, so everything is checked here: a score is a finite JSON number in range; true, "0.9"
and 85 are invalid. A missing overall score becomes the mean of the three parts, marked as derived. An overall score
more than 0.05 outside the range of the parts is kept and marked as incoherent. Further keys, such as a pass flag, are
ignored. With a rubric of the user's own, its criteria replace the three parts; they are scaled to [0, 1]. A reply in
words counts if it contains exactly one valid object and no broken one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.statistics.exact_sum import exact_mean
from assay.statistics.thresholds import meets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import JudgeEvidence

PARTS = ("accuracy", "completeness", "relevance")
_SLACK = 0.05
_MAX_REPLY_CHARS = 200_000
_DECODER = json.JSONDecoder()
_START = re.compile(r'\{\s*["}]')


@dataclass(frozen=True, slots=True)
class StructuredVerdict:
    """A valid verdict; all scores are in [0, 1].

    Args:
        parts: Accuracy, completeness and relevance, or the criteria of the user's own rubric, by name.
        overall: The judge's overall score, or the mean of the parts.
        derived: Whether the overall score is that mean.
        coherent: Whether it lies within 0.05 of the range of the parts.
        reasoning: The judge's reasons.
    """

    parts: Mapping[str, float]
    overall: float
    derived: bool
    coherent: bool
    reasoning: str


def read_structured(evidence: JudgeEvidence) -> StructuredVerdict | str:
    """Return a judge's verdict, or the stable word for its fault."""
    if evidence.error:
        return evidence.error
    if evidence.verdict is None:
        return verdict_in_text(evidence.text)
    return verdict_of(evidence.verdict, evidence.scale)


def verdict_of(data: Mapping[str, Any], scale: tuple[float, float] | None = None) -> StructuredVerdict | str:
    """Return the verdict in an object, or "invalid_FIELD".

    Args:
        data: The object.
        scale: Lowest and highest score, if the rubric is the user's own.
    """
    reasoning = data.get("reasoning")
    if not isinstance(reasoning, str):
        return "invalid_reasoning"
    names = PARTS if scale is None else [name for name in data if name not in ("reasoning", "overall_score")]
    parts = {name: _share(data.get(name), scale) for name in names}
    if wrong := next((name for name, part in parts.items() if part is None), ""):
        return f"invalid_{wrong}"
    known = {name: part for name, part in parts.items() if part is not None}
    given = data.get("overall_score")
    overall = _share(given, scale) if given is not None else exact_mean([*known.values()]) if known else None
    if overall is None:
        return "invalid_overall_score"
    shown = known.values() or [overall]
    coherent = meets(overall, min(shown) - _SLACK) and meets(max(shown) + _SLACK, overall)
    return StructuredVerdict(known, overall, derived=given is None, coherent=coherent, reasoning=reasoning)


def verdict_in_text(reply: str) -> StructuredVerdict | str:
    """Return the only valid verdict in a reply of words, or the stable word for its fault."""
    objects = objects_in(reply)
    valid = [verdict for data in objects or () if not isinstance(verdict := verdict_of(data), str)]
    if not valid:
        return "invalid_verdict"
    return valid[0] if len(valid) == 1 else "several_verdicts"


def objects_in(reply: str) -> list[dict[str, Any]] | None:
    """Return the outermost JSON objects in a judge's reply; None if one is broken or the reply is too long.

    The inside of a broken object is not read: it may be quoted from the judged answer.
    """
    if len(reply) > _MAX_REPLY_CHARS:
        return None
    objects = []
    start = _START.search(reply)
    while start is not None:
        try:
            value, end = _DECODER.raw_decode(reply, start.start())
        except (ValueError, RecursionError):
            return None
        objects.append(value)
        start = _START.search(reply, end)
    return objects


def _share(value: object, scale: tuple[float, float] | None) -> float | None:
    """Return a score in [0, 1]; None if it is no number on the scale."""
    low, high = scale or (0.0, 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        return None
    return float(value) if scale is None else (value - low) / (high - low)
