"""Raw records with their place, which all readers yield, and the parser of JSON texts."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_RAW_CHARS = 8 * 1024 * 1024
"""Maximum size of a raw record in characters; a case of 1 MiB fits however it is escaped."""

MAX_DEPTH = 100
"""Maximum nesting depth of a record."""

_SHOWN_CHARS = 60


class BadFileError(Exception):
    """The rest of the file cannot be read; the message says why and what to do, `line` says where."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class BadRecordError(Exception):
    """A record of another tool's format cannot be read; the message says why, `field` says where."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class Record(NamedTuple):
    """A raw record.

    Args:
        number: 1-based number of the record in the file.
        line: 1-based physical line at which it starts; None for sources without lines.
        data: The value; None if `problem` explains why there is none.
        size: Its size in characters in the file.
        suspect: Whether it must be searched for NUL, lone surrogates and deep nesting.
        problem: Why it has no usable value; empty if it does.
        field: The path of the problem in the record; empty for the whole record.
    """

    number: int
    line: int | None
    data: Any
    size: int = 0
    suspect: bool = True
    problem: str = ""
    field: str = ""


@dataclass(slots=True)
class _Oddities:
    """The oddities that the hooks encountered in a JSON text."""

    twice: str | None = None
    not_finite: str = ""


class JsonText:
    """Parses JSON values from texts; keeps the oddities of the last value."""

    def __init__(self) -> None:
        self._odd = _Oddities()
        decoder: Any = json.JSONDecoder(parse_constant=self._constant, parse_float=self._finite)
        self._scan = decoder.scan_once
        # A hook on every object doubles the parsing time, so this parser only handles text that may repeat a field.
        self._read_pairs = json.JSONDecoder(object_pairs_hook=self._pairs, parse_constant=_ignored).raw_decode

    def read(self, text: str, start: int = 0) -> tuple[Any, int]:
        """Return the value that begins at `start`, and its end.

        Raises:
            json.JSONDecodeError: There is no JSON value; `pos` is the position of the error.
            ValueError: A number has too many digits.
            RecursionError: The value is nested far too deep.
        """
        odd = self._odd
        if odd.not_finite:
            odd.not_finite = ""
        try:
            return self._scan(text, start)  # type: ignore[no-any-return]  # the library has no types for it
        except StopIteration as stop:
            raise json.JSONDecodeError("Expecting value", text, stop.value) from None

    def record(self, number: int, line: int, data: Any, raw: str) -> Record:
        """Return the record of the last parsed value.

        Args:
            number: The record's number.
            data: The value.
            raw: The text it was parsed from; only whitespace may surround the value.
        """
        braces = raw.count("{")
        # Only an escape can produce NUL or a lone surrogate; only many brackets can nest deep.
        suspect = "\\u" in raw or raw.count("[") + braces > MAX_DEPTH
        if self._odd.not_finite:
            problem = f"holds {self._odd.not_finite}, which is not a JSON number: write null, or a number"
            return Record(number, line, None, len(raw), suspect, problem)
        keys = len(data) if braces == 1 and type(data) is dict else _count_keys(data)
        if raw.count(":") == keys or _count_key_marks(raw) == keys:
            # Same as Record(...), in a third of the time.
            return tuple.__new__(Record, (number, line, data, len(raw), suspect, "", ""))
        problem = self._named_twice(raw)
        return Record(number, line, None if problem else data, len(raw), suspect, problem)

    def _named_twice(self, raw: str) -> str:
        self._odd.twice = None
        self._read_pairs(raw, len(raw) - len(raw.lstrip(" \t\r\n")))
        twice = self._odd.twice
        return f"gives the field {shown(twice)} twice: keep one of them" if twice is not None else ""

    def _pairs(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(pairs)
        if len(data) != len(pairs):
            names = [name for name, _ in pairs]
            self._odd.twice = next(name for name in names if names.count(name) > 1)
        return data

    def _constant(self, name: str) -> None:
        self._odd.not_finite = name

    def _finite(self, digits: str) -> float:
        number = float(digits)
        if math.isinf(number):
            self._odd.not_finite = digits[:_SHOWN_CHARS]
        return number


def _ignored(name: str) -> None:
    """Accept a NaN or infinity, which another pass has already reported."""


def _count_keys(data: Any) -> int:
    """Return the number of fields of all objects in `data`."""
    count, pending = 0, [data]
    while pending:
        item = pending.pop()
        if type(item) is dict:
            count += len(item)
            pending += item.values()
        elif type(item) is list:
            pending += item
    return count


def _count_key_marks(raw: str) -> int:
    """Return an upper bound on the colons after field names; some inside texts are counted too."""
    return (
        raw.count('":')
        + raw.count(" :")
        + (raw.count("\t:") + raw.count("\n:") + raw.count("\r:") if "\t" in raw or "\n" in raw or "\r" in raw else 0)
    )


def find_unusable(data: Any) -> str:
    """Return why no store or wire accepts `data`: NUL, lone surrogates, deep nesting; empty if they do."""
    pending: list[tuple[Any, int]] = [(data, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > MAX_DEPTH:
            return f"is nested more than {MAX_DEPTH} levels deep"
        if isinstance(item, str):
            if problem := _unusable_text(item):
                return problem
        elif isinstance(item, dict):
            pending += [(key, depth) for key in item]
            pending += [(value, depth + 1) for value in item.values()]
        elif isinstance(item, list):
            pending += [(value, depth + 1) for value in item]
    return ""


def _unusable_text(text: str) -> str:
    if "\0" in text:
        return f"holds the character NUL in {shown(text)}: remove it"
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"holds half a character (a lone surrogate) in {shown(text)}: write the file again as UTF-8"
    return ""


def json_trouble(error: json.JSONDecodeError, column: int) -> str:
    """Return why a text is not JSON, for the user.

    Args:
        error: The parser's exception.
        column: The column of the error on its line, from 1.
    """
    closing, before = error.doc[error.pos : error.pos + 1], error.doc[: error.pos].rstrip(" \t\r\n")
    if closing in ("]", "}") and closing and before.endswith(","):
        return f"a comma before {closing}, which JSON does not allow: remove it, column {column}"
    return f"{error.msg.removesuffix(' starting at')}, column {column}"


def shown(value: object) -> str:
    """Return a value for a message: shortened, on one line and printable."""
    if isinstance(value, str) and len(value) > _SHOWN_CHARS:
        value = value[:_SHOWN_CHARS] + "..."
    try:
        text = json.dumps(value, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        text = ascii(value) if isinstance(value, str) else f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARS + 5 else text[:_SHOWN_CHARS] + "..."
