"""Wakes the watchers of a run when something of it has become durable, and hands them the latest results."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.errors import AssayError
    from assay.results import CaseResult

__all__ = ["Notifier"]

_MAX_RECENT = 2000


class _Watched:
    """One run that somebody watches: a flag per watcher, and its latest results without a gap."""

    def __init__(self) -> None:
        self.flags: set[asyncio.Event] = set()
        self.recent: deque[CaseResult] = deque(maxlen=_MAX_RECENT)
        self.gone: AssayError | None = None
        self.moves = 0

    def take(self, rows: Sequence[CaseResult]) -> None:
        if self.recent and rows[0].sequence != self.recent[-1].sequence + 1:
            self.recent.clear()  # a change of state came between: the store has it
        self.recent.extend(rows)

    def after(self, sequence: int, count: int) -> list[CaseResult]:
        if not self.recent:
            return []
        skipped = sequence + 1 - self.recent[0].sequence
        if not 0 <= skipped < len(self.recent):
            return []
        return [self.recent[index] for index in range(skipped, min(skipped + count, len(self.recent)))]


class Notifier:
    """What the watchers of runs are told.

    The store holds every event. Watchers who keep up are served from memory: a run's latest results are
    kept while somebody watches it.
    """

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}

    def tell(self, run_id: str, rows: Sequence[CaseResult]) -> None:
        """Hand over results that have become durable, in the order of their sequence."""
        watched = self._watched.get(run_id)
        if watched is not None and rows:
            watched.take(rows)
        self.notify(run_id)

    def recent(self, run_id: str, after: int, count: int) -> list[CaseResult]:
        """Return up to `count` results that follow on a sequence number; empty where memory has them not."""
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

    def notify_all(self) -> None:
        """Wake every watcher, as the process stops."""
        for run_id in list(self._watched):
            self.notify(run_id)

    def subscribe(self, run_id: str) -> asyncio.Event:
        """Return a flag that is set whenever the run moves; the caller clears it before it reads."""
        flag = asyncio.Event()
        self._watched.setdefault(run_id, _Watched()).flags.add(flag)
        return flag

    def unsubscribe(self, run_id: str, flag: asyncio.Event) -> None:
        """Stop waking `flag`."""
        self._watched[run_id].flags.discard(flag)
        if not self._watched[run_id].flags:
            del self._watched[run_id]
