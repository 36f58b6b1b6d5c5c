"""Characters that change how the text around them is shown: they never reach a terminal or a log as they are.

Names, questions and answers come from datasets, clients and models. An escape sequence in one of them may set a
terminal's title or clipboard, a line end may forge a log line, and a bidi control shows a text in another order.
"""

from __future__ import annotations

import json
import re

_SPACES = "\n\t\u2028\u2029"

UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # controls, C1 too: U+009B begins escape sequences
    "\u2028\u2029\ud800-\udfff"  # line ends, half characters
    # Format characters (Cf): bidi controls, zero-width ones, tags. Not the joiners U+200C and U+200D, and the signs of
    # Arabic, Syriac, Kaithi and Egyptian, with which people write.
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
"""One character that is not shown as it is."""
_MARKUP_COMMANDS = re.compile(r"^([^\S\n]*):(?=:)|#(?=#\w*\[)", re.MULTILINE)
_COMMANDS = re.compile(r"^(?=[^\S\n]*::)|##(?=\w*\[)", re.MULTILINE)


def escaped(text: str, *, keep_lines: bool = False) -> str:
    """Return a text with unsafe characters as JSON writes them, e.g. \\u202e.

    Args:
        text: Any text.
        keep_lines: Whether line ends and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return UNSAFE.sub(lambda found: found[0] if keep_lines and found[0] in "\n\t" else json.dumps(found[0])[1:-1], text)


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


_LINE = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def without_commands(text: str) -> str:
    """Return a text none of whose lines is a command to a CI server, which reads them in all output of a job.

    GitHub takes lines that begin with `::`, GitHub and Azure what begins with `##[` or `##vso[`, anywhere in a line.
    """
    return _COMMANDS.sub(lambda found: "# #" if found[0] else "| ", text)


CUT = "…"
"""The end of a text that was cut."""


def markup_without_commands(markup: str) -> str:
    """Return escaped XML or HTML that reads the same and holds no command to a CI server whose job prints the file."""
    return _MARKUP_COMMANDS.sub(lambda found: f"{found[1]}&#58;" if found[1] is not None else "&#35;", markup)


def json_text(document: object, *, indent: int | None = None) -> str:
    """Return a document as JSON that a terminal shows as it is: unsafe characters are escaped in it."""
    encoder = _LINE if indent is None else json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=indent)
    return escaped(encoder.encode(document), keep_lines=True)


def shorten(text: str, width: int | None) -> str:
    """Return a clean single line of at most `width` characters; None for no limit."""
    line = " ".join(clean(text).split())
    return line if width is None else cut(line, width)


def cut(line: str, width: int) -> str:
    """Return a clean line of at most `width` characters, its blanks as they are."""
    return line if len(line) <= width else line[: max(width, 1) - 1] + CUT
