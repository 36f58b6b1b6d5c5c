"""Storage pauses: a run whose rows the database refuses asks nothing until they are stored.

A full disk, a read-only server, a timeout or a missing right is no reason to ask again: the answers wait in memory, at
most one session's rows, and are stored later with exponential backoff. The run shows why it is paused and resumes by
itself.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from assay.errors import StorageError
from assay_orchestrator.instruments import STORAGE_PAUSED, STORAGE_PAUSES
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.runs.lifecycle import Command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import sqlalchemy as sa

    from assay.storage.database import Transactions

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a run waits before it tries to store its rows again.

    Args:
        first_s: The first wait, in seconds; each further wait is twice as long.
        max_s: The longest wait, in seconds.
    """

    first_s: float
    max_s: float


STORAGE_BACKOFF = Backoff(first_s=0.5, max_s=15.0)


class _Pause:
    """A run of this process that still has something to store."""

    def __init__(self, run_id: str, problem: StorageError) -> None:
        self.run_id = run_id
        self.problem = problem
        self.waiting_count = 0
        self.given_up = False
        self.over = asyncio.Event()
        self.retry = asyncio.Event()

    async def wait(self, backoff_s: float) -> None:
        """Wait for the next attempt."""
        self.retry.clear()
        if not self.given_up:
            try:
                async with asyncio.timeout(backoff_s):
                    await self.retry.wait()
            except TimeoutError:
                pass


class StoragePauses:
    """The runs of this process that are paused until their rows can be stored.

    Args:
        database: The store.
        on_change: Called with a run when it is paused here, and when it is resumed.
        resume: Ends a run's stored pause and enqueues its next jobs.
        backoff: How long the rows wait before the next attempt.
    """

    def __init__(
        self,
        database: Transactions,
        on_change: Callable[[str], None],
        resume: Callable[[str], Awaitable[None]],
        *,
        backoff: Backoff = STORAGE_BACKOFF,
    ) -> None:
        self._database = database
        self._on_change = on_change
        self._resume = resume
        self._backoff = backoff
        self._pauses: dict[str, _Pause] = {}
        self._closed = False

    def of(self, run_id: str) -> RunStore:
        """Return the database for the use of one run."""
        return RunStore(self, self._database, run_id)

    def message(self, run_id: str) -> str:
        """Return why a run's rows cannot be stored here; empty if they can."""
        pause = self._pauses.get(run_id)
        return pause.problem.message if pause is not None else ""

    def retry(self, run_id: str) -> None:
        """Store a run's rows now instead of after the backoff."""
        pause = self._pauses.get(run_id)
        if pause is not None:
            pause.retry.set()

    def give_up(self, run_id: str) -> None:
        """Drop a run's pending rows: the run was cancelled, deleted, or has ended."""
        pause = self._pauses.get(run_id)
        if pause is not None:
            pause.given_up = True
            pause.retry.set()

    def close(self) -> None:
        """Store everything one last time; drop what fails then."""
        self._closed = True
        for run_id in self._pauses:
            self.give_up(run_id)

    async def until_storable(self, run_id: str, unless: asyncio.Event) -> bool:
        """Wait until a run's rows can be stored here, or an event is set; return whether they can."""
        while (pause := self._pauses.get(run_id)) is not None and not unless.is_set():
            waits = [asyncio.ensure_future(event.wait()) for event in (pause.over, unless)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
        return run_id not in self._pauses

    async def outlast(self, run_id: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of an attempt, retried with backoff while it raises StorageError.

        Args:
            run_id: The run, which is paused meanwhile.
            attempt: The work; a retry starts it from the beginning, even if an earlier attempt was stored unnoticed.

        Raises:
            StorageError: It still fails, and the run was cancelled or the process stops.
        """
        try:
            return await attempt()
        except StorageError as problem:
            if self._closed:
                raise
            pause = self._enter(run_id, problem)
        try:
            await pause.wait(self._backoff.first_s)
            result = await self._insist(pause, attempt)
            if pause.waiting_count == 1 and not pause.given_up:
                await self._insist(pause, lambda: self._resume(run_id))
            return result
        finally:
            self._leave(pause)

    async def _insist(self, pause: _Pause, attempt: Callable[[], Awaitable[T]]) -> T:
        backoff_s = self._backoff.first_s
        while True:
            try:
                return await attempt()
            except StorageError as problem:
                if pause.given_up:
                    raise
                pause.problem = problem
            backoff_s = min(2 * backoff_s, self._backoff.max_s)
            await self._store(pause)
            await pause.wait(backoff_s)

    async def _store(self, pause: _Pause) -> None:
        """Store the pause if the database accepts that, so that other processes show it too."""
        run_id, message = pause.run_id, pause.problem.message
        try:
            is_new = await self._database.write(
                lambda c: runs.apply_command(c, run_id, Command.LOSE_STORAGE, message=message) is not None
            )
        except StorageError:
            return
        if is_new:
            self._on_change(run_id)

    def _enter(self, run_id: str, problem: StorageError) -> _Pause:
        pause = self._pauses.get(run_id)
        if pause is None:
            pause = self._pauses[run_id] = _Pause(run_id, problem)
            STORAGE_PAUSES.series().inc()
            STORAGE_PAUSED.series().set(len(self._pauses))
            _log.error("pausing run, rows cannot be stored, retrying with backoff: run=%s: %s", run_id, problem.message)
            self._on_change(run_id)
        pause.waiting_count += 1
        return pause

    def _leave(self, pause: _Pause) -> None:
        pause.waiting_count -= 1
        if pause.waiting_count:
            return
        del self._pauses[pause.run_id]
        STORAGE_PAUSED.series().set(len(self._pauses))
        pause.over.set()
        if not pause.given_up:
            _log.warning("resuming run, rows can be stored again: run=%s", pause.run_id)
            for other in self._pauses.values():
                other.retry.set()
        self._on_change(pause.run_id)


class RunStore:
    """The database for the use of one run: reads and writes that fail now are retried later.

    Args:
        pauses: The storage pauses of the process.
        database: The store.
        run_id: The run.
    """

    def __init__(self, pauses: StoragePauses, database: Transactions, run_id: str) -> None:
        self._pauses = pauses
        self._database = database
        self._run_id = run_id

    async def read(self, query: Callable[[sa.Connection], T]) -> T:
        """Read as `Database.read`, as soon as the database can be read."""
        return await self.outlast(lambda: self._database.read(query))

    async def write(self, change: Callable[[sa.Connection], T]) -> T:
        """Write as `Database.write`, as soon as the database accepts it; the change may already be stored."""
        return await self.outlast(lambda: self._database.write(change))

    async def write_once(self, change: Callable[[sa.Connection], T]) -> T:
        """Write as `Database.write`, within an attempt of `outlast`."""
        return await self._database.write(change)

    async def outlast(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of an attempt, as `StoragePauses.outlast`."""
        return await self._pauses.outlast(self._run_id, attempt)

    async def until_storable(self, unless: asyncio.Event) -> bool:
        """Wait until rows can be stored, or an event is set; return whether they can."""
        return await self._pauses.until_storable(self._run_id, unless)
