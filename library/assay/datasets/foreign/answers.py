"""Answers that were recorded: texts, objects with a text somewhere in them, and what was retrieved for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.datasets.fields.aliases import is_blank
from assay.datasets.foreign.parts import text_of
from assay.datasets.records import BadRecordError, shown
from assay.model.answers.response_text import TEXT_KEYS


def retrieved_items(texts: Sequence[str], ids: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return recorded retrieved items of their contents and ids, either of which may be missing."""
    items: list[dict[str, Any]] = [{"content": text} for text in texts]
    if ids and len(ids) == len(texts):
        return [{"id": name} | item for name, item in zip(ids, items, strict=True)]
    return items or [{"id": name} for name in ids]


def answer_of(value: object, field: str, **beside: Any) -> dict[str, Any] | None:
    """Return a recorded answer; None where there is neither an answer nor anything beside it.

    Args:
        value: The answer's text, or an object with the fields of an answer.
        field: Where it stands.
        beside: Further fields of an answer; None and empty lists are left out, but no list of `tool_calls`: an empty
            one says that no tool was called.

    Raises:
        BadRecordError: It is no text.
    """
    found = {name: item for name, item in beside.items() if item is not None and (item != [] or name == "tool_calls")}
    if is_blank(value) and not found:
        return None
    if isinstance(value, Mapping):
        return {**found, **value}
    return {"text": "" if is_blank(value) else text_of(value, field)} | found


def recorded_in(value: object, field: str) -> dict[str, Any] | None:
    """Return the recorded answer of an output: a text, or an object of any shape with the text somewhere in it.

    Raises:
        BadRecordError: No text in it is clearly the answer's.
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
    found = messages or value.get("messages")
    last = found[-1] if isinstance(found, list) and found else None
    content = last.get("content") if isinstance(last, Mapping) else None
    return content if isinstance(content, str) else None
