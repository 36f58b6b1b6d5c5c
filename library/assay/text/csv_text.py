"""CSV files for spreadsheets, with cells escaped that would run as formulas."""

from __future__ import annotations

import csv
import re
import unicodedata
from typing import IO, TYPE_CHECKING

from assay.text.unsafe_text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LINE_END = "\r\n"  # RFC 4180's
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


def write_csv(file: IO[str], heading: Iterable[str], lines: Iterable[Iterable[object]]) -> None:
    """Write a heading and lines of untrusted texts, numbers and empty cells (None)."""
    writer = csv.writer(file, lineterminator=_LINE_END)
    writer.writerow([csv_text(name) for name in heading])
    writer.writerows(
        [value if value is None or isinstance(value, int | float) else csv_text(str(value)) for value in line]
        for line in lines
    )


def plain_number(value: float | None) -> float | int | None:
    """Return a number without a needless ".0"."""
    return int(value) if value is not None and value == int(value) and abs(value) < 1 << 53 else value


def _may_be_formula(text: str) -> bool:
    if text[:1] in ("\t", "\r", "\n"):
        return True  # some programs strip these and read the rest
    start = text.lstrip()
    if not start or _NUMBER.fullmatch(start):
        return False
    # Full-width and small forms are the same characters to some programs.
    return unicodedata.normalize("NFKC", start[0])[:1] in _STARTS
