"""Rate limits of teams: the check before each call, and the slowing of a flood from one team."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol

from assay.errors import OverloadedError

_LEAST_DELAY_S, _MOST_DELAY_S = 0.5, 5.0
_DELAY_PER_WAITING_S = 0.01
_DELAY_OF_REMAINING = 0.75
_WAITING_IN_STEP = 100
_WAITING_PER_TEAM = 2_048
_WORKED_ON_PER_TEAM = 8


class TeamAdmission(Protocol):
    """The rate limits of teams."""

    async def admit(self, team: str) -> None:
        """Count a call of a team.

        Raises:
            TeamRefusedError: The team makes too many calls.
        """


class TeamRefusedError(OverloadedError):
    """A team exceeds its rate limit.

    Args:
        message: The quota, and what helps.
        team: The team.
        retry_after_s: When it may call again, in seconds.
        reason: The machine-readable reason.
    """

    def __init__(self, message: str, *, team: str, retry_after_s: float, reason: str) -> None:
        super().__init__(message, retry_after_s=retry_after_s, reason=reason)
        self.team = team


class Refusals:
    """Delays refusals: a connection has a limited number of open calls, so a flood slows itself down.

    Refusing costs nearly as much as answering. The more refused calls of a team wait, the longer the next one waits. A
    waiting call holds no slot; above a maximum, further calls are refused at once.

    Args:
        jitter: Returns a random number from 0 to 1.
    """

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter
        self._waiting: Counter[str] = Counter()

    async def delay(self, refusal: TeamRefusedError, remaining_s: float | None) -> None:
        """Wait before a refusal is sent.

        Args:
            refusal: The refusal.
            remaining_s: How long the client waits, in seconds; None for no deadline.
        """
        team = refusal.team
        waiting = self._waiting[team]
        if waiting >= _WAITING_PER_TEAM:
            return
        delay_s = min(_LEAST_DELAY_S + waiting * _DELAY_PER_WAITING_S, _MOST_DELAY_S)
        if remaining_s is not None:
            delay_s = min(delay_s, remaining_s * _DELAY_OF_REMAINING)
        if waiting > _WAITING_IN_STEP:  # those that came at once are not to be answered at once
            delay_s *= 1 - self._jitter() / 2
        self._waiting[team] += 1
        try:
            await asyncio.sleep(delay_s)
        finally:
            self._waiting[team] -= 1
            if not self._waiting[team]:
                del self._waiting[team]


class TeamTurns:
    """Limits the concurrent unary calls of each team; further calls wait their turn.

    A call thus waits for at most a few calls of each other team, however many they send.

    Args:
        most: Maximum number of concurrent calls per team.
    """

    def __init__(self, most: int = _WORKED_ON_PER_TEAM) -> None:
        self._most = most
        self._count: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def enter(self, team: str) -> None:
        """Wait for a turn of a team; `leave` it."""
        count = self._count.get(team, 0)
        if count < self._most:
            self._count[team] = count + 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(team, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The turn came at the moment of the cancellation: the next call must get it.
                self.leave(team)
            raise

    def leave(self, team: str) -> None:
        """Pass the turn to the team's next call."""
        waiting = self._waiting.get(team)
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._waiting.pop(team, None)
        self._count[team] -= 1
        if not self._count[team]:
            del self._count[team]
