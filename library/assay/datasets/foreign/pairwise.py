"""Pairs of answers with a human preference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.datasets.fields.aliases import is_blank
from assay.datasets.foreign.messages import conversation
from assay.datasets.foreign.parts import Parts, text_of
from assay.datasets.records import BadRecordError, shown

NAME = "pairwise"

FIELDS = {"input": "input", "human_labels": "output_1 | output_2 | label"}
"""The format's own field names, by canonical field."""

_LABELS = ("label", "preference", "winner")
_FIRST = {"1", "output_1", "output1", "first", "a", "answer_1", "model_1"}
_SECOND = {"2", "output_2", "output2", "second", "b", "answer_2", "model_2"}
_TIE = {"0", "tie", "equal", "both", "neither", "draw", "same"}


def matches(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Return whether a record is a pair.

    Args:
        record: The record by snake-case names.
        keys: Its field names.
    """
    return {"output_1", "output_2"} <= keys


def convert(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record of a pair; both answers and the preference 1, 2 or "tie" are labels.

    Raises:
        BadRecordError: It cannot be read.
    """
    parts = Parts(record)
    names = ("input", "question", "query", "prompt")
    asked = conversation(parts.take(*names), parts.name(*names))
    if (instruction := parts.take("instruction")) is not None:
        texts = [text_of(instruction, parts.name("instruction")), asked.get("input", "")]
        asked["input"] = "\n\n".join(text for text in texts if text)
    labels: dict[str, Any] = {}
    for name in ("output_1", "output_2"):
        value = parts.take(name)
        if value is None:
            raise BadRecordError("is missing: a pair has two answers", parts.name(name))
        labels[name] = text_of(value, parts.name(name))
    preference = parts.take(*_LABELS)
    if preference is not None:
        labels["preference"] = _preference(preference, parts.name(*_LABELS))
    return parts.finish({"id": parts.take("id"), **asked, "human_labels": labels})


def _preference(value: object, field: str) -> int | str:
    word = str(value).strip().lower().replace(" ", "_").replace("-", "_")
    word = word.removesuffix(".0")
    if isinstance(value, bool) or is_blank(value):
        word = ""
    if word in _FIRST:
        return 1
    if word in _SECOND:
        return 2
    if word in _TIE:
        return "tie"
    raise BadRecordError(f"must say which answer is better, 1, 2 or tie, not {shown(value)}", field)
