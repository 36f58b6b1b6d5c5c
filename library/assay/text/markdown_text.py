"""Escaping of untrusted texts in Markdown: they make no link, mention, reference or tag, and end no cell.

GitHub and GitLab link addresses, `@names`, `#12`, `GH-12` and commit hashes in running text, and show `:names:` as
images and `$…$` as formulas. Inside code they do none of this.
"""

from __future__ import annotations

import re
import unicodedata

from assay.text.unsafe_text import shorten

_BREAK = "\u200b"  # invisible, and ends what a program would link
_ISOLATE, _END_OF_ISOLATE = "\u2068", "\u2069"
"""Marks around Arabic or Hebrew, which keep its full stop on the right side."""
_LINKED = re.compile(
    r"[@#!%&~^](?=[\w\"{\[])|\$"  # mentions, references, formulas
    r"|:(?=[\w+/-])"  # emoji, and the scheme of an address
    r"|(?i:\bGH-)(?=\d)"
    r"|\.(?=[^\W\d])|(?i:\bwww\.)"  # domains
    r"|[0-9a-fA-F]{6}(?=[0-9a-fA-F])"  # commit hashes
)
_STRUCTURE = re.compile(r"[\\`*{}\[\]<>&!|~#@$]|(?<![^\W_])_|_(?![^\W_])|^[-+=\d]")
_COMMAND = re.compile(r"#(?=#\w*\[)")  # to a CI server whose job prints the text
_TICKS = re.compile(r"`+")


def markdown_prose(text: str, width: int | None = None) -> str:
    """Return a sentence with untrusted names as running text of one line.

    Args:
        text: Any text.
        width: Of how many of its characters at most; None for no limit.
    """
    broken = _LINKED.sub(lambda match: match[0] + _BREAK, shorten(text, width))
    return _STRUCTURE.sub(lambda match: f"&#{ord(match[0])};", broken)


def markdown_code(text: str, width: int | None = None) -> str:
    """Return an untrusted text as code of one line, safe inside a table cell; empty for a blank text.

    Args:
        text: Any text.
        width: Of how many of its characters at most; None for no limit.
    """
    line = _COMMAND.sub("#" + _BREAK, shorten(text, width))
    if not line:
        return ""
    fence = "`" * (max((len(run) for run in _TICKS.findall(line)), default=0) + 1)
    # Inside a table, a bar ends its cell even in code. Readers differ about two backslashes before it.
    line = line.replace("\\|", f"\\{_BREAK}|").replace("|", "\\|")
    if any(unicodedata.bidirectional(char) in ("R", "AL") for char in line):
        line = f"{_ISOLATE}{line}{_END_OF_ISOLATE}"
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"
