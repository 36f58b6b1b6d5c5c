"""JSON Lines: one record per line, ended only by a line feed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TextIO

from assay.datasets.records import MAX_RAW_CHARS, JsonText, Record, json_trouble

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOO_LARGE = f"is longer than {MAX_RAW_CHARS // 1024**2} MiB"


def is_json_lines(head: str) -> bool:
    """Return whether a JSON text has one object per line: its beginning is a whole object with more text after it."""
    first, _, rest = head.lstrip().partition("\n")
    if not rest.strip():
        return False
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def read_jsonl(stream: TextIO) -> Iterator[Record]:
    """Yield a record per line; blank lines are skipped.

    Args:
        stream: The text, opened so that only a line feed ends a line.
    """
    text = JsonText()
    number = line = 0
    while raw := stream.readline(MAX_RAW_CHARS):
        line += 1
        if len(raw) == MAX_RAW_CHARS and not raw.endswith("\n"):
            number += 1
            yield Record(number, line, None, problem=_TOO_LARGE)
            while (rest := stream.readline(MAX_RAW_CHARS)) and not rest.endswith("\n"):
                pass
        elif raw[0] == "{" or not raw.isspace():
            number += 1
            yield parse_line(text, raw, number, line)


def parse_line(text: JsonText, raw: str, number: int, line: int) -> Record:
    """Return the record of an independent JSON text."""
    start = 0 if raw[0] == "{" else len(raw) - len(raw.lstrip(" \t\r\n"))
    try:
        data, end = text.read(raw, start)
    except json.JSONDecodeError as error:
        return Record(number, line, None, problem=f"is not valid JSON: {json_trouble(error, error.pos + 1)}")
    except RecursionError:
        return Record(number, line, None, problem="is nested far too deep")
    except ValueError:
        return Record(number, line, None, problem="holds a number with more than 4,300 digits")
    if (rest := raw[end:]) != "\n" and rest.strip(" \t\r\n"):
        problem = f"is not valid JSON: more follows after the value, column {end + 1}; one object per line is due"
        return Record(number, line, None, problem=problem)
    return text.record(number, line, data, raw)
