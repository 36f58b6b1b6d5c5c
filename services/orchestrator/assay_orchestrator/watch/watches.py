"""Watches: what happens in a run, told to one client after the other at the pace at which each listens."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from assay.errors import ResumeExpiredError, UnavailableError
from assay.model.run import FINISHED_STATES, CaseResult, Run, StateChange
from assay.runtime.failpoints import failpoint
from assay_orchestrator.store import history
from assay_orchestrator.store.lifecycle import ACTIVE_STATES, client_view

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence

    from assay.storage.database import Database
    from assay_orchestrator.watch.notifier import Notifier

__all__ = ["Step", "Watches"]

_EVENT_PAGE = 500

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """What a watcher is told next; with neither snapshot nor events, that nothing has happened.

    Args:
        before: The last event that the watcher was told of before this step.
        snapshot: The run as it stands, at the beginning.
        events: What happened, in order.
    """

    before: int
    snapshot: Run | None = None
    events: Sequence[StateChange | CaseResult] = ()


class Watches:
    """Follows runs for watchers.

    A watcher costs a position in the run's events and a flag; it holds one page of events at most. Watchers who
    stand at the same event share what is read for them.

    Args:
        database: The store.
        notifier: Wakes watchers, and keeps the latest events of watched runs.
        read_run: Returns a run as it is stored; raises NotFoundError without one.
        storage_problem: Returns why a run's rows cannot be stored in this process; empty where they can.
        stopping: Set when the process begins to stop.
        bookmark_s: How often a watcher is told that nothing has happened, in seconds.
    """

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        read_run: Callable[[str], Coroutine[Any, Any, Run]],
        storage_problem: Callable[[str], str],
        stopping: asyncio.Event,
        *,
        bookmark_s: float,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._read_run = read_run
        self._storage_problem = storage_problem
        self._stopping = stopping
        self._bookmark_s = bookmark_s
        self._reading: dict[tuple[object, ...], asyncio.Task[Any]] = {}
        self._going: dict[str, tuple[int, Run]] = {}  # runs as they stood, by how often they had moved

    async def follow(self, run_id: str, after: int, *, with_answers: bool) -> AsyncGenerator[Step, None]:
        """Yield a snapshot, then what happens, until the run has ended.

        Raises:
            NotFoundError: There is no such run, or no longer.
            ResumeExpiredError: The run has not come as far as `after`.
        """
        moved = self._notifier.subscribe(run_id)
        try:
            run = await self._snapshot(run_id, after)
            if after > run.last_sequence:
                raise ResumeExpiredError(
                    f"run {run_id} has come to event {run.last_sequence}, and the watch asks for what follows "
                    f"{after}: watch it from the beginning, or after an event that was seen",
                    reason="SEQUENCE_UNKNOWN",
                )
            cursor, is_shown_paused = after, bool(self._storage_problem(run_id))
            yield Step(cursor, snapshot=self._view(run))
            while True:
                moved.clear()
                self._notifier.raise_if_gone(run_id)
                events = await self._events(run_id, cursor, with_answers=with_answers)
                if events:
                    failpoint("watch.page_read")
                    yield Step(cursor, events=events)
                    cursor = events[-1].sequence
                elif bool(self._storage_problem(run_id)) is not is_shown_paused:  # there may be no event of it
                    is_shown_paused = not is_shown_paused
                    run = await self._shared(run_id, ("run",), lambda: self._read_run(run_id))
                    yield Step(cursor, snapshot=self._view(run))
                if _ends(events) or (run.finished and cursor >= run.last_sequence):
                    run = await self._shared(run_id, ("run",), lambda: self._read_run(run_id))
                    if run.finished and cursor >= run.last_sequence:
                        return  # else its errors are being tried again
                while not events and not await self._moves(run_id, moved):
                    yield Step(cursor)
        finally:
            if not self._notifier.unsubscribe(run_id, moved):
                self._going.pop(run_id, None)

    def _view(self, run: Run) -> Run:
        return client_view(run, self._storage_problem(run.run_id))

    async def _snapshot(self, run_id: str, after: int) -> Run:
        """Return the run as it stands; while it goes on and has not moved, as it was for whoever came before.

        One that stands still is read anew: another process may just have resumed it.
        """
        moves = self._notifier.moves(run_id)
        run = self._known(run_id)
        if run is None or after > run.last_sequence:
            run = await self._shared(run_id, ("run",), lambda: self._read_run(run_id))
            if run.state in ACTIVE_STATES:
                self._going[run_id] = (moves, run)
        return run

    def _known(self, run_id: str) -> Run | None:
        """Return the run as somebody has read it, if it goes on and has not moved since."""
        moves, run = self._going.get(run_id, (-1, None))
        return run if moves == self._notifier.moves(run_id) else None

    async def _events(self, run_id: str, after: int, *, with_answers: bool) -> Sequence[StateChange | CaseResult]:
        if (run := self._known(run_id)) is not None and run.last_sequence <= after:
            return ()
        if not with_answers and (recent := self._notifier.recent(run_id, after, _EVENT_PAGE)):
            return recent
        events: Sequence[StateChange | CaseResult] = await self._shared(
            run_id,
            (after, with_answers),
            lambda: self._database.read(
                lambda c: history.read_events(c, run_id, after, _EVENT_PAGE, with_answers=with_answers)
            ),
        )
        if not with_answers:
            self._notifier.keep(run_id, events)
        return events

    async def _shared(self, run_id: str, what: tuple[object, ...], read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what a reading under way will find, unless the run has moved since it began; else read."""
        key = (run_id, self._notifier.moves(run_id), *what)
        task: asyncio.Task[T] | None = self._reading.get(key)
        if task is None:
            task = self._reading[key] = asyncio.create_task(read())
            task.add_done_callback(lambda done: self._read(key, done))
        return await asyncio.shield(task)

    def _read(self, key: tuple[object, ...], done: asyncio.Task[Any]) -> None:
        del self._reading[key]
        if not done.cancelled():
            done.exception()  # whoever still waits for it gets it

    async def _moves(self, run_id: str, moved: asyncio.Event) -> bool:
        """Wait until the run moves; False where it has not by the time of a bookmark."""
        if self._stopping.is_set():
            raise UnavailableError("the orchestrator is stopping: resume the watch", reason="STOPPING")
        try:
            async with asyncio.timeout(self._bookmark_s):
                await moved.wait()
        except TimeoutError:
            return False
        return True


def _ends(events: Sequence[StateChange | CaseResult]) -> bool:
    return any(isinstance(event, StateChange) and event.state in FINISHED_STATES for event in events)
