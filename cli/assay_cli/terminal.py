"""Text for a terminal: what users and models wrote is hostile here."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["clean", "shorten", "table"]

_HARMLESS = {"\n", "\t"}
_BIDI = {chr(code) for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def clean(text: str, *, keep_lines: bool = False) -> str:
    """Return the text without escape sequences, control characters and bidi controls.

    Args:
        text: Any text.
        keep_lines: Whether line breaks and tabs stay; otherwise they become spaces.
    """
    kept = []
    for char in text:
        if char in _HARMLESS:
            kept.append(char if keep_lines else " ")
        elif unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or char in _BIDI:
            kept.append("\ufffd" if char == "\x1b" else " " if unicodedata.category(char).startswith("Z") else "")
        else:
            kept.append(char)
    return "".join(kept)


def shorten(text: str, width: int) -> str:
    """Return a clean single line of at most `width` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows as aligned columns; the first row is the heading, the first column text."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index in (0, len(row) - 1) else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
