"""Rows collected from a run's watch, so that reports need not read them again at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.model.run import RowResult, Run, StateChanged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from assay.client.client import Client
    from assay.reports.document.prepared_rows import PreparedRows

MOST_ROWS = 10_000
"""Rows of larger runs are read again, to bound the memory."""
_MOST_CHARS = 16_000_000


class WatchedRows:
    """Collects the rows of a watch with answers; a resumed watch may repeat or replace rows.

    Args:
        row_count: Number of rows of the run.
        is_bounded: Whether to bound the memory, by dropping the rows once they are many or long.
        prepared: Prepares rows for reports as they arrive; None without reports.
    """

    def __init__(self, row_count: int, *, is_bounded: bool = True, prepared: PreparedRows | None = None) -> None:
        self.prepared = prepared
        self._rows: dict[tuple[int, int], RowResult] = {}
        self._is_bounded = is_bounded
        self._char_count = 0
        self.is_wanted = row_count <= MOST_ROWS or not is_bounded
        """Whether the watch should include answers, because the rows are probably kept."""

    def take(self, event: Run | StateChanged | RowResult) -> None:
        """Add an event of the watch."""
        if not isinstance(event, RowResult) or not self.is_wanted:
            return
        self._rows[event.case_index, event.repeat] = event
        if not self._is_bounded:
            return
        chars = _chars(event)
        self._char_count += chars
        if self.prepared is not None:
            self.prepared.take(event, chars)
        if self._char_count > _MOST_CHARS:
            self.is_wanted = False
            self._rows.clear()
            if self.prepared is not None:
                self.prepared.clear()

    async def rows(self, client: Client, run: Run) -> AsyncIterator[RowResult]:
        """Yield all rows of an ended run in dataset order: the collected rows if complete, else the stored ones."""
        if self.is_wanted and run.finished and len(self._rows) == run.counts.finished_count:
            for key in sorted(self._rows):
                yield self._rows[key]
        else:
            async for row in client.list_rows(run.run_id):
                yield row


def _chars(row: RowResult) -> int:
    answer = len(row.response.text) + len(str(row.response.metadata)) if row.response is not None else 0
    expected = len(str(row.expected)) if row.expected else 0
    return 1000 + answer + len(row.input) + sum(map(len, row.references)) + expected
