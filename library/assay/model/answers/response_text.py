"""Locating the text of an answer: one table for Python agents, HTTP agents, recorded answers and `assay.score`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.model.answers.response_fields import MalformedAnswerError, shown

TEXT_KEYS = ("text", "answer", "response", "content", "message", "result", "output")
"""The fields that may hold the text of an answer; the first with a text wins.

`output` is last: an object in it is structured output, and so is a text beside another text.
"""

_MOST_NAMED, _MOST_CHARS = 8, 100


def find_text_key(data: Mapping[Any, Any]) -> str | None:
    """Return the first of `TEXT_KEYS` with a text, number or truth value; None if there is none.

    A `text` of another type is returned too: it is meant as the answer's text, and is wrong.
    """
    for key in TEXT_KEYS:
        value = data.get(key)
        if isinstance(value, str | bool | int | float) or (key == "text" and value is not None):
            return key
    return None


def missing_text(data: Mapping[Any, Any]) -> MalformedAnswerError:
    """Return the error for an answer without a text; it names the answer's fields."""
    names = ", ".join(shown(key) for key in list(data)[:_MOST_NAMED])
    if len(names) > _MOST_CHARS or len(data) > _MOST_NAMED:
        names = f"{names[:_MOST_CHARS]}, …"
    known = ", ".join(TEXT_KEYS[1:])
    return MalformedAnswerError(
        f"no text found; its fields are {names or 'none'}; put the text into 'text' (also read: {known}), or write "
        "'text': '' if it has none"
    )
