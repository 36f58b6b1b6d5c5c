"""Deletion of runs and datasets: removes their rows in batches, between other writes."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from assay.errors import StorageError
from assay.process.failpoints import failpoint
from assay_orchestrator.store.removal import deletions

if TYPE_CHECKING:
    from assay.storage.database import Database
    from assay_orchestrator.store.removal.deletions import PendingDeletion

BATCH_ROWS = 2000

_log = logging.getLogger(__name__)


class Deleter:
    """Removes the rows of deleted runs and the cases of deleted datasets, one at a time.

    The store records pending deletions: the next start continues a deletion that a stop or a full disk interrupted.

    Args:
        database: The store.
        batch_rows: Maximum number of rows that a transaction removes.
    """

    def __init__(self, database: Database, *, batch_rows: int = BATCH_ROWS) -> None:
        self._database = database
        self._batch_rows = batch_rows
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def recover(self) -> None:
        """Continue interrupted deletions in the background."""
        for pending in await self._database.read(deletions.list_pending):
            self._start(pending)

    async def finish(self, pending: PendingDeletion) -> None:
        """Remove the rows of a deletion; cancelling the call does not stop the removal.

        Raises:
            StorageError: The store cannot be written; the next start removes the rest.
        """
        await asyncio.shield(self._start(pending))

    async def aclose(self) -> None:
        """Stop between two batches."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, pending: PendingDeletion) -> asyncio.Task[None]:
        task = asyncio.create_task(self._remove(pending), name=f"deletion of {pending.run_id or pending.upload_id}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            _log.error("%s stopped: %s", task.get_name(), problem, exc_info=not isinstance(problem, StorageError))

    async def _remove(self, pending: PendingDeletion) -> None:
        async with self._turn:
            while await self._database.write(lambda c: deletions.remove_some(c, pending, self._batch_rows)):
                failpoint("deletion.batch_removed")
