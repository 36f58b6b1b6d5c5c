"""LangSmith's examples: inputs, and outputs that are the reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.datasets.fields.aliases import ALIASES, is_blank
from assay.datasets.fields.field_names import folded
from assay.datasets.foreign.messages import is_talk, messages_of, place_inputs
from assay.datasets.foreign.parts import Parts, text_of, texts_of

NAME = "langsmith"

FIELDS = {
    "id": "id",
    "input": "inputs",
    "variables": "inputs",
    "parameters": "inputs",
    "references": "outputs",
    "metadata": "metadata",
}
"""Canonical field to the format's own."""

_ANSWERS = (*ALIASES["references"], "answer", "output", "response", "text", "content")


def matches(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Return whether a record is an example.

    Args:
        record: The record by snake-case names.
        keys: These names.
    """
    return {"inputs", "outputs"} <= keys and "expectations" not in keys


def convert(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record of an example.

    The one text of `outputs`, or the one with a name by which a reference is recognised, is the reference; the others
    stay under their names in `expected`.

    Raises:
        BadRecordError: It cannot be read.
    """
    parts = Parts(record)
    references, expected = _references(parts.take("outputs"), parts.name("outputs"))
    plain: dict[str, Any] = {
        "id": parts.take("id"),
        **place_inputs(parts.take("inputs"), parts.name("inputs")),
        "references": references,
        "expected": expected,
    }
    return parts.finish(plain, parts.take("metadata"))


def oddity(record: Mapping[str, Any]) -> str:
    """Return the warning that outputs are read as right answers, which they are not in every export."""
    if not Parts(record).has("outputs"):
        return ""
    return (
        "treating `outputs` as the reference, as in LangSmith; if it holds recorded agent output, set "
        "`format: langsmith` and `map: {recorded: outputs}`"
    )


def _references(value: object, field: str) -> tuple[list[str], dict[str, Any]]:
    if not isinstance(value, Mapping):
        return ([] if is_blank(value) else [text_of(value, field)]), {}
    held = {str(name): item for name, item in value.items() if not is_blank(item)}
    names = {folded(name): name for name in reversed(held)}
    found = next((names[alias] for alias in _ANSWERS if alias in names), None)
    texts = [name for name, item in held.items() if isinstance(item, str)]
    if found is None and len(texts) == 1:
        found = texts[0]
    if found is None and "messages" in held:
        found = "messages"
    if found is not None and (said := _last_said(held[found])):
        return [said], {name: item for name, item in held.items() if name != found}
    if found is None or isinstance(held[found], Mapping):
        return [], held
    rest = {name: item for name, item in held.items() if name != found}
    return texts_of(held[found], f"{field}.{found}"), rest


def _last_said(value: object) -> str:
    """Return what the last message says, if the value is a message or a list of them and an agent's is the last."""
    talk = value if isinstance(value, list) else [value]
    if not is_talk(talk) or not all(isinstance(item, Mapping) and item.keys() & {"role", "type"} for item in talk):
        return ""
    last = messages_of(talk, "outputs")[-1]
    return str(last["content"]) if last["role"] == "assistant" else ""
