"""The rows of a run as its watch brought them, so that a report need not read them once again when the run ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.model.run import CaseResult, Run, StateChange

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from assay.client.client import Client
    from assay.reports.document.prepared_rows import PreparedRows

MOST_ROWS = 10_000
"""Runs of more rows are read again: memory must not grow with them."""
_MOST_CHARS = 16_000_000


class WatchedRows:
    """Collects the rows of a watch with answers; a watch that is resumed may bring a row again, or its successor.

    Args:
        row_count: How many rows the run has.
        is_bounded: Whether memory is: then rows are given up once they are many or long.
        prepared: Makes what reports need of each row as it comes; None where no report is written.
    """

    def __init__(self, row_count: int, *, is_bounded: bool = True, prepared: PreparedRows | None = None) -> None:
        self.prepared = prepared
        self._rows: dict[tuple[int, int], CaseResult] = {}
        self._is_bounded = is_bounded
        self._char_count = 0
        self.is_wanted = row_count <= MOST_ROWS or not is_bounded
        """Whether the watch should bring answers: the rows are kept, as far as is known."""

    def take(self, event: Run | StateChange | CaseResult) -> None:
        """Take an event of the watch."""
        if not isinstance(event, CaseResult) or not self.is_wanted:
            return
        self._rows[event.case_index, event.repeat_index] = event
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

    async def rows(self, client: Client, run: Run) -> AsyncIterator[CaseResult]:
        """Yield all rows of a run that has ended, in dataset order: those that were collected where none is missing."""
        if self.is_wanted and run.finished and len(self._rows) == run.counts.finished:
            for key in sorted(self._rows):
                yield self._rows[key]
        else:
            async for row in client.list_results(run.run_id):
                yield row


def _chars(row: CaseResult) -> int:
    answer = len(row.response.text) + len(str(row.response.metadata)) if row.response is not None else 0
    expected = len(str(row.expected)) if row.expected else 0
    return 1000 + answer + len(row.input) + sum(map(len, row.references)) + expected
