"""JSON values in the text of an answer: the one that it is, or those that stand among its words."""

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
    """Return the JSON value that a text is, apart from a code fence around it.

    Raises:
        ValueError: It is none; the message says why.
    """
    try:
        return DECODER.decode(_without_fence(plain(text)))
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None


def _without_fence(text: str) -> str:
    # Not a regular expression: with long runs of blanks one would take quadratic time.
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
            # A try reads on to the first mistake, which may be far: bounded, or braces alone would cost minutes.
            position = start.end()
        else:
            yield value
