"""The fields of an answer that is read: each has its type, or the message says which one has not and why."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from assay.parsing.names import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_DEPTH = 100
_MAX_ITEMS = 10_000
_EXCERPT_CHARS = 200
_EXCERPT_BYTES = 4096


class MalformedAnswerError(ValueError):
    """The answer has not the shape of an answer; the message says which field and what was expected."""


class UnmappedReplyError(MalformedAnswerError):
    """A reply came whole, and `agent.response` finds no answer in it: that, or the agent, is to be corrected."""


def as_text(value: object, where: str) -> str:
    """Return a text, empty where it is absent; numbers and truth values are written out."""
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return str(value)
    if not isinstance(value, str):
        raise MalformedAnswerError(f"{where} must be a string, not {kind_of(value)}")
    return clean_text(value)


def as_number(value: object, where: str) -> float | None:
    """Return a finite number, None where it is absent."""
    if value is None:
        return None
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except OverflowError:
        pass  # a whole number beyond every float
    raise MalformedAnswerError(f"{where} must be a finite number, not {shown(value)}")


def as_amount(value: object, where: str) -> float | None:
    """Return a finite number of at least 0, such as a time or a cost; None where it is absent."""
    number = as_number(value, where)
    if number is not None and number < 0:
        raise MalformedAnswerError(f"{where} must be at least 0, not {shown(value)}")
    return number


def as_count(value: object, where: str, *, below: int = 2**63) -> int | None:
    """Return a whole number from 0 and below `below`, None where it is absent."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < below:
        raise MalformedAnswerError(f"{where} must be a whole number from 0, not {shown(value)}")
    return value


def as_items(value: object, where: str) -> list[Any]:
    """Return a list, empty where it is absent."""
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise MalformedAnswerError(f"{where} must be a list, not {kind_of(value)}")
    if len(value) > _MAX_ITEMS:
        raise MalformedAnswerError(f"{where} has {len(value):,} entries, more than {_MAX_ITEMS:,}")
    return list(value)


def as_mapping(value: object, where: str) -> dict[str, Any]:
    """Return a mapping, empty where it is absent."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedAnswerError(f"{where} must be a mapping, not {kind_of(value)}")
    return value


def json_value(value: Any, where: str) -> Any:
    """Return `value` as it comes back from JSON, so that it can be stored and sent whatever it was."""
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
    """Return `value` as JSON text, or raise MalformedAnswerError naming `where`."""
    try:
        return clean_text(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as problem:
        raise MalformedAnswerError(f"{where} cannot be written as JSON: {problem}") from None


def clean_text(text: str) -> str:
    """Return the text with NUL and lone surrogates, which no store or wire takes, replaced by U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def shown(value: object) -> str:
    """Return the value as a message shows it: 60 characters at the most."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def excerpt(body: bytes) -> str:
    """Return the beginning of a body as text in one line, to be shown in a message."""
    text = " ".join(clean_text(body[:_EXCERPT_BYTES].decode("utf-8", "replace")).split())
    return text[:_EXCERPT_CHARS] + ("…" if len(text) > _EXCERPT_CHARS else "") or "(empty)"


def _children(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()
