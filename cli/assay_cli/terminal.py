"""Text for a terminal: what users and models wrote is hostile here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from assay.unsafe_text import UNSAFE, escaped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["clean", "json_text", "shorten", "table"]

_SPACES = "\n\t\u2028\u2029"


def clean(text: str, *, keep_lines: bool = False) -> str:
    """Return the text without escape sequences, control characters, bidi controls and invisible characters.

    Args:
        text: Any text.
        keep_lines: Whether line breaks and tabs stay; otherwise they become spaces.
    """
    if text.isascii() and text.isprintable():
        return text
    kept = "\n\t" if keep_lines else ""

    def shown(char: str) -> str:
        if char in kept:
            return char
        return "\ufffd" if char == "\x1b" else " " if char in _SPACES else ""

    return UNSAFE.sub(lambda found: shown(found[0]), text)


def json_text(document: object, *, indent: int | None = None) -> str:
    """Return a document as JSON that a terminal shows as it is: unsafe characters are escaped in it."""
    return escaped(json.dumps(document, ensure_ascii=False, allow_nan=False, indent=indent), keep_lines=True)


def shorten(text: str, width: int) -> str:
    """Return a clean single line of at most `width` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def table(rows: Sequence[tuple[str, ...]], paint: Callable[[str], str] = str) -> str:
    """Return rows as aligned columns of clean text; the first row is the heading, the first column text.

    Args:
        rows: The cells.
        paint: Adds colours to a clean cell of the last column, which no padding follows.
    """
    rows = [tuple(map(clean, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if index in (0, len(row) - 1) else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        cells[-1] = paint(cells[-1].rstrip())
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
