"""The other processes that share a database: polls for their changes and requeues orphaned shards."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from assay.errors import AssayError, StorageError
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.shards import shards, unjudged

if TYPE_CHECKING:
    import sqlalchemy as sa

    from assay.storage.database import Database
    from assay_orchestrator.engine.dispatcher import Dispatcher
    from assay_orchestrator.engine.worker import ShardWorker
    from assay_orchestrator.store.runs.runs import RunStatus
    from assay_orchestrator.store.shards.shards import ActiveShard, ShardJob

_FOLLOW_S, _MOST_FOLLOW_S = 0.2, 0.5
_FOLLOW_PER_WATCHER_S = 0.004
"""Each poll wakes the watchers of changed runs, so with many watchers polls are less frequent."""
_CANCEL_AGAIN_S = 0.5

_log = logging.getLogger(__name__)


class RunOwner(Protocol):
    """The owner of this process's runs."""

    def local_runs(self) -> set[str]:
        """Return the runs that are in progress, hosted or watched here."""

    def watcher_count(self) -> int:
        """Return the number of watchers here."""

    def on_run_changed(self, run_id: str, status: RunStatus | None) -> None:
        """Apply a change of a run, perhaps by another process; the status is None if the run was deleted."""


class Peers:
    """Polls this process's runs for changes by other processes, and requeues orphaned shards.

    Args:
        database: The database that they share.
        dispatcher: Knows which jobs exist.
        worker: Enqueues jobs.
        owner: Applies the changes.
        reconcile_s: Time between searches for orphaned shards, in seconds.
    """

    def __init__(
        self,
        database: Database,
        dispatcher: Dispatcher,
        worker: ShardWorker,
        owner: RunOwner,
        *,
        reconcile_s: float,
    ) -> None:
        self._database = database
        self._dispatcher = dispatcher
        self._worker = worker
        self._owner = owner
        self._reconcile_s = reconcile_s
        self._loops: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start polling and searching."""
        self._loops = [
            asyncio.create_task(self._follow(), name="poll changes of other processes"),
            asyncio.create_task(self._search_orphans(), name="search for orphaned shards"),
        ]

    async def aclose(self) -> None:
        """Stop both."""
        while running := [loop for loop in self._loops if not loop.done()]:
            for loop in running:
                loop.cancel()
            # Cancelled again, because a cancel may get lost in a wait for a connection that arrives in the same moment.
            await asyncio.wait(running, timeout=_CANCEL_AGAIN_S)

    async def _follow(self) -> None:
        seen: dict[str, RunStatus] = {}
        while True:
            pause_s = self._owner.watcher_count() * _FOLLOW_PER_WATCHER_S
            await asyncio.sleep(min(max(pause_s, _FOLLOW_S), _MOST_FOLLOW_S))
            here = sorted(self._owner.local_runs())
            if not here:
                continue
            try:
                statuses = await self._database.read(lambda c, here=here: runs.read_statuses(c, here))  # type: ignore[misc]
            except StorageError:
                continue  # calls that need the store report the problem
            for run_id in here:
                if statuses.get(run_id) is None or statuses[run_id] != seen.get(run_id):
                    self._owner.on_run_changed(run_id, statuses.get(run_id))
            seen = statuses

    async def _search_orphans(self) -> None:
        while True:
            try:
                await self.reconcile()
            except AssayError as problem:
                _log.warning("cannot search for orphaned shards, retrying: %s", problem.message)
            except Exception:  # noqa: BLE001 - the boundary of a task: the loop must not end
                _log.exception("search for orphaned shards failed")
            await asyncio.sleep(self._reconcile_s)

    async def reconcile(self) -> None:
        """Requeue active shards without a job, and resume the storage pauses of processes that have ended.

        Raises:
            StorageError: The store does not answer.
        """
        active = await self._database.read(shards.list_active)
        lost = set(await self._dispatcher.find_lost([shard.job for shard in active]))
        for shard in active:
            if shard.job in lost:
                _log.warning("requeueing orphaned shard: run=%s shard=%s", shard.job.run_id, shard.job.shard_index)
                await self._worker.enqueue(lambda c, shard=shard: self._again(c, shard))  # type: ignore[misc]
        await self._worker.requeue_idle()
        for run_id in await self._database.read(runs.list_storage_pauses):
            if not self._worker.pauses.message(run_id):  # the process that paused it has ended
                await self._worker.resume_from_storage(run_id)
        for run_id in await self._database.read(unjudged.list_awaiting):
            self._worker.repoll_timers.schedule(run_id)  # the process that had the timer may have ended

    def _again(self, connection: sa.Connection, lost: ActiveShard) -> list[ShardJob]:
        shards.lock_sharing(connection, lost.job.run_id)
        shards.release_orphan(connection, lost)
        return self._worker.next_jobs(connection, lost.job.run_id)
