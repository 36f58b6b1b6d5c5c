"""The scorers of an orchestrator: started on demand, kept warm, and replaced if a job ended them."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from assay_orchestrator.scorers.scorer import Scorer, ScorerDiedError

if TYPE_CHECKING:
    from assay_orchestrator.scorers.jobs import MapReply, ScoreRow
    from assay_orchestrator.settings import ScoringLimits

_RETRIED = ("scoring_crashed", "scoring_unavailable")
"""Failures that may not be the job's fault: a scorer may be killed from outside. The job is retried once."""

_log = logging.getLogger(__name__)


_MOST_REMEMBERED = 1_000

J = TypeVar("J")


class FairQueue(Generic[J]):
    """Jobs of several owners; the next job is from the owner that has used the least time.

    A new owner, or one without jobs for a while, starts level with the waiting owners: unused time is not saved.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, deque[J]] = {}
        self._used: dict[str, float] = {}
        self._floor = 0.0

    def __len__(self) -> int:
        return sum(map(len, self._jobs.values()))

    def put(self, owner: str, job: J) -> None:
        """Add a job behind the others of its owner."""
        self._used[owner] = max(self._floor, self._used.get(owner, 0.0))
        self._jobs.setdefault(owner, deque()).append(job)

    def take(self) -> tuple[str, J]:
        """Return the next job and its owner; there must be a job."""
        owner = min(self._jobs, key=self._used.__getitem__)
        jobs = self._jobs[owner]
        job = jobs.popleft()
        if not jobs:
            del self._jobs[owner]
        self._floor = self._used[owner]
        return owner, job

    def charge(self, owner: str, seconds: float) -> None:
        """Record the time of an owner's job."""
        self._used[owner] = max(self._floor, self._used.get(owner, 0.0)) + seconds
        if not self._jobs:  # with nothing waiting, there is nothing to be fair about
            self._floor = max(self._used.values())
            self._used.clear()
        elif len(self._used) > _MOST_REMEMBERED:
            self._used = {name: used for name, used in self._used.items() if name in self._jobs or used > self._floor}


class ScoringFailedError(Exception):
    """A job has no result; `failure` is a stable word: scoring_timeout, scoring_memory, scoring_crashed, …"""

    def __init__(self, failure: str) -> None:
        super().__init__(failure)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class _Waiting:
    job: ScoreRow | MapReply
    result: asyncio.Future[Any]


class ScorerPool:
    """Runs jobs in scorer processes; the next job is from the run that has used the least of their time.

    Args:
        limits: The maximum number of scorers, and the limits of a job.
    """

    def __init__(self, limits: ScoringLimits) -> None:
        self.limits = limits
        self.turn = asyncio.Lock()
        """Held while a row of some work is scored on the event loop: one per round of the loop."""
        self._queue: FairQueue[_Waiting] = FairQueue()
        self._queued = asyncio.Semaphore(0)
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = 0
        self._closed = False

    async def do(self, run_id: str, job: ScoreRow | MapReply) -> Any:
        """Return a job's result.

        Args:
            run_id: The run of the job.
            job: The job.

        Raises:
            ScoringFailedError: It has none.
            asyncio.CancelledError: The pool is closed: the row is neither scored nor wrong.
        """
        if self._closed:
            raise asyncio.CancelledError
        waiting = _Waiting(job, asyncio.get_running_loop().create_future())
        self._queue.put(run_id, waiting)
        self._queued.release()
        if len(self._queue) > self._idle and len(self._tasks) < self.limits.scorers:
            task = asyncio.create_task(self._serve(), name="scorer")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await waiting.result

    async def aclose(self) -> None:
        """End all scorers and cancel the calls that wait for results; a second call does nothing."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._queue:
            self._queue.take()[1].result.cancel()

    async def _serve(self) -> None:
        slot = _Slot(self.limits)
        try:
            while True:
                self._idle += 1
                try:
                    await self._queued.acquire()
                finally:
                    self._idle -= 1
                run_id, waiting = self._queue.take()
                if waiting.result.done():
                    continue  # cancelled
                started = monotonic()
                try:
                    await _finish(waiting, slot, run_id)
                finally:
                    self._queue.charge(run_id, monotonic() - started)
        finally:
            await asyncio.shield(slot.aclose())


class _Slot:
    """The slot of one scorer, which is started on demand.

    Args:
        limits: The limits of a job.
    """

    def __init__(self, limits: ScoringLimits) -> None:
        self._limits = limits
        self._scorer: Scorer | None = None

    async def do(self, payload: bytes) -> tuple[Any, str]:
        """Return a job's result, or why it has none."""
        try:
            self._scorer = self._scorer or await Scorer.start(self._limits)
            done = await self._scorer.do(payload)
        except ScorerDiedError as death:
            await self.aclose()
            return None, death.failure
        if self._scorer is not None and self._scorer.is_last:
            await self.aclose()
        return done

    async def aclose(self) -> None:
        """End the scorer, if there is one."""
        scorer, self._scorer = self._scorer, None
        if scorer is not None:
            await scorer.aclose()


async def _finish(waiting: _Waiting, slot: _Slot, run_id: str) -> None:
    try:
        # Off the loop: a row may have ten thousand small parts.
        payload = await asyncio.to_thread(pickle.dumps, waiting.job, pickle.HIGHEST_PROTOCOL)
        result, failure = await slot.do(payload)
        if failure in _RETRIED:
            _log.warning("retrying scoring job on a new scorer: reason=%s run=%s", failure, run_id)
            result, failure = await slot.do(payload)
    except asyncio.CancelledError:
        waiting.result.cancel()
        raise
    except Exception:  # noqa: BLE001 - the boundary of a case
        _log.exception("scoring job failed: run=%s", run_id)
        result, failure = None, "scoring_failed"
    if failure:
        _log.warning("scoring job has no result: reason=%s run=%s", failure, run_id)
    if waiting.result.done():
        return  # cancelled
    if failure:
        waiting.result.set_exception(ScoringFailedError(failure))
    else:
        waiting.result.set_result(result)
