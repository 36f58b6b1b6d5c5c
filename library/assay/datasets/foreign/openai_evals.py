"""OpenAI's evals: input and ideal, at the top or wrapped in `item`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.datasets.fields.aliases import ALIASES
from assay.datasets.fields.field_names import folded
from assay.datasets.foreign.messages import conversation
from assay.datasets.foreign.parts import Parts, tells
from assay.datasets.records import BadRecordError

NAME = "openai-evals"

FIELDS = {"input": "input", "references": "ideal"}
"""The format's own field names, by canonical field."""

# The fields of a wrapped item are its author's choice.
_QUESTIONS = ALIASES["input"]
_ANSWERS = (*ALIASES["references"], "correct_answer", "correct_label", "answer")
_OWN = frozenset(alias for name in ("id", "category", "tags", "metadata") for alias in ALIASES[name])
_RESULT = "datasource_item"


def matches(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Return whether a record is a sample.

    Args:
        record: The record by snake-case names.
        keys: Its field names.
    """
    if "item" in keys:
        return keys <= {"item", "sample", "id", "metadata"} and isinstance(record["item"], Mapping)
    if _RESULT in keys or keys == {"sample"}:
        return True
    return "ideal" in keys and isinstance(record.get("input"), str | list)


def convert(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record of a sample; the answer in its `sample` is the recorded one.

    Raises:
        BadRecordError: It cannot be read.
    """
    outer = Parts(record)
    outer.refuse(_RESULT, why="makes it a result of an evaluation, not a case: export the items that were evaluated")
    if not outer.has("item"):
        outer.refuse("sample", why="lacks the `item` that it answers: export the items too")
        return _plain(outer)
    inner = outer.mapping("item")
    if not inner:
        raise BadRecordError("holds nothing: a case needs a question, or values for a prompt", "item")
    plain = _item(inner)
    sample = outer.mapping("sample")
    if sample and not isinstance(sample.get("output_text"), str):
        raise BadRecordError("holds no text `output_text`: give the answer there, or leave the sample out", "sample")
    if sample:
        plain["recorded"] = {"text": sample["output_text"]}
    return outer.finish({"id": outer.take("id"), **plain}, plain.pop("metadata", None))


def _plain(parts: Parts) -> dict[str, Any]:
    return parts.finish({**conversation(parts.take("input"), parts.name("input")), "references": parts.texts("ideal")})


def _item(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record of an item; without a question, its values fill a prompt."""
    parts = Parts(item)
    references = parts.texts(*_ANSWERS)
    if not parts.has(*_QUESTIONS):
        values = {name: value for name, value in parts.rest().items() if not tells(name) and folded(name) not in _OWN}
        for name in values:
            parts.take(folded(name))
        return parts.finish({"variables": values, "references": references})
    asked = conversation(parts.take(*_QUESTIONS), parts.name(*_QUESTIONS))
    return parts.finish({**asked, "references": references})
