"""Reading an operator's tables of prices and limits, with an entry per pattern of models."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Entry = dict[str, Any]
"""An entry: `provider`, `model` and `base_url` are patterns, the rest are numbers."""

_PATTERNS = ("provider", "model", "base_url")


def read_table(path: Path, title: str, numbers: Sequence[str], needed: Sequence[str] = ()) -> list[Entry]:
    """Return the entries of a YAML or JSON file with a single list.

    Args:
        path: The file.
        title: The list's key.
        numbers: The permitted numbers of an entry, each above 0, or at least 0 if required.
        needed: The required numbers.

    Raises:
        InvalidInputError: The file is invalid; holds every problem.
    """
    from assay.parsing.yaml_nodes import parse_yaml  # imported here: most processes read no YAML

    problems: list[Problem] = []
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError([Problem(f"cannot be read: {error}", file=str(path))]) from None
    data, lines = parse_yaml(text, file=str(path), problems=problems)
    listed = data.get(title) if isinstance(data, dict) else None
    if not problems and (not isinstance(listed, list) or set(data) != {title}):
        problems.append(Problem(f"must hold one list named {title}", file=str(path)))
    entries: list[Entry] = []
    for index, entry in enumerate(listed if isinstance(listed, list) else ()):
        where = f"{title}[{index}]"
        unread = _entry_problems(entry, numbers, needed)
        problems += [Problem(message, f"{where}.{key}" if key else where, str(path),
                             lines.get(f"{where}.{key}", lines.get(where))) for key, message in unread]  # fmt: skip
        if not unread:
            entries.append(entry)
    if problems:
        raise InvalidInputError(problems, reason="INVALID_SETTINGS")
    return entries


def matches(entry: Mapping[str, Any], who: Mapping[str, str]) -> bool:
    """Return whether an entry applies to a model, described by `provider`, `model` and `base_url`."""
    return all(fnmatchcase(who[key], entry[key]) for key in _PATTERNS if key in entry)


def _entry_problems(entry: object, numbers: Sequence[str], needed: Sequence[str]) -> list[tuple[str, str]]:
    if not isinstance(entry, dict):
        return [("", "must be a mapping")]
    known = (*_PATTERNS, *numbers)
    problems = [(key, unknown_name("key", key, known)) for key in entry if key not in known]
    problems += [(key, "must be a pattern, as text") for key in _PATTERNS if not isinstance(entry.get(key, ""), str)]
    if not isinstance(entry.get("model"), str):
        problems.append(("model", "is missing: name a model, or a pattern such as gpt-4o*"))
    return problems + number_problems(entry, numbers, needed)


def number_problems(
    entry: Mapping[str, Any], numbers: Sequence[str], needed: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Return the names of an entry's invalid or missing numbers, with the problems.

    Args:
        entry: The entry.
        numbers: The permitted numbers, from 0.
        needed: The required numbers.
    """
    problems = []
    for key in numbers:
        value = entry.get(key)
        if value is None:
            problems += [(key, "is missing")] if key in needed else []
        elif isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            problems.append((key, "must be a number that is not negative"))
    return problems
