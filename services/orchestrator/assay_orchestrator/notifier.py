"""Wakes the watchers of a run when something of it has become durable."""

from __future__ import annotations

import asyncio
from collections import defaultdict

__all__ = ["Notifier"]


class Notifier:
    """One flag per watched run; a watcher reads the store by sequence, so a wake-up carries no data."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def notify(self, run_id: str) -> None:
        """Wake everyone who watches the run."""
        for flag in self._waiting.get(run_id, ()):
            flag.set()

    def notify_all(self) -> None:
        """Wake every watcher, as the process stops."""
        for run_id in list(self._waiting):
            self.notify(run_id)

    def subscribe(self, run_id: str) -> asyncio.Event:
        """Return a flag that is set whenever the run moves; the caller clears it before it reads."""
        flag = asyncio.Event()
        self._waiting[run_id].add(flag)
        return flag

    def unsubscribe(self, run_id: str, flag: asyncio.Event) -> None:
        """Stop waking `flag`."""
        self._waiting[run_id].discard(flag)
        if not self._waiting[run_id]:
            del self._waiting[run_id]
