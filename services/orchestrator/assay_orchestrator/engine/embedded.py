"""Dispatching within one process: a heap of jobs and a limited number of tasks."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from math import inf
from typing import TYPE_CHECKING

from assay_orchestrator.engine.dispatcher import TryAgainError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import sqlalchemy as sa

    from assay_orchestrator.engine.dispatcher import Work
    from assay_orchestrator.store.shards.shards import ShardJob

_RETRY_S = 1.0

_log = logging.getLogger(__name__)


class EmbeddedDispatcher:
    """A dispatcher that keeps jobs in memory; after a restart, every unfinished shard waits again.

    Args:
        concurrency: Maximum number of concurrent jobs.
    """

    alone = True
    held_s = inf

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._waiting: list[tuple[int, int, ShardJob]] = []
        self._order = itertools.count()
        self._known: set[tuple[str, int, int]] = set()  # jobs waiting in the heap
        self._taken: set[tuple[str, int, int]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._later: set[asyncio.TimerHandle] = set()
        self._work: Work | None = None

    def enqueue(self, connection: sa.Connection, jobs: Sequence[ShardJob]) -> None:
        """Do nothing: memory takes no part in a transaction."""

    def remove_jobs(self, connection: sa.Connection, run_id: str) -> None:
        """Do nothing: the jobs of a deleted run are dropped when they are taken."""

    def committed(self, jobs: Iterable[ShardJob]) -> None:
        """Add the jobs that are not queued yet, and start as many as the limit allows."""
        for job in jobs:
            if _key(job) not in self._known:
                self._known.add(_key(job))
                heapq.heappush(self._waiting, (-job.priority, next(self._order), job))
        self._start()

    def open(self, work: Work) -> None:
        """Start taking jobs."""
        self._work = work
        self._start()

    def attend(self, run_id: str) -> None:
        """Do nothing: no other process could take the run's jobs."""

    def leave(self, run_id: str) -> None:
        """Do nothing, as `attend`."""

    async def until_sure(self) -> None:
        """Do nothing: no other process takes this one's jobs."""

    async def find_lost(self, jobs: Sequence[ShardJob]) -> list[ShardJob]:
        """Return the jobs that are not in memory."""
        return [job for job in jobs if _key(job) not in self._known | self._taken]

    async def aclose(self) -> None:
        """Stop taking jobs, and wait until the jobs in progress have returned."""
        self._work = None
        for handle in self._later:
            handle.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self) -> None:
        while self._work is not None and self._waiting and len(self._tasks) < self._concurrency:
            _, _, job = heapq.heappop(self._waiting)
            task = asyncio.create_task(self._do(self._work, job), name=f"shard {job.run_id}/{job.shard_index}")
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._start()

    async def _do(self, work: Work, job: ShardJob) -> None:
        # Removed from the waiting jobs before the work starts: its end may enqueue the same shard at once.
        key = _key(job)
        self._known.discard(key)
        self._taken.add(key)
        try:
            await work(*key)
        except TryAgainError as again:
            self._again(job, again.after_s)
        except Exception:  # noqa: BLE001 - the boundary of a task: a defect must not lose the job
            _log.exception("shard failed: run=%s shard=%s", job.run_id, job.shard_index)
            self._again(job, _RETRY_S)
        finally:
            self._taken.discard(key)

    def _again(self, job: ShardJob, after_s: float) -> None:
        def come() -> None:
            self._later.discard(handle)
            self.committed([job])

        handle = asyncio.get_running_loop().call_later(after_s, come)
        self._later.add(handle)


def _key(job: ShardJob) -> tuple[str, int, int]:
    return (job.run_id, job.shard_index, job.ticket)
