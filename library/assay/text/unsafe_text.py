"""Removal of characters that change how a terminal or a log shows the text around them.

Names, questions and answers come from datasets, clients and models. An escape sequence in them may set a terminal's
title or clipboard, a line end may forge a log line, and a bidi control reverses a text.
"""

from __future__ import annotations

import json
import re

_SPACES = "\n\t\u2028\u2029"

UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # controls, C1 too: U+009B begins escape sequences
    "\u2028\u2029\ud800-\udfff"  # line ends, half characters
    # Format characters (Cf): bidi controls, zero-width characters, tags. Excluded are the joiners U+200C and U+200D and
    # the signs of Arabic, Syriac, Kaithi and Egyptian, which people use in writing.
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
"""One unsafe character."""
_MARKUP_COMMANDS = re.compile(r"^([^\S\n]*):(?=:)|#(?=#\w*\[)", re.MULTILINE)
_COMMANDS = re.compile(r"^(?=[^\S\n]*::)|##(?=\w*\[)", re.MULTILINE)


def escaped(text: str, *, keep_lines: bool = False) -> str:
    """Return a text with unsafe characters escaped as in JSON, e.g. \\u202e.

    Args:
        text: Any text.
        keep_lines: Whether line ends and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return UNSAFE.sub(lambda match: match[0] if keep_lines and match[0] in "\n\t" else json.dumps(match[0])[1:-1], text)


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

    return UNSAFE.sub(lambda match: shown(match[0]), text)


_LINE = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def without_commands(text: str) -> str:
    """Return a text without commands to a CI server, which reads them in all output of a job.

    GitHub runs lines that begin with `::`; GitHub and Azure run `##[` and `##vso[` anywhere in a line.
    """
    return _COMMANDS.sub(lambda match: "# #" if match[0] else "| ", text)


CUT = "…"
"""The mark at the end of a cut text."""


def markup_without_commands(markup: str) -> str:
    """Return escaped XML or HTML of the same meaning, without commands to a CI server whose job prints the file."""
    return _MARKUP_COMMANDS.sub(lambda match: f"{match[1]}&#58;" if match[1] is not None else "&#35;", markup)


def json_text(document: object, *, indent: int | None = None) -> str:
    """Return a document as JSON with unsafe characters escaped, so that a terminal shows it unchanged."""
    encoder = _LINE if indent is None else json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=indent)
    return escaped(encoder.encode(document), keep_lines=True)


def shorten(text: str, width: int | None) -> str:
    """Return a clean single line of at most `width` characters; None for no limit."""
    line = " ".join(clean(text).split())
    return line if width is None else cut(line, width)


def cut(line: str, width: int) -> str:
    """Return a clean line of at most `width` characters; its blanks do not change."""
    return line if len(line) <= width else line[: max(width, 1) - 1] + CUT
