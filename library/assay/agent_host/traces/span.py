"""A span of a trace, independent of its encoding."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_VALUE_DEPTH = 32
"""Maximum nesting depth of arrays and mappings in an attribute."""

_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_SPAN_ID = re.compile(r"[0-9a-f]{16}")


class MalformedSpanError(ValueError):
    """The data is not a span; the message says why."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span that has ended.

    Args:
        trace_id: 32 hexadecimal digits, lower case.
        span_id: 16 hexadecimal digits, lower case.
        parent_id: The parent span's id; empty for none.
        name: The span's name.
        start_ns: The start, in nanoseconds since 1970.
        end_ns: The end, in nanoseconds since 1970.
        attributes: Plain values: texts, numbers, truth values, None, lists and mappings of them.
        is_error: Whether its status is an error.
        events: Names and attributes of events of the GenAI conventions, and of exceptions.

    Raises:
        MalformedSpanError: An id is invalid.
    """

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str = ""
    start_ns: int = 0
    end_ns: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)
    is_error: bool = False
    events: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    def __post_init__(self) -> None:
        """Check the ids, which join spans."""
        if not _TRACE_ID.fullmatch(self.trace_id):
            raise MalformedSpanError("its trace id is not 32 hexadecimal digits")
        if not _SPAN_ID.fullmatch(self.span_id) or not (self.parent_id == "" or _SPAN_ID.fullmatch(self.parent_id)):
            raise MalformedSpanError("its span id or that of its parent is not 16 hexadecimal digits")

    @property
    def size(self) -> int:
        """The approximate memory of its texts, in bytes."""
        return len(self.name) + _size(self.attributes) + sum(_size(event) for _, event in self.events)


def is_read_event(name: object) -> bool:
    """Return whether an event of a span concerns an answer."""
    return isinstance(name, str) and (name == "exception" or name.startswith("gen_ai."))


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + _size(item) for key, item in value.items())
    return sum(map(_size, value)) + 8 if isinstance(value, list) else 8
