"""The time limit of unary calls: one timer for all of them, since most never reach it."""

from __future__ import annotations

import asyncio
from typing import Any


class CallDeadlines:
    """Cancels calls that exceed the server's limit; since the limit is the same for all, the oldest call is next.

    Args:
        limit_s: That time, in seconds.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._ends_at: dict[asyncio.Task[Any], float] = {}
        self._expired: set[asyncio.Task[Any]] = set()
        self._is_set = False

    def begin(self, task: asyncio.Task[Any]) -> None:
        """Limit a task's time from now on; call `end` when it is done."""
        loop = asyncio.get_running_loop()
        self._ends_at[task] = loop.time() + self.limit_s
        if not self._is_set:
            self._is_set = True
            loop.call_later(self.limit_s, self._check)

    def end(self, task: asyncio.Task[Any]) -> bool:
        """Stop limiting a task; return whether its time ran out and nothing else cancelled it."""
        self._ends_at.pop(task, None)
        if task not in self._expired:
            return False
        self._expired.discard(task)
        return task.uncancel() == 0

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        while self._ends_at:
            task, ends_at = next(iter(self._ends_at.items()))
            if ends_at > loop.time():
                loop.call_at(ends_at, self._check)
                return
            del self._ends_at[task]
            self._expired.add(task)
            task.cancel()
        self._is_set = False
