"""Typed reading of an answer's fields; a mismatch is an error that names the field and the expected type."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from assay.model.limits import LARGEST_INTEGER
from assay.parsing.names import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_DEPTH = 100
_MAX_ITEMS = 10_000
_EXCERPT_CHARS = 200
_EXCERPT_BYTES = 4096


class MalformedAnswerError(ValueError):
    """The data does not have the shape of an answer; the message names the field and what was expected."""


class UnmappedReplyError(MalformedAnswerError):
    """`agent.response` locates no answer in a complete reply: correct the expression, or the agent."""


def as_text(value: object, where: str) -> str:
    """Return a text; empty if missing. Numbers and truth values are written out."""
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return str(value)
    if not isinstance(value, str):
        raise MalformedAnswerError(f"{where} must be a string, not {kind_of(value)}")
    return clean_text(value)


def as_number(value: object, where: str) -> float | None:
    """Return a finite number; None if missing."""
    if value is None:
        return None
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except OverflowError:
        pass  # an integer beyond the range of floats
    raise MalformedAnswerError(f"{where} must be a finite number, not {shown(value)}")


def as_amount(value: object, where: str) -> float | None:
    """Return a finite number of at least 0, such as a time or a cost; None if missing."""
    number = as_number(value, where)
    if number is not None and number < 0:
        raise MalformedAnswerError(f"{where} must be at least 0, not {shown(value)}")
    return number


def as_count(value: object, where: str, *, most: int = LARGEST_INTEGER) -> int | None:
    """Return an integer from 0 and at most `most`; None if missing."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise MalformedAnswerError(f"{where} must be a whole number from 0 to {most}, not {shown(value)}")
    return value


def as_items(value: object, where: str) -> list[Any]:
    """Return a list; empty if missing."""
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise MalformedAnswerError(f"{where} must be a list, not {kind_of(value)}")
    if len(value) > _MAX_ITEMS:
        raise MalformedAnswerError(f"{where} has {len(value):,} entries, more than {_MAX_ITEMS:,}")
    return list(value)


def as_mapping(value: object, where: str) -> dict[str, Any]:
    """Return a mapping; empty if missing."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedAnswerError(f"{where} must be a mapping, not {kind_of(value)}")
    return value


def json_value(value: Any, where: str) -> Any:
    """Return `value` after a round trip through JSON, so that it can be stored and sent."""
    if value is None:
        return None
    plain = json.loads(json_text(value, where))
    level = [plain]
    for _ in range(_MAX_DEPTH):
        level = [child for item in level for child in _children(item)]
        if not level:
            return plain
    raise MalformedAnswerError(f"{where} is nested more than {_MAX_DEPTH} levels deep")


def json_text(value: object, where: str) -> str:
    """Return `value` as JSON text; raise MalformedAnswerError naming `where` if that is impossible."""
    try:
        return clean_text(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as problem:
        raise MalformedAnswerError(f"{where} cannot be written as JSON: {problem}") from None


def clean_text(text: str) -> str:
    """Return the text with NUL and lone surrogates, which stores and protobuf refuse, replaced by U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def shown(value: object) -> str:
    """Return the value for a message, in at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def excerpt(body: bytes) -> str:
    """Return the beginning of a body as one line of text, for a message."""
    text = " ".join(clean_text(body[:_EXCERPT_BYTES].decode("utf-8", "replace")).split())
    return text[:_EXCERPT_CHARS] + ("…" if len(text) > _EXCERPT_CHARS else "") or "(empty)"


def _children(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()
