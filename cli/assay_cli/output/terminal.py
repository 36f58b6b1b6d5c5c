"""Text for a terminal: what users and models wrote is hostile here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from assay.text.screen import LEAST_WIDTH, columns_of
from assay.text.unsafe_text import clean, without_commands

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

_COLOURS = {"PASS": "32", "FAIL": "31", "INCOMPLETE": "33", "NO_DATA": "33", "NO_CRITERIA": "33"}


def cut_width(out: TextIO) -> int | None:
    """Return how many columns the terminal behind a stream has; None for a pipe or a file, where nothing is cut."""
    return max(LEAST_WIDTH, columns_of(out)) if out.isatty() else None


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
