"""Watches: sends the events of a run to each client at the pace at which the client reads."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from assay.errors import ResumeExpiredError, UnavailableError
from assay.model.run import FINISHED_STATES, Run
from assay.process.failpoints import failpoint
from assay.v1 import run_pb2 as pb
from assay.wire.pages import first_page
from assay.wire.run import RUN, STATES, event_to_wire, without_answer
from assay_orchestrator.store import history
from assay_orchestrator.store.runs.lifecycle import ACTIVE_STATES, client_view

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence

    import sqlalchemy as sa

    from assay.model.run import Run
    from assay.model.scope import Scope
    from assay.storage.database import Database
    from assay.v1 import run_pb2 as pb
    from assay_orchestrator.watch.notifier import Notifier

_EVENT_PAGE = 500

T = TypeVar("T")

_MAX_MESSAGES = 16
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Step:
    """The next message to a watcher: a snapshot, events, or neither, which is a bookmark.

    Args:
        before: The last event sent to the watcher before this step.
        snapshot: The run, at the beginning.
        events: Events, in order.
    """

    before: int
    snapshot: Run | None = None
    events: Sequence[pb.RunEvent] = ()


class Watches:
    """Follows runs for watchers.

    A watcher costs a position in the run's events and a flag; it holds at most one page of events. Watchers at the same
    event share a read.

    Args:
        database: The store.
        notifier: Wakes watchers, and caches the latest events of watched runs.
        read_run: Returns a stored run; raises NotFoundError if the scope cannot reach it.
        storage_problem: Returns why a run's rows cannot be stored in this process; empty if they can.
        stopping: Set when the process begins to stop.
        bookmark_s: Time between bookmarks while no event occurs, in seconds.
    """

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        read_run: Callable[[Scope, str], Coroutine[Any, Any, Run]],
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
        # Active runs, each with the version at the read, by run and by the scope that was checked.
        self._active: dict[str, dict[Scope, tuple[int, Run]]] = {}

    async def follow(self, scope: Scope, run_id: str, after: int, *, with_answers: bool) -> AsyncGenerator[Step, None]:
        """Yield a snapshot, then events, until the run has ended.

        Raises:
            NotFoundError: The scope cannot reach the run, or no longer.
            ResumeExpiredError: The run has not reached event `after`.
        """
        changed = self._notifier.subscribe(run_id)
        try:
            run = await self._snapshot(scope, run_id, after)
            if after > run.last_sequence:
                raise ResumeExpiredError(
                    f"run {run_id} has reached event {run.last_sequence}, the watch asks for the events after {after}: "
                    "watch it from the beginning, or after a received event"
                )
            cursor, is_shown_paused = after, bool(self._storage_problem(run_id))
            yield Step(cursor, snapshot=self._view(run))
            while True:
                changed.clear()
                self._notifier.raise_if_closed(run_id)
                events = await self._events(scope, run_id, cursor, with_answers=with_answers)
                if events:
                    failpoint("watch.page_read")
                    yield Step(cursor, events=events)
                    cursor = events[-1].sequence
                elif bool(self._storage_problem(run_id)) is not is_shown_paused:  # there may be no event for it
                    is_shown_paused = not is_shown_paused
                    run = await self._read(scope, run_id)
                    yield Step(cursor, snapshot=self._view(run))
                if _ends(events) or (run.finished and cursor >= run.last_sequence):
                    run = await self._read(scope, run_id)
                    if run.finished and cursor >= run.last_sequence:
                        return  # otherwise its failed rows are being retried
                while not events and not await self._until_changed(run_id, changed):
                    yield Step(cursor)
        finally:
            if not self._notifier.unsubscribe(run_id, changed):
                self._active.pop(run_id, None)

    def _view(self, run: Run) -> Run:
        return client_view(run, self._storage_problem(run.run_id))

    async def _snapshot(self, scope: Scope, run_id: str, after: int) -> Run:
        """Return the run; an active run that has not changed since the last read is not read again.

        An inactive run is read each time: another process may have just resumed it.
        """
        version = self._notifier.version(run_id)
        run = self._known(scope, run_id)
        if run is None or after > run.last_sequence:
            run = await self._read(scope, run_id)
            self._notifier.note_last(run_id, version, run.last_sequence)
            if run.state in ACTIVE_STATES:
                self._active.setdefault(run_id, {})[scope] = (version, run)
        return run

    def _known(self, scope: Scope, run_id: str) -> Run | None:
        """Return the run from the last read, if it is active and has not changed since."""
        version, run = self._active.get(run_id, {}).get(scope, (-1, None))
        return run if version == self._notifier.version(run_id) else None

    async def _read(self, scope: Scope, run_id: str) -> Run:
        return await self._shared(scope, run_id, ("run",), lambda: self._read_run(scope, run_id))

    async def _events(self, scope: Scope, run_id: str, after: int, *, with_answers: bool) -> Sequence[pb.RunEvent]:
        if not self._notifier.has_later(run_id, after):
            return ()
        version = self._notifier.version(run_id)
        recent = self._notifier.recent_events(run_id, after, _EVENT_PAGE)
        if recent and (not with_answers or all(map(_is_complete, recent))):
            return recent

        def read(connection: sa.Connection) -> list[pb.RunEvent]:
            events = history.read_events(connection, scope, run_id, after, _EVENT_PAGE, with_answers=with_answers)
            return first_page(map(event_to_wire, events))

        events = await self._shared(scope, run_id, (after, with_answers), lambda: self._database.read(read))
        if not events:
            self._notifier.note_last(run_id, version, after)
        elif not with_answers:
            self._notifier.cache_events(run_id, events)
        return events

    async def _shared(
        self, scope: Scope, run_id: str, part: tuple[object, ...], read: Callable[[], Coroutine[Any, Any, T]]
    ) -> T:
        """Return the result of a read in flight, unless the run has changed since it began; else read."""
        key = (scope, run_id, self._notifier.version(run_id), *part)
        task: asyncio.Task[T] | None = self._reading.get(key)
        if task is None:
            task = self._reading[key] = asyncio.create_task(read())
            task.add_done_callback(lambda done: self._end_read(key, done))
        return await asyncio.shield(task)

    def _end_read(self, key: tuple[object, ...], done: asyncio.Task[Any]) -> None:
        del self._reading[key]
        if not done.cancelled():
            done.exception()  # callers that wait for it receive its error

    async def _until_changed(self, run_id: str, changed: asyncio.Event) -> bool:
        """Wait until the run changes; return False if a bookmark is due first."""
        if self._stopping.is_set():
            raise UnavailableError("the orchestrator is stopping: resume the watch", reason="STOPPING")
        try:
            async with asyncio.timeout(self._bookmark_s):
                await changed.wait()
        except TimeoutError:
            return False
        return True


def _is_complete(event: pb.RunEvent) -> bool:
    return not event.HasField("row_finished") or event.row_finished.HasField("response")


def _ends(events: Sequence[pb.RunEvent]) -> bool:
    return any(
        event.HasField("state_changed") and STATES.from_wire(event.state_changed.state) in FINISHED_STATES
        for event in events
    )


class WatchMessageCache:
    """The latest messages to watchers; watchers at the same snapshot or page of events share one message."""

    def __init__(self) -> None:
        self._snapshots: OrderedDict[str, tuple[Run, pb.WatchRunResponse]] = OrderedDict()
        self._events: OrderedDict[tuple[str, int, int, int], pb.WatchRunResponse] = OrderedDict()

    def message(self, run_id: str, step: Step, *, with_answers: bool) -> pb.WatchRunResponse:
        """Return the message of a step of a watch."""
        if step.snapshot is not None:
            return self._snapshot(run_id, step.snapshot)
        if not step.events:
            return pb.WatchRunResponse(bookmark_sequence=step.before)
        if with_answers:
            return pb.WatchRunResponse(events=step.events)
        key = (run_id, step.before, step.events[-1].sequence, len(step.events))
        message = self._events.pop(key, None) or pb.WatchRunResponse(events=map(without_answer, step.events))
        _remember(self._events, key, message)
        return message

    def _snapshot(self, run_id: str, run: Run) -> pb.WatchRunResponse:
        cached_run, message = self._snapshots.pop(run_id, (None, None))
        if message is None or cached_run is not run:
            message = pb.WatchRunResponse(snapshot=RUN.to_wire(run))
        _remember(self._snapshots, run_id, (run, message))
        return message


def _remember(cache: OrderedDict[K, V], key: K, value: V) -> None:
    cache[key] = value
    if len(cache) > _MAX_MESSAGES:
        cache.popitem(last=False)
