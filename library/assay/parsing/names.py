"""Names: validation, suggestions for misspelled ones, and file names that are not text."""

from __future__ import annotations

import difflib
import os
import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_METRIC_NAME = re.compile(r"[A-Za-z]\w{0,63}", re.ASCII)
_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)
_KINDS: dict[type | tuple[type, ...], str] = {
    str: "a string", bool: "a boolean", (int, float): "a number", dict: "an object", list: "a list", tuple: "a tuple"
}  # fmt: skip
_NOT_IN_NAMES = ("Cc", "Cs", "Zl", "Zp")  # control characters, lone surrogates, line ends


def name_problem(name: str, max_chars: int, *, required: bool = True) -> str:
    """Return why a text cannot be a name or id, or the empty text.

    Names are printed in tables and logged, so they contain no line ends or other control characters.
    """
    if len(name) > max_chars or (required and not name):
        due = f"1 to {max_chars}" if required else f"at most {max_chars}"
        return f"must have {due} characters, not {len(name)}"
    if name.isascii() and name.isprintable():
        return ""
    if any(unicodedata.category(char) in _NOT_IN_NAMES for char in name):
        return f"must not hold control characters: {name[:60]!a}"
    return ""


def metric_name_problem(name: str) -> str:
    """Return why a text cannot name a metric, in formulas, gates and reports, or the empty text."""
    return "" if _METRIC_NAME.fullmatch(name) else "a metric's name has letters, digits and _, and starts with a letter"


def run_id_problem(run_id: str) -> str:
    """Return why a text cannot be a run's id, or the empty text.

    Ids name folders and files, and are printed and logged unchanged.
    """
    if _RUN_ID.fullmatch(run_id):
        return ""
    return f"a run's id has 1 to 128 letters, digits and . _ -, and starts with none of . and -; not {run_id[:60]!a}"


def folder_name(name: str) -> str:
    """Return a folder name for a name: slashes become hyphens, and leading dots are removed."""
    safe = re.sub(r"[/\\\x00]+", "-", name)
    return f"-{safe[1:]}" if safe.startswith(".") else safe


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to `name`, or None if none is close."""
    known = list(known)
    folded = {candidate.lower().replace("-", "_"): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower().replace("-", "_"), folded, n=1, cutoff=0.6)
    return folded[matches[0]] if matches else None


def writable(path: Path | str) -> str:
    """Return a file's name as storable text: bytes that are not UTF-8 become escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def kind_of(value: object) -> str:
    """Return a value's type for messages: "an object" for a dict, "a number" for 3; else the type's name."""
    if value is None:
        return "nothing (None or null)"
    return next((name for kind, name in _KINDS.items() if isinstance(value, kind)), type(value).__name__)


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Return the sentence for an unknown name, with the nearest known name or all of them."""
    known = list(known)
    close = nearest(name, known) if isinstance(name, str) else None
    shown = name if isinstance(name, str) and len(name) <= 60 else str(name)[:60]
    hint = f"did you mean {close!r}?" if close is not None else f"known: {', '.join(known)}"
    return f"unknown {kind} {shown!r}; {hint}"
