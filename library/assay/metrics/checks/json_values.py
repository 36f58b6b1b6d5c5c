"""JSON values in the text of an answer: the whole text, or values among its words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from assay.parsing.strict_json import DECODER
from assay.text.equality import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

_FENCE = "```"
_START = re.compile(r"[{\[]")
_MOST_VALUES = 200


def json_in(text: str) -> Any:
    """Return the JSON value of a text, which may have a code fence around it.

    Raises:
        ValueError: The text is no JSON value; the message says why.
    """
    try:
        return DECODER.decode(_without_fence(plain(text)))
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None


def _without_fence(text: str) -> str:
    # No regular expression, which would take quadratic time on long runs of blanks.
    if not (text.startswith(_FENCE) and text.endswith(_FENCE) and len(text) > 2 * len(_FENCE)):
        return text
    language, line_break, rest = text[len(_FENCE) : -len(_FENCE)].partition("\n")
    return rest.strip() if line_break and "`" not in language else text


def json_values(text: str) -> Iterator[Any]:
    """Yield the outermost JSON objects and arrays in a text of words."""
    position = 0
    for _ in range(_MOST_VALUES):
        start = _START.search(text, position)
        if start is None:
            return
        try:
            value, position = DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            # An attempt reads up to the first mistake, maybe far away: unbounded, a text of braces costs minutes.
            position = start.end()
        else:
            yield value
