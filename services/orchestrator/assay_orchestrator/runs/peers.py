"""The other processes that share a database: what they do to the runs of this one, and what they have lost."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from assay.errors import AssayError, StorageError
from assay_orchestrator.store import runs, shards, unjudged

if TYPE_CHECKING:
    import sqlalchemy as sa

    from assay.storage.database import Database
    from assay_orchestrator.engine.dispatcher import Dispatcher
    from assay_orchestrator.engine.worker import ShardWorker
    from assay_orchestrator.store.runs import RunStatus
    from assay_orchestrator.store.shards import ActiveShard, ShardJob

__all__ = ["Affected", "Peers"]

_FOLLOW_S, _MOST_FOLLOW_S = 0.2, 0.5
_FOLLOW_PER_WATCHER_S = 0.004
"""Each look wakes those who watch a run that has moved: with many of them they are told less often, of more."""
_CANCEL_AGAIN_S = 0.5

_log = logging.getLogger(__name__)


class Affected(Protocol):
    """Whoever owns the runs of this process."""

    def here(self) -> set[str]:
        """Return the runs that are worked on, hosted or watched here."""
        ...

    def watcher_count(self) -> int:
        """Return how many watchers there are here."""
        ...

    def moved_elsewhere(self, run_id: str, status: RunStatus | None) -> None:
        """Hear how a run stands that has moved, perhaps by somebody else's doing; None where it was deleted."""
        ...


class Peers:
    """Follows what other processes do, and gives work to somebody that nobody has any more.

    Args:
        database: Where all of them meet.
        dispatcher: Knows which jobs there are.
        worker: Enqueues.
        affected: Hears what has moved.
        reconcile_s: How often to look for shards that nobody has, in seconds.
    """

    def __init__(
        self,
        database: Database,
        dispatcher: Dispatcher,
        worker: ShardWorker,
        affected: Affected,
        *,
        reconcile_s: float,
    ) -> None:
        self._database = database
        self._dispatcher = dispatcher
        self._worker = worker
        self._affected = affected
        self._reconcile_s = reconcile_s
        self._loops: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin."""
        self._loops = [
            asyncio.create_task(self._follow(), name="follow other processes"),
            asyncio.create_task(self._look_for_lost(), name="look for lost shards"),
        ]

    async def aclose(self) -> None:
        """End."""
        while running := [loop for loop in self._loops if not loop.done()]:
            for loop in running:
                loop.cancel()
            # Again, for one may be lost: that of a wait for a connection that is there in the same moment.
            await asyncio.wait(running, timeout=_CANCEL_AGAIN_S)

    async def _follow(self) -> None:
        seen: dict[str, RunStatus] = {}
        while True:
            pause_s = self._affected.watcher_count() * _FOLLOW_PER_WATCHER_S
            await asyncio.sleep(min(max(pause_s, _FOLLOW_S), _MOST_FOLLOW_S))
            here = sorted(self._affected.here())
            if not here:
                continue
            try:
                found = await self._database.read(lambda c, here=here: runs.read_statuses(c, here))  # type: ignore[misc]
            except StorageError:
                continue  # whoever needs the store hears of it there
            for run_id in here:
                if found.get(run_id) is None or found[run_id] != seen.get(run_id):
                    self._affected.moved_elsewhere(run_id, found.get(run_id))
            seen = found

    async def _look_for_lost(self) -> None:
        while True:
            try:
                await self.reconcile()
            except AssayError as problem:
                _log.warning("cannot look for orphaned shards, retrying: %s", problem.message)
            except Exception:  # noqa: BLE001 - the loop must not end
                _log.exception("looking for orphaned shards failed")
            await asyncio.sleep(self._reconcile_s)

    async def reconcile(self) -> None:
        """Enqueue again what should have a job and has none, whatever became of that.

        Raises:
            StorageError: The store does not answer.
        """
        held = await self._database.read(shards.list_active)
        lost = set(await self._dispatcher.lost([one.job for one in held]))
        for one in held:
            if one.job in lost:
                _log.warning("requeueing orphaned shard: run=%s shard=%s", one.job.run_id, one.job.shard_index)
                await self._worker.enqueue(lambda c, one=one: self._again(c, one))  # type: ignore[misc]
        for run_id in await self._database.read(runs.list_idle):
            await self._worker.enqueue(lambda c, run_id=run_id: self._worker.next_jobs(c, run_id))  # type: ignore[misc]

        for run_id in await self._database.read(runs.list_storage_pauses):
            if not self._worker.pauses.reason(run_id):  # the process that paused it is gone
                await self._worker.resume_from_storage(run_id)
        for run_id in await self._database.read(unjudged.list_awaiting):
            self._worker.repoll_timers.schedule(run_id)  # the process that had the timer may have ended

    def _again(self, connection: sa.Connection, lost: ActiveShard) -> list[ShardJob]:
        shards.lock_sharing(connection, lost.job.run_id)
        shards.release_orphan(connection, lost)
        return self._worker.next_jobs(connection, lost.job.run_id)
