"""What the shards of a run share in one process: its context, its questions in flight, its flusher."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from math import inf
from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from assay_orchestrator.agents.protocol import NotAskedError
from assay_orchestrator.pipeline.flusher import Flusher
from assay_orchestrator.store.rows import stops
from assay_orchestrator.store.shards import shards

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from types import TracebackType

    from assay.model.run import RowResult
    from assay_orchestrator.pipeline.run_context import RunContext
    from assay_orchestrator.pipeline.storage_pauses import RunStore
    from assay_orchestrator.store.rows.stops import StopLook
    from assay_orchestrator.store.shards.shards import Shard

_SCORING_ROWS = 256
"""Rows beyond those being asked: their answers are being scored and stored."""


class Slots:
    """A semaphore with a variable size: each shard of a run adds its slots, and all share them.

    Args:
        count: The initial number of slots.
    """

    def __init__(self, count: int = 0) -> None:
        self._semaphore = asyncio.Semaphore(count)

    async def __aenter__(self) -> None:
        await self._semaphore.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._semaphore.release()

    def add(self, count: int) -> None:
        """Add slots."""
        for _ in range(count):
            self._semaphore.release()

    async def remove(self, count: int) -> None:
        """Remove slots; return once they are free."""
        for _ in range(count):
            await self._semaphore.acquire()


class Session:
    """One run in this process, for as long as the process has shards of it.

    Args:
        store: Stores the run's rows.
        context: The context of the run.
        alone: Whether no other process has shards of it: then all its questions in flight are this session's.
        on_results: Called with results that have become durable, in the order of their sequence.
        known_s: How long a check of a shard's epoch is valid, in seconds: no other process takes the shard sooner.
        until_sure: Waits until the queue has confirmed the jobs of this process, as `Dispatcher.until_sure`.
        on_stopped: Called when the run has stopped early.
    """

    def __init__(
        self,
        store: RunStore,
        context: RunContext,
        *,
        alone: bool,
        on_results: Callable[[Sequence[RowResult]], None],
        known_s: float = 1.0,
        until_sure: Callable[[], Awaitable[None]] | None = None,
        on_stopped: Callable[[StopLook], Awaitable[None]] | None = None,
    ) -> None:
        self.context = context
        context.budget.attach(store)

        def stored(rows: Sequence[RowResult]) -> None:
            context.observed.stored(rows)
            on_results(rows)

        self.flusher = Flusher(
            store,
            context.run_id,
            stored,
            self._hold,
            is_replay=context.is_replay,
            is_judged=context.judge is not None,
            budget=context.budget,
            stop_look=context.stop_look,
            on_stopped=on_stopped,
        )
        self.asking = Slots(context.concurrency if alone else 0)
        self._rows = asyncio.Semaphore(context.concurrency + _SCORING_ROWS)
        self._row_count = 0
        self._gate, self._empty, self._one = asyncio.Event(), asyncio.Event(), asyncio.Lock()
        self._gate.set()
        self._empty.set()
        self.tasks: set[asyncio.Task[object]] = set()
        self.ended = asyncio.Event()
        self._alone = alone
        self._known_s = known_s
        self._until_sure = until_sure
        self._store = store
        self._slots: dict[Shard, int] = {}
        self._known: dict[Shard, float] = {}
        self._looking = asyncio.Lock()

    @asynccontextmanager
    async def share(self, shard: Shard, since: float) -> AsyncIterator[Session]:
        """Add the slots of a shard to the session's, and remove them afterwards.

        Args:
            shard: The shard.
            since: A time (`monotonic`) before it was taken.
        """
        if self._alone:
            yield self
            return
        self._slots[shard] = shard.slots
        self._known[shard] = since
        self.asking.add(shard.slots)
        try:
            yield self
        finally:
            # The next worker of the shard adds its slots again, so it must not be released before they are free here.
            self._known.pop(shard, None)
            await self.asking.remove(self._slots.pop(shard))

    def _hold(self, since: float, slots: Mapping[Shard, int]) -> None:
        """Renew ownership of shards and raise their slots, which grow when other shards end."""
        for shard, count in slots.items():
            own = self._slots.get(shard)
            if own is None:
                continue  # a shard that has just been left
            self._known[shard] = max(since, self._known[shard])
            if count > own:
                self._slots[shard] = count
                self.asking.add(count - own)

    async def require(self, shard: Shard) -> None:
        """Raise unless a shard still belongs to this process, as of a moment ago, and its rows can be stored.

        A process that was suspended for long may have lost its shards. The store refuses its rows then; this check
        comes before a call is paid for, so that no call is paid for twice.

        Raises:
            FencedError: Another worker has it.
            RunStoppedError: The run was deleted.
            NotAskedError: The run is being paused, and its rows could not be stored until then.
        """
        if not await self._store.until_storable(self.context.pausing):
            raise NotAskedError
        if self._until_sure is not None:
            await self._store.outlast(self._until_sure)
        if self._alone or self._is_known(shard):
            return
        async with self._looking:
            if self._is_known(shard):
                return
            now, epochs = monotonic(), {shard.shard_index: shard.epoch}
            await self._store.read(lambda c: shards.require_epochs(c, shard.run_id, epochs, keep=False))
            self._known[shard] = now

    def _is_known(self, shard: Shard) -> bool:
        return monotonic() - self._known.get(shard, -inf) < self._known_s

    async def has_stopped_early(self) -> bool:
        """Return whether the run has stopped early: a row that has not begun must not be asked.

        The other run, or another process, may have stored the stop, so it is read before the first question of each
        row.
        """
        context = self.context
        if (
            context.stop_look is not None
            and not context.stopped.is_set()
            and await self._store.read(lambda c: stops.is_stopped(c, context.run_id))
        ):
            context.stopped.set()
        return context.stopped.is_set()

    def stop_asking(self) -> None:
        """Ask no more questions: those in flight end and are stored, and no further job joins the session."""
        self.context.pausing.set()

    @property
    def is_stopping(self) -> bool:
        """Whether the session asks no more questions."""
        return self.context.pausing.is_set()

    async def enter(self) -> None:
        """Wait until there is room for another row, and take it."""
        await self._rows.acquire()
        try:
            while not self._gate.is_set():
                await self._gate.wait()
        except asyncio.CancelledError:
            self._rows.release()  # other shards of the run share the room
            raise
        self._row_count += 1
        self._empty.clear()

    def leave(self) -> None:
        """Make room for another row."""
        self._rows.release()
        self._row_count -= 1
        if not self._row_count:
            self._empty.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Wait until this process works on no other row of the run, and keep others out."""
        async with self._one:
            self._gate.clear()
            try:
                await self._empty.wait()
                yield
            finally:
                self._gate.set()

    async def aclose(self) -> None:
        """Wait until everything is stored, and close the clients."""
        await self.flusher.aclose()
        for client in self.context.embedders.values():
            await client.aclose()
        if self.context.judge is not None:
            await self.context.judge.aclose()
        await self.context.agent.aclose()
        await self.context.budget.aclose()


class Sessions:
    """The sessions of this process.

    Args:
        make: Creates the session of a run.
    """

    def __init__(self, make: Callable[[str], Awaitable[Session]]) -> None:
        self._make = make
        self._sessions: dict[str, Session] = {}
        # One lock per run: a session takes seconds to end if its judge or agent does not answer.
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def join(self, run_id: str) -> AsyncIterator[Session]:
        """Join the session of a run for the time of a shard; the first shard starts the session, the last ends it."""
        task = asyncio.current_task()
        assert task is not None, "shards run in tasks"
        session = await self._enter(run_id, task)
        try:
            yield session
        finally:
            session.tasks.discard(task)
            await asyncio.shield(self._leave(session))

    def of(self, run_id: str) -> Session | None:
        """Return the session of a run, if this process has one."""
        return self._sessions.get(run_id)

    def all(self) -> list[Session]:
        """Return all sessions."""
        return list(self._sessions.values())

    async def _enter(self, run_id: str, task: asyncio.Task[object]) -> Session:
        while True:
            async with self._changing_of(run_id):
                session = self._sessions.get(run_id)
                is_new = session is None
                if session is None:
                    session = self._sessions[run_id] = await self._make(run_id)
                if is_new or not session.is_stopping:
                    session.tasks.add(task)
                    return session
            # A session that is stopping takes no job: this job joins the next session.
            await session.ended.wait()

    def _changing_of(self, run_id: str) -> asyncio.Lock:
        """Return the lock of a run; it exists while a task holds it or waits for it."""
        lock = self._changing.get(run_id)
        if lock is None:
            lock = self._changing[run_id] = asyncio.Lock()
        return lock

    async def _leave(self, session: Session) -> None:
        run_id = session.context.run_id
        async with self._changing_of(run_id):
            if not session.tasks and self._sessions.get(run_id) is session:
                await session.aclose()
                del self._sessions[run_id]
                session.ended.set()
