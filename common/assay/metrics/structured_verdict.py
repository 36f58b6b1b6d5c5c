"""Structured verdicts of a judge: what is valid, and what was meant.

    {"reasoning": text, "accuracy": x, "completeness": x, "relevance": x, "overall_score": x}, each x in [0, 1]

Providers do not enforce ranges, so everything is checked here: a number is a JSON number, finite, in range;
true, "0.9" and 85 are none. A missing overall score is the mean of the three and marked as derived. One that
lies more than 0.05 outside of the three is kept and marked as incoherent. Further keys are ignored, a pass
flag among them. A reply in words counts when it holds exactly one object that is valid, and none that is broken.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.metrics.thresholds import meets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.score import JudgeEvidence

__all__ = ["PARTS", "StructuredVerdict", "objects_in", "read_structured", "verdict_in_text", "verdict_of"]

PARTS = ("accuracy", "completeness", "relevance")
_SLACK = 0.05
_MAX_REPLY_CHARS = 200_000
_DECODER = json.JSONDecoder()
_START = re.compile(r'\{\s*["}]')


@dataclass(frozen=True, slots=True)
class StructuredVerdict:
    """A valid verdict; all scores are in [0, 1].

    Args:
        accuracy: Whether what is said is true.
        completeness: Whether nothing is missing.
        relevance: Whether it answers the question.
        overall: The judge's overall score, or the mean of the three.
        derived: Whether the overall score is that mean.
        coherent: Whether it lies within 0.05 of the range of the three.
        reasoning: Why.
    """

    accuracy: float
    completeness: float
    relevance: float
    overall: float
    derived: bool
    coherent: bool
    reasoning: str


def read_structured(evidence: JudgeEvidence) -> StructuredVerdict | str:
    """Return the verdict that a judge gave, or a stable word for what is wrong with it."""
    if evidence.error:
        return evidence.error
    return verdict_of(evidence.verdict) if evidence.verdict is not None else verdict_in_text(evidence.text)


def verdict_of(data: Mapping[str, Any]) -> StructuredVerdict | str:
    """Return the verdict that an object holds, or "invalid_FIELD"."""
    if not isinstance(data.get("reasoning"), str):
        return "invalid_reasoning"
    for name in PARTS:
        if not _is_share(data.get(name)):
            return f"invalid_{name}"
    parts = [float(data[name]) for name in PARTS]
    given = data.get("overall_score")
    if given is not None and not _is_share(given):
        return "invalid_overall_score"
    overall = math.fsum(parts) / len(parts) if given is None else float(given)
    coherent = meets(overall, min(parts) - _SLACK) and meets(max(parts) + _SLACK, overall)
    accuracy, completeness, relevance = parts
    return StructuredVerdict(
        accuracy,
        completeness,
        relevance,
        overall,
        derived=given is None,
        coherent=coherent,
        reasoning=data["reasoning"],
    )


def verdict_in_text(reply: str) -> StructuredVerdict | str:
    """Return the one valid verdict in a reply of words, or why there is none."""
    objects = objects_in(reply)
    valid = [found for data in objects or () if not isinstance(found := verdict_of(data), str)]
    if not valid:
        return "invalid_verdict"
    return valid[0] if len(valid) == 1 else "several_verdicts"


def objects_in(reply: str) -> list[dict[str, Any]] | None:
    """Return the outermost JSON objects in a judge's reply; None where one is broken or the reply is too long.

    What lies within a broken object is not looked at: it may be quoted from the answer that is judged.
    """
    if len(reply) > _MAX_REPLY_CHARS:
        return None
    objects = []
    start = _START.search(reply)
    while start is not None:
        try:
            found, end = _DECODER.raw_decode(reply, start.start())
        except (ValueError, RecursionError):
            return None
        objects.append(found)
        start = _START.search(reply, end)
    return objects


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
