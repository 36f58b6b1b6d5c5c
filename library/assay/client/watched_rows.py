"""Rows collected from a run's watch, so that they need not be read again at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.model.run import RowResult, Run, StateChanged

if TYPE_CHECKING:
    from assay.client.client import Client


class WatchedRows:
    """Collects the rows of a watch with answers; a resumed watch may repeat or replace rows."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int], RowResult] = {}

    def take(self, event: Run | StateChanged | RowResult) -> None:
        """Add an event of the watch."""
        if isinstance(event, RowResult):
            self._rows[event.case_index, event.repeat] = event

    async def rows(self, client: Client, run: Run) -> tuple[RowResult, ...]:
        """Return all rows of an ended run in dataset order: the collected rows if complete, else the stored ones."""
        if run.finished and len(self._rows) == run.counts.finished_count:
            return tuple(self._rows[key] for key in sorted(self._rows))
        return tuple([row async for row in client.list_rows(run.run_id)])
