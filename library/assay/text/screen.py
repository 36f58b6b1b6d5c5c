"""The width of a stream's terminal, and whether its lines can be redrawn."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

LEAST_WIDTH = 60
"""Columns below which lines wrap anyway: texts are not cut further, and no line is redrawn."""

_USUAL_WIDTH = 110  # for a terminal that reports no width


def can_redraw(out: TextIO) -> bool:
    """Return whether a line can be redrawn: not in a file, and not on a dumb or narrow terminal."""
    return out.isatty() and os.environ.get("TERM") != "dumb" and columns_of(out) >= LEAST_WIDTH


def columns_of(out: TextIO) -> int:
    """Return the width of a stream's terminal in columns; `COLUMNS` in the environment takes precedence."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(out.fileno()).columns or _USUAL_WIDTH
    except (OSError, ValueError):
        return _USUAL_WIDTH
