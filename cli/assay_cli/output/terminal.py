"""Text for a terminal; text from users and models is untrusted."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from assay.reports.words.run_commands import case_command
from assay.text.screen import LEAST_WIDTH, columns_of
from assay.text.unsafe_text import CUT, clean, without_commands
from assay_cli.exit_status import EXIT_INTERRUPTED, EXIT_USAGE
from assay_cli.resume_hint import pasted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

_COLOURS = {"PASS": "32", "FAIL": "31", "INCOMPLETE": "33", "NO_DATA": "33", "NO_CRITERIA": "33"}


WIDE = 240
"""Columns of a pipe or a file: a CI log cannot take a line of 200,000 characters."""
REASON_CHARS = 200
"""Maximum columns of a reason on a terminal, where it wraps."""


def cut_width(out: TextIO) -> int:
    """Return the column at which texts on a stream are cut: the terminal's width, or 240 for a pipe or a file."""
    return max(LEAST_WIDTH, columns_of(out)) if out.isatty() else WIDE


def whole_text_hint(lines: Sequence[str], run_id: str, case_id: str) -> str:
    """Return a sentence that names where to read the cut texts of a case in full; empty if no line is cut.

    Args:
        lines: The printed lines.
        run_id: Id of the run.
        case_id: Id of the case, untrusted.
    """
    if not any(CUT in line for line in lines):
        return ""
    return pasted(f"texts that end in {CUT} are cut: see the reports or `{case_command(run_id, case_id)}`")


def forces_colour() -> bool:
    """Return whether pipes and files get colours too: FORCE_COLOR is set, and NO_COLOR is not."""
    return bool(os.environ.get("FORCE_COLOR")) and not os.environ.get("NO_COLOR")


def painter(out: TextIO) -> Callable[[str], str]:
    """Return a function that colours a verdict such as PASS if the stream is a terminal with colours.

    NO_COLOR switches colours off, otherwise FORCE_COLOR switches them on; empty variables count as unset.
    """
    is_coloured = out.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    if not is_coloured and not forces_colour():
        return str
    return lambda mark: f"\x1b[{_COLOURS[mark]}m{mark}\x1b[0m" if mark in _COLOURS else mark


def table(rows: Sequence[tuple[str, ...]], paint: Callable[[str], str] = str, *, text_columns: int = 1) -> str:
    """Return rows as aligned columns of clean text; the first row is the heading.

    Args:
        rows: The cells.
        paint: Colours a clean cell of the last column, which has no padding.
        text_columns: Number of columns, from the first, that are aligned to the left as the last one is.
    """
    rows = [tuple(map(clean, row)) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if index < text_columns or index == len(row) - 1 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        cells[-1] = paint(cells[-1].rstrip())
        lines.append("  ".join(cells).rstrip())
    return without_commands("\n".join(lines))


def size_text(count: int) -> str:
    """Return a number of bytes for people, e.g. "3.4 MiB"."""
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024 or unit == "GiB":
            break
    return f"{size:.1f} {unit}"


def confirm_deletion(subject: str) -> int | None:
    """Ask whether to delete something; return the exit status if that is refused."""
    if not sys.stdin.isatty():
        click.echo("error: nothing was deleted: stdin is not a terminal to confirm on; add --yes", err=True)
        return EXIT_USAGE
    if click.confirm(f"delete {subject}?", err=True):
        return None
    click.echo("nothing was deleted", err=True)
    return EXIT_INTERRUPTED
