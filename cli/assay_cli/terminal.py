"""Text for a terminal: what users and models wrote is hostile here."""

from __future__ import annotations

import unicodedata

__all__ = ["clean", "shorten"]

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
