"""What a stream can show: how wide its terminal is, and whether a line can be drawn again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

LEAST_WIDTH = 60
"""Columns below which lines wrap whatever is done: texts are not cut further, and no line is drawn again."""

_USUAL_WIDTH = 110  # of a terminal that does not say


def can_redraw(out: TextIO) -> bool:
    """Return whether a line on a stream can be drawn again: in no file, on no dumb and on no narrow terminal."""
    return out.isatty() and os.environ.get("TERM") != "dumb" and columns_of(out) >= LEAST_WIDTH


def columns_of(out: TextIO) -> int:
    """Return the width of a stream's terminal in columns; `COLUMNS` of the environment goes first."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(out.fileno()).columns or _USUAL_WIDTH
    except (OSError, ValueError):
        return _USUAL_WIDTH
