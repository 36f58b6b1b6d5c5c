"""Escaping of CSV cells that a spreadsheet would run as formulas."""

from __future__ import annotations

import re
import unicodedata

from assay.text.unsafe_text import clean

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_STARTS = frozenset("=+-@\u2212")
"""Characters that begin a formula, and the minus sign, which some spreadsheets take for a hyphen."""


def csv_text(text: str) -> str:
    """Return an untrusted text as the content of a cell.

    A text that a spreadsheet may take for a formula gets a leading apostrophe; a number does not change. Line ends
    stay. Characters that change how a terminal or a spreadsheet shows the text are removed.
    """
    kept = "\r".join(clean(part, keep_lines=True) for part in text.split("\r"))
    return f"'{kept}" if _may_be_formula(kept) else kept


def csv_value(cell: str) -> str:
    """Return the text of a cell without the apostrophe that `csv_text` may have added."""
    return cell[1:] if cell.startswith("'") and _may_be_formula(cell[1:]) else cell


def _may_be_formula(text: str) -> bool:
    if text[:1] in ("\t", "\r", "\n"):
        return True  # some programs strip these and read the rest
    start = text.lstrip()
    if not start or _NUMBER.fullmatch(start):
        return False
    # Full-width and small forms are the same characters to some programs.
    return unicodedata.normalize("NFKC", start[0])[:1] in _STARTS
