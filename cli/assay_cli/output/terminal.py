"""Text for a terminal: what users and models wrote is hostile here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from assay.reports.words.run_commands import case_command
from assay.text.screen import LEAST_WIDTH, columns_of
from assay.text.unsafe_text import CUT, clean, without_commands
from assay_cli.resume_hint import pasted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

_COLOURS = {"PASS": "32", "FAIL": "31", "INCOMPLETE": "33", "NO_DATA": "33", "NO_CRITERIA": "33"}


WIDE = 240
"""Columns of a pipe or a file: an answer of 200,000 characters is no line of a CI log."""
REASON_CHARS = 200
"""Of a reason on a terminal, where it wraps."""


def cut_width(out: TextIO) -> int:
    """Return after how many columns texts on a stream are cut: those of its terminal, 240 for a pipe or a file."""
    return max(LEAST_WIDTH, columns_of(out)) if out.isatty() else WIDE


def whole_text_hint(lines: Sequence[str], run_id: str, case_id: str) -> str:
    """Return the sentence that says where cut texts of a case are whole; empty where no line of it is cut.

    Args:
        lines: As they are printed.
        run_id: The run.
        case_id: The case, untrusted.
    """
    if not any(CUT in line for line in lines):
        return ""
    return pasted(f"texts that end in {CUT} are cut: see the reports or `{case_command(run_id, case_id)}`")


def forces_colour() -> bool:
    """Return whether colours go to pipes and files, too: FORCE_COLOR is set, and NO_COLOR is not."""
    return bool(os.environ.get("FORCE_COLOR")) and not os.environ.get("NO_COLOR")


def painter(out: TextIO) -> Callable[[str], str]:
    """Return what colours a verdict such as PASS where a stream goes to a terminal that wants colours.

    NO_COLOR switches colours off, FORCE_COLOR on, in this order; empty variables count as unset.
    """
    is_coloured = out.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    if not is_coloured and not forces_colour():
        return str
    return lambda mark: f"\x1b[{_COLOURS[mark]}m{mark}\x1b[0m" if mark in _COLOURS else mark


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
    return without_commands("\n".join(lines))
