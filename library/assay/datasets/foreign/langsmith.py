"""LangSmith's examples: inputs, and outputs that serve as the reference."""

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
"""The format's own field names, by canonical field."""

_ANSWERS = (*ALIASES["references"], "answer", "output", "response", "text", "content")


def matches(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Return whether a record is an example.

    Args:
        record: The record by snake-case names.
        keys: Its field names.
    """
    return {"inputs", "outputs"} <= keys and "expectations" not in keys


def convert(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record of an example.

    The only text in `outputs`, or the one with a known name for references, is the reference; the others stay under
    their names in `expected`.

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
    """Return the warning that outputs are read as right answers, which is wrong for some exports."""
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
    key = next((names[alias] for alias in _ANSWERS if alias in names), None)
    texts = [name for name, item in held.items() if isinstance(item, str)]
    if key is None and len(texts) == 1:
        key = texts[0]
    if key is None and "messages" in held:
        key = "messages"
    if key is not None and (text := _last_said(held[key])):
        return [text], {name: item for name, item in held.items() if name != key}
    if key is None or isinstance(held[key], Mapping):
        return [], held
    rest = {name: item for name, item in held.items() if name != key}
    return texts_of(held[key], f"{field}.{key}"), rest


def _last_said(value: object) -> str:
    """Return the text of the last message if the value is a message, or a list of them, that ends with an agent's."""
    talk = value if isinstance(value, list) else [value]
    if not is_talk(talk) or not all(isinstance(item, Mapping) and item.keys() & {"role", "type"} for item in talk):
        return ""
    last = messages_of(talk, "outputs")[-1]
    return str(last["content"]) if last["role"] == "assistant" else ""
