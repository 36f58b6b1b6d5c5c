"""Progress of a group of runs: a line with the finished cases of each variant."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from assay.client.progress.row_outcomes import RowOutcomes
from assay.client.progress.run_progress import starting_text
from assay.model.run import RowResult, Run, StateChanged
from assay.text.screen import can_redraw, columns_of
from assay.text.unsafe_text import clean, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

_PLAIN_EVERY_S = 5.0
_LIVE_EVERY_S = 0.1
_MAX_NAME_CHARS = 24


class GroupProgress:
    """Shows the progress of a group: a live line on a terminal, occasional lines elsewhere.

    Args:
        runs: Runs by variant name, in order.
        hidden: Whether to show nothing.
        clock: Returns the time in seconds.
    """

    def __init__(self, runs: Mapping[str, Run], *, hidden: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._names = {run.run_id: clean(shorten(name, _MAX_NAME_CHARS)) for name, run in runs.items()}
        self._total = {run.run_id: run.counts.total_count for run in runs.values()}
        self._done = {run.run_id: run.counts.finished_count if run.finished else 0 for run in runs.values()}
        self._rows = {run.run_id: RowOutcomes(run.spec.repeats) for run in runs.values()}
        self._hidden = hidden or sys.stderr is None
        self._live = not self._hidden and can_redraw(sys.stderr)
        self._clock = clock
        self._shown_at = clock()
        self._starting = ""

    def __enter__(self) -> Self:
        self._say(f"{len(self._names)} variants: {', '.join(f'{name} (run {i})' for i, name in self._names.items())}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._show()
            self._write("\n")

    def taker(self, run_id: str) -> Callable[[Run | StateChanged | RowResult], None]:
        """Return the listener for the snapshots and events of a run."""

        rows = self._rows[run_id]
        before = self._done[run_id]

        def take(event: Run | StateChanged | RowResult) -> None:
            if isinstance(event, RowResult):
                if not rows.take(event):
                    return
                self._done[run_id] = before + rows.done
                every_s = _LIVE_EVERY_S if self._live else _PLAIN_EVERY_S
                if self._clock() - self._shown_at >= every_s or self._done == self._total:
                    self._show()
            elif isinstance(event, StateChanged) and event.message:
                self._say(f"{self._names[run_id]} {event.state.value}: {clean(event.message)}")

        return take

    def wait_for(self, services: Sequence[str]) -> None:
        """Set the services that are still starting; empty once all are ready."""
        self._starting = starting_text(services)
        if self._starting:
            self._say(self._starting)

    def show_wait(self) -> None:
        """Show nothing: the line on starting services stays."""

    def line(self) -> str:
        """Return the counts of finished and all rows per variant."""
        return "  ".join(f"{name} {self._done[i]:,}/{self._total[i]:,}" for i, name in self._names.items())

    def _show(self) -> None:
        self._shown_at = self._clock()
        if self._live:
            self._write(f"\r\x1b[2K{self.line()[: columns_of(sys.stderr) - 1]}")
        else:
            self._write(f"{self.line()}\n")

    def _say(self, text: str) -> None:
        self._write(f"\r\x1b[2K{text}\n" if self._live else f"{text}\n")

    def _write(self, text: str) -> None:
        if not self._hidden:
            sys.stderr.write(text)
            sys.stderr.flush()
