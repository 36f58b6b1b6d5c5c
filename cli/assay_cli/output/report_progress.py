"""Progress of what remains after a run's last row: reading rows again, then writing reports."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from assay.text.screen import can_redraw, columns_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_LIVE_EVERY_S = 0.1
_PLAIN_EVERY_S = 5.0


class ReportProgress:
    """A line that is redrawn on a terminal; elsewhere an occasional line while rows are read.

    Args:
        row_count: Number of the run's rows.
        hidden: Whether to show nothing.
        clock: Returns the time in seconds.
    """

    def __init__(self, row_count: int, *, hidden: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._row_count = row_count
        self._hidden = hidden or sys.stderr is None
        self._is_live = not self._hidden and can_redraw(sys.stderr)
        self._clock = clock
        self._shown_at = clock()
        self._read_count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def count_row(self) -> None:
        """Count a row that was read."""
        self._read_count += 1
        if self._clock() - self._shown_at >= (_LIVE_EVERY_S if self._is_live else _PLAIN_EVERY_S):
            self._show(f"reading rows  {self._read_count:,}/{self._row_count:,}")

    def show_format(self, name: str) -> None:
        """Show which report is being written, on a terminal."""
        if self._is_live:
            self._show(f"writing the report {name}")

    def clear(self) -> None:
        """Remove the line from a terminal, so that other output can follow."""
        if self._is_live:
            self._write("\r\x1b[2K")

    def _show(self, text: str) -> None:
        self._shown_at = self._clock()
        self._write(f"\r\x1b[2K{text[: columns_of(sys.stderr) - 1]}" if self._is_live else f"{text}\n")

    def _write(self, text: str) -> None:
        if not self._hidden:
            sys.stderr.write(text)
            sys.stderr.flush()
