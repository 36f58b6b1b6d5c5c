"""Wakes the watchers of a run when something of it has become durable, and hands them what was last."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.errors import AssayError
    from assay.model.run import CaseResult, StateChange

__all__ = ["Notifier"]

_MAX_RECENT = 2000


class _Watched:
    """One run that somebody watches: a flag per watcher, and its latest events without a gap."""

    def __init__(self) -> None:
        self.flags: set[asyncio.Event] = set()
        self.recent: deque[StateChange | CaseResult] = deque(maxlen=_MAX_RECENT)
        self.gone: AssayError | None = None
        self.moves = 0

    def take(self, events: Sequence[StateChange | CaseResult]) -> None:
        first, last = events[0].sequence, events[-1].sequence
        if last - first != len(events) - 1:
            return  # rows between them were set aside
        if not self.recent or first > self.recent[-1].sequence + 1:
            self.recent.clear()  # what came between, nobody has read here
            self.recent.extend(events)
        elif (new := last - self.recent[-1].sequence) > 0:
            self.recent.extend(events[-new:])

    def after(self, sequence: int, count: int) -> list[StateChange | CaseResult]:
        if not self.recent:
            return []
        skipped = sequence + 1 - self.recent[0].sequence
        if not 0 <= skipped < len(self.recent):
            return []
        return [self.recent[index] for index in range(skipped, min(skipped + count, len(self.recent)))]


class Notifier:
    """What the watchers of runs are told.

    The store holds every event. Watchers who keep up are served from memory: a run's latest events, without answers,
    are kept while somebody watches it.
    """

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}

    def tell(self, run_id: str, rows: Sequence[CaseResult]) -> None:
        """Hand over results that have become durable, in the order of their sequence."""
        self.keep(run_id, rows)
        self.notify(run_id)

    def keep(self, run_id: str, events: Sequence[StateChange | CaseResult]) -> None:
        """Take events that were read from the store, in their order, for others who watch the run."""
        watched = self._watched.get(run_id)
        if watched is not None and events:
            watched.take(events)

    def recent(self, run_id: str, after: int, count: int) -> list[StateChange | CaseResult]:
        """Return up to `count` events that follow on a sequence number; empty where memory has them not."""
        watched = self._watched.get(run_id)
        return watched.after(after, count) if watched is not None else []

    def notify(self, run_id: str) -> None:
        """Wake everyone who watches the run."""
        watched = self._watched.get(run_id)
        if watched is not None:
            watched.moves += 1
            for flag in watched.flags:
                flag.set()

    def end(self, run_id: str, error: AssayError) -> None:
        """Tell everyone who watches the run that it is no more."""
        watched = self._watched.get(run_id)
        if watched is not None:
            watched.gone = error
        self.notify(run_id)

    def raise_if_gone(self, run_id: str) -> None:
        """Raise what `end` was given, for whoever watches the run."""
        watched = self._watched.get(run_id)
        if watched is not None and watched.gone is not None:
            raise watched.gone

    def moves(self, run_id: str) -> int:
        """Return how often the run, which somebody watches, has moved: what is read afterwards holds all of it."""
        return self._watched[run_id].moves

    @property
    def watched(self) -> list[str]:
        """The runs that somebody watches."""
        return list(self._watched)

    @property
    def watcher_count(self) -> int:
        """How many watchers there are."""
        return sum(len(watched.flags) for watched in self._watched.values())

    def notify_all(self) -> None:
        """Wake every watcher, as the process stops."""
        for run_id in list(self._watched):
            self.notify(run_id)

    def subscribe(self, run_id: str) -> asyncio.Event:
        """Return a flag that is set whenever the run moves; the caller clears it before it reads."""
        flag = asyncio.Event()
        self._watched.setdefault(run_id, _Watched()).flags.add(flag)
        return flag

    def unsubscribe(self, run_id: str, flag: asyncio.Event) -> bool:
        """Stop waking `flag`; return whether anybody still watches the run."""
        self._watched[run_id].flags.discard(flag)
        if self._watched[run_id].flags:
            return True
        del self._watched[run_id]
        return False
