"""Turns of rows on the event loop: other tasks, such as health checks, wait for a few rows rather than for all."""

from __future__ import annotations

import asyncio
from collections import deque

_PER_ROUND = 16


class Turns:
    """Limits how many steps of rows a round of the event loop takes, across all runs of a process.

    A step is the work of a row between two waits: its start, or its scoring and hand-over to the store.

    Args:
        per_round: Maximum steps per round.
    """

    def __init__(self, per_round: int = _PER_ROUND) -> None:
        self._per_round = per_round
        self._left = per_round
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def take(self) -> None:
        """Return in a round with room for a step; calls return in order."""
        self._schedule()
        if self._left and not self._waiting:
            self._left -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_round)

    def _begin_round(self) -> None:
        self._is_scheduled = False
        self._left = self._per_round
        while self._left and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # otherwise cancelled
                turn.set_result(None)
                self._left -= 1
        if self._left < self._per_round:
            self._schedule()  # steps released in this round count against the next
