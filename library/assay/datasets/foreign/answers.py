"""Recorded answers: texts, objects containing a text, and their retrieved items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.datasets.fields.aliases import is_blank
from assay.datasets.foreign.parts import text_of
from assay.datasets.records import BadRecordError, shown
from assay.model.answers.response_text import TEXT_KEYS


def retrieved_items(texts: Sequence[str], ids: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return retrieved items from their contents and ids, either of which may be missing."""
    items: list[dict[str, Any]] = [{"content": text} for text in texts]
    if ids and len(ids) == len(texts):
        return [{"id": name} | item for name, item in zip(ids, items, strict=True)]
    return items or [{"id": name} for name in ids]


def answer_of(value: object, field: str, **beside: Any) -> dict[str, Any] | None:
    """Return a recorded answer; None if there is neither an answer nor any other field.

    Args:
        value: The answer's text, or an object with the fields of an answer.
        field: The path of the value.
        beside: Further fields of an answer. None and empty lists are dropped, except an empty `tool_calls`, which means
            that no tool was called.

    Raises:
        BadRecordError: The value is not a text.
    """
    details = {name: item for name, item in beside.items() if item is not None and (item != [] or name == "tool_calls")}
    if is_blank(value) and not details:
        return None
    if isinstance(value, Mapping):
        return {**details, **value}
    return {"text": "" if is_blank(value) else text_of(value, field)} | details


def recorded_in(value: object, field: str) -> dict[str, Any] | None:
    """Return the recorded answer of an output: a text, or an object of any shape that contains the text.

    Raises:
        BadRecordError: No text in it is clearly the answer.
    """
    if not isinstance(value, Mapping):
        return answer_of(value, field)
    if isinstance(value.get("text"), str):
        return dict(value)
    texts = {name: item for name, item in value.items() if isinstance(item, str)}
    name = next((name for name in TEXT_KEYS if name in texts), None)
    if name is None and len(texts) == 1:
        name = next(iter(texts))
    if name is None:
        message = _last_message(value)
        if message is None:
            raise BadRecordError(
                f"must hold the answer's text under one of {', '.join(TEXT_KEYS)}, not {shown(value)}", field
            )
        return {"text": message, "output": dict(value)}
    return {"text": texts[name], "output": dict(value)} if len(value) > 1 else {"text": texts[name]}


def _last_message(value: Mapping[str, Any]) -> str | None:
    choices = value.get("choices")
    messages = (
        [item.get("message") for item in choices if isinstance(item, Mapping)] if isinstance(choices, list) else []
    )
    talk = messages or value.get("messages")
    last = talk[-1] if isinstance(talk, list) and talk else None
    content = last.get("content") if isinstance(last, Mapping) else None
    return content if isinstance(content, str) else None
