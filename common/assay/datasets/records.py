"""What every reader yields: raw records with their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["MAX_RECORD_BYTES", "BadFileError", "Record", "check_depth", "parse_json_record"]

import json
import math

MAX_RECORD_BYTES = 3 * 1024 * 1024
"""Largest record; a case must fit in one message."""

_MAX_DEPTH = 100


class BadFileError(Exception):
    """Reading cannot go on; the message says what is wrong and what to do, `line` where."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


@dataclass(frozen=True, slots=True)
class Record:
    """One raw record.

    Args:
        number: 1-based number of the record in the file.
        line: 1-based physical line at which it starts; None where unknown.
        data: What it holds.
        problem: Why it holds nothing usable; empty where it does.
        warning: What is odd about it; empty where nothing is.
    """

    number: int
    line: int | None
    data: Any
    problem: str = ""
    warning: str = ""


def parse_json_record(text: bytes, number: int, line: int) -> Record:
    """Return the record of one JSON text; NaN, infinity and deep nesting are problems, not values."""
    warnings: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        data = dict(items)
        if len(data) != len(items):
            names = [name for name, _ in items]
            twice = sorted({name for name in names if names.count(name) > 1})
            warnings.append(f"gives {', '.join(twice)} twice: the last one counts")
        return data

    try:
        data = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=pairs)
    except UnicodeDecodeError as error:
        raise BadFileError(
            f"is not UTF-8 (byte {error.start} of the record): save it as UTF-8, or set `encoding`, e.g. cp1256", line
        ) from None
    except json.JSONDecodeError as error:
        return Record(number, line, None, f"is not valid JSON: {error.msg} at column {error.colno}")
    except RecursionError:
        return Record(number, line, None, f"is nested more than {_MAX_DEPTH} levels deep")
    except ValueError as error:
        return Record(number, line, None, str(error))
    return Record(number, line, data, warning="; ".join(warnings))


def check_depth(data: Any) -> str:
    """Return a problem if data is nested too deep or holds a number that is not finite."""
    pending = [(data, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > _MAX_DEPTH:
            return f"is nested more than {_MAX_DEPTH} levels deep"
        if isinstance(item, dict):
            pending += [(value, depth + 1) for value in item.values()]
        elif isinstance(item, list):
            pending += [(value, depth + 1) for value in item]
        elif isinstance(item, float) and not math.isfinite(item):
            return f"holds {item}, which is not a number that can be kept"
    return ""


def _refuse_constant(name: str) -> None:
    raise ValueError(f"holds {name}, which is not JSON: write null, or a number")
