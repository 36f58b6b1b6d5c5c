"""JSON: a list of cases, or an object with the list under a known key; read item by item."""

from __future__ import annotations

import itertools
import json
import re
from typing import TYPE_CHECKING, Any, TextIO

from assay.datasets.fields.field_names import folded
from assay.datasets.readers.trace_exports import trace_export
from assay.datasets.records import MAX_RAW_CHARS, BadFileError, JsonText, Record, json_trouble, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONTAINER_KEYS = ("eval_cases", "examples", "tests", "cases", "data", "test_cases", "rows")
"""Keys under which a JSON or YAML object may hold the list of cases."""

_SQUEEZED_KEYS = frozenset(key.replace("_", "") for key in CONTAINER_KEYS)
_CHUNK_CHARS = 128 * 1024
_SPACE = re.compile(r"[ \t\r\n]*")
_LONGEST_WORD = 16  # an error this close to the end of the buffer may only mean that more text follows
_INCOMPLETE = ("Unterminated string", "Invalid \\")


def is_container_key(name: str) -> bool:
    """Return whether a key may hold the list of cases; `evalCases` is `eval_cases`."""
    return folded(name).replace("_", "") in _SQUEEZED_KEYS


def read_json(stream: TextIO, top: dict[str, Any]) -> Iterator[Record]:
    """Yield the items of an array, or of the list under a known key of an object.

    An object without such a list is the only record itself.

    Args:
        stream: The text.
        top: Receives the object's data beside the list.
    """
    text = _Text(stream)
    first = text.peek()
    if first == "[":
        yield from _items(text)
    elif first == "{":
        yield from _object(text, top)
    else:
        raise BadFileError("is not JSON: it begins with neither [ nor {", text.line)
    if text.peek():
        raise BadFileError(
            "is not valid JSON: more follows after its end; if it holds one object per line, name it .jsonl", text.line
        )


def _items(text: _Text) -> Iterator[Record]:
    text.expect("[")
    if text.peek() == "]":
        text.expect("]")
        return
    for number in itertools.count(1):
        text.peek()
        line = text.line
        data, raw = text.value()
        yield text.json.record(number, line, data, raw)
        if text.peek() == "]":
            text.expect("]")
            return
        text.expect(",", or_else="]")


def _object(text: _Text, top: dict[str, Any]) -> Iterator[Record]:
    text.expect("{")
    line, size, list_key, has_list = text.line, 0, "", False
    while text.peek() != "}":
        key = text.key()
        text.expect(":")
        if is_container_key(key) and text.peek() == "[":
            has_list, any_items = True, False
            for record in _items(text):
                if list_key:
                    raise two_lists(list_key, key, record.line)
                any_items = True
                yield record
            list_key = key if any_items else list_key
        else:
            top[key], raw = text.value()
            size += len(raw)
            if size > MAX_RAW_CHARS:
                raise no_list(top, line)
        if text.peek() != ",":
            break
        text.expect(",")
        if text.peek() == "}":
            raise text.error("a name in double quotes is due")
    text.expect("}", or_else=",")
    if not has_list:
        if any(map(is_container_key, top)):
            raise no_list(top, line)
        yield Record(1, line, dict(top), size)


def two_lists(first: str, second: str, line: int | None) -> BadFileError:
    """Return the error for a file in which two lists could be the cases."""
    return BadFileError(f"holds two lists of cases, {first!r} and {second!r}: keep one of them", line)


def no_list(top: Mapping[str, Any], line: int | None) -> BadFileError:
    """Return the error for an object that is neither a case nor contains a list of cases."""
    if traces := trace_export(top):
        return BadFileError(traces, line)
    elsewhere = next((key for key, value in top.items() if is_container_key(key) and isinstance(value, str)), None)
    if elsewhere is not None:
        return BadFileError(
            f"names its cases under {elsewhere!r} as {shown(top[elsewhere])}, which is not opened: give that file as "
            "the dataset, or write the list there",
            line,
        )
    listed = ", ".join(shown(key) for key in list(top)[:10])
    return BadFileError(
        f"holds no list of cases: it has {listed}, and the list must be under one of {', '.join(CONTAINER_KEYS)}",
        line,
    )


class _Text:
    """A JSON text that is read on demand."""

    def __init__(self, stream: TextIO) -> None:
        self.json = JsonText()
        self.line = 1
        self._stream = stream
        self._buffer = ""
        self._position = 0
        self._dropped = 0  # characters of the current line that are no longer in the buffer
        self._ended = False

    def peek(self) -> str:
        """Return the next non-space character, or the empty string at the end."""
        while True:
            match = _SPACE.match(self._buffer, self._position)
            assert match is not None, "the pattern matches everywhere"
            self._move(match.end())
            if self._position < len(self._buffer):
                return self._buffer[self._position]
            if not self._fill():
                return ""

    def expect(self, mark: str, *, or_else: str = "") -> None:
        """Skip a mark that must come next."""
        character = self.peek()
        if character != mark:
            due = f'"{mark}"' + (f' or "{or_else}"' if or_else else "")
            raise self.error(f"{due} is due")
        self._position += 1

    def key(self) -> str:
        """Return the name of the object's next member."""
        if self.peek() != '"':
            raise self.error("a name in double quotes is due")
        name, _ = self.value()
        assert isinstance(name, str), "a value that begins with a quote is a text"
        return name

    def value(self) -> tuple[Any, str]:
        """Return the next value and its text."""
        self.peek()
        while True:
            try:
                data, end = self.json.read(self._buffer, self._position)
            except json.JSONDecodeError as error:
                if not self._may_go_on(error):
                    raise self._invalid(error) from None
            except RecursionError:
                raise BadFileError("is nested far too deep", self.line) from None
            except ValueError:
                raise BadFileError("holds a number with more than 4,300 digits", self.line) from None
            else:
                if end < len(self._buffer) or not self._fill():
                    raw = self._buffer[self._position : end]
                    self._move(end)
                    return data, raw
                continue
            if len(self._buffer) - self._position > MAX_RAW_CHARS:
                limit = MAX_RAW_CHARS // 1024**2
                raise BadFileError(f"holds a value larger than {limit} MiB, or a quote that is never closed", self.line)
            self._fill()

    def error(self, message: str) -> BadFileError:
        """Return the error for the next part of the text."""
        character = self.peek()
        cause = f"found {shown(character)}" if character else "the file ends here: it may be cut off"
        return BadFileError(f"is not valid JSON: {message}, {cause}", self.line)

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        if self._ended:
            return False
        return error.msg.startswith(_INCOMPLETE) or error.pos >= len(self._buffer) - _LONGEST_WORD

    def _invalid(self, error: json.JSONDecodeError) -> BadFileError:
        line = self.line + self._buffer.count("\n", self._position, error.pos)
        cut_off = self._ended and (
            error.msg.startswith("Unterminated") or not self._buffer[error.pos :].strip(" \t\r\n")
        )
        hint = "; the file ends there: it may be cut off" if cut_off else ""
        begins = self._buffer.rfind("\n", 0, error.pos) + 1
        column = error.pos - begins + 1 + (0 if begins else self._dropped)
        return BadFileError(f"is not valid JSON: {json_trouble(error, column)}{hint}", line)

    def _move(self, position: int) -> None:
        self.line += self._buffer.count("\n", self._position, position)
        self._position = position

    def _fill(self) -> bool:
        """Read more text; return whether there was any."""
        kept = self._buffer[self._position :]
        # Doubling keeps the work linear where one value spans many chunks.
        chunk = self._stream.read(max(_CHUNK_CHARS, len(kept)))
        self._ended = not chunk
        if chunk:
            begins = self._buffer.rfind("\n", 0, self._position) + 1
            self._dropped = self._position - begins + (0 if begins else self._dropped)
            self._buffer = kept + chunk
            self._position = 0
        return bool(chunk)
