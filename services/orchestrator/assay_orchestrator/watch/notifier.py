"""Notifies the watchers of a run when its events are durable, and caches the latest events for them."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from assay.wire.pages import first_page
from assay.wire.run import event_to_wire, without_answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.errors import AssayError
    from assay.model.run import RowResult
    from assay.v1 import run_pb2 as pb

_MAX_RECENT = 2000
_MAX_BYTES = 4000
"""Rows with longer answers are cached without them."""
_MAX_RECENT_BYTES = _MAX_RECENT * _MAX_BYTES
"""Rows also have scores, whose details may be long."""


class _WatchedRun:
    """A run with watchers: a flag per watcher, and its latest events without a gap."""

    def __init__(self) -> None:
        self.flags: set[asyncio.Event] = set()
        self.recent: deque[pb.RunEvent] = deque()
        self.recent_bytes = 0
        self.error: AssayError | None = None
        self.version = 0
        self.last_sequence: int | None = None

    def cache(self, events: Sequence[pb.RunEvent]) -> None:
        first, last = events[0].sequence, events[-1].sequence
        if last - first != len(events) - 1:
            return  # results between them were archived
        if not self.recent or first > self.recent[-1].sequence + 1:
            self.recent.clear()  # this process has not read the events between them
            self.recent_bytes = 0
            self._extend(events)
        elif (new := last - self.recent[-1].sequence) > 0:
            self._extend(events[-new:])

    def _extend(self, events: Sequence[pb.RunEvent]) -> None:
        self.recent.extend(events)
        self.recent_bytes += sum(event.ByteSize() for event in events)
        while len(self.recent) > _MAX_RECENT or self.recent_bytes > _MAX_RECENT_BYTES:
            self.recent_bytes -= self.recent.popleft().ByteSize()

    def after(self, sequence: int, count: int) -> list[pb.RunEvent]:
        if not self.recent:
            return []
        skipped = sequence + 1 - self.recent[0].sequence
        if not 0 <= skipped < len(self.recent):
            return []
        return first_page(self.recent[index] for index in range(skipped, min(skipped + count, len(self.recent))))


class Notifier:
    """Publishes events of runs to their watchers.

    The store contains every event. Watchers that keep up are served from memory: the messages of the latest events of a
    watched run are cached, with answers if these are short.
    """

    def __init__(self) -> None:
        self._watched: dict[str, _WatchedRun] = {}

    def publish(self, run_id: str, rows: Sequence[RowResult]) -> None:
        """Publish durable results, in the order of their sequence."""
        watched = self._watched.get(run_id)
        if watched is None or not rows:
            return
        events = map(event_to_wire, rows)
        watched.cache([row if row.ByteSize() <= _MAX_BYTES else without_answer(row) for row in events])
        is_next = watched.last_sequence == rows[0].sequence - 1
        self.notify(run_id)
        watched.last_sequence = rows[-1].sequence if is_next else None

    def note_last(self, run_id: str, version: int, sequence: int) -> None:
        """Note that a read which began at a version of a watched run showed no event after a sequence number."""
        watched = self._watched.get(run_id)
        if watched is not None and watched.version == version:
            watched.last_sequence = sequence

    def has_later(self, run_id: str, sequence: int) -> bool:
        """Return whether a watched run may have events after a sequence number."""
        last = self._watched[run_id].last_sequence
        return last is None or sequence < last

    def cache_events(self, run_id: str, events: Sequence[pb.RunEvent]) -> None:
        """Cache events of a watched run, in order, for its other watchers."""
        watched = self._watched.get(run_id)
        if watched is not None and events:
            watched.cache(events)

    def recent_events(self, run_id: str, after: int, count: int) -> list[pb.RunEvent]:
        """Return up to `count` events after a sequence number that fit in one message; empty if none is cached."""
        watched = self._watched.get(run_id)
        return watched.after(after, count) if watched is not None else []

    def notify(self, run_id: str) -> None:
        """Wake all watchers of the run."""
        watched = self._watched.get(run_id)
        if watched is not None:
            watched.version += 1
            watched.last_sequence = None
            for flag in watched.flags:
                flag.set()

    def close_watches(self, run_id: str, error: AssayError) -> None:
        """End all watches of a deleted run with an error."""
        watched = self._watched.get(run_id)
        if watched is not None:
            watched.error = error
        self.notify(run_id)

    def raise_if_closed(self, run_id: str) -> None:
        """Raise the error with which `close_watches` ended the watches of a run."""
        watched = self._watched.get(run_id)
        if watched is not None and watched.error is not None:
            raise watched.error

    def version(self, run_id: str) -> int:
        """Return how many times a watched run has changed; a later read includes all these changes."""
        return self._watched[run_id].version

    @property
    def watched_runs(self) -> list[str]:
        """The runs with watchers."""
        return list(self._watched)

    @property
    def watcher_count(self) -> int:
        """The number of watchers."""
        return sum(len(watched.flags) for watched in self._watched.values())

    def notify_all(self) -> None:
        """Wake every watcher, as the process stops."""
        for run_id in list(self._watched):
            self.notify(run_id)

    def subscribe(self, run_id: str) -> asyncio.Event:
        """Return a flag that is set whenever the run changes; the caller clears it before it reads."""
        flag = asyncio.Event()
        self._watched.setdefault(run_id, _WatchedRun()).flags.add(flag)
        return flag

    def unsubscribe(self, run_id: str, flag: asyncio.Event) -> bool:
        """Stop waking `flag`; return whether the run has other watchers."""
        self._watched[run_id].flags.discard(flag)
        if self._watched[run_id].flags:
            return True
        del self._watched[run_id]
        return False
