"""Turns of rows on the event loop: what else waits, health checks among it, waits for a few rows and not for all."""

from __future__ import annotations

import asyncio
from collections import deque

_PER_ROUND = 16


class Turns:
    """Bounds how many steps of rows one round of the event loop takes; the rows of all runs of a process share them.

    A step is what a row does between two waits: it starts, or it is scored and handed over to be stored.

    Args:
        per_round: Most steps in a round.
    """

    def __init__(self, per_round: int = _PER_ROUND) -> None:
        self._per_round = per_round
        self._left = per_round
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def take(self) -> None:
        """Return in a round that has room for a step; calls return in their order."""
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
            if not turn.done():  # else cancelled
                turn.set_result(None)
                self._left -= 1
        if self._left < self._per_round:
            self._schedule()  # what has just been let go takes the next round
