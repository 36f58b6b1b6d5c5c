"""The request quota at admission: a steady pace in each process, and exact across all processes of an installation."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.errors import StorageError
from assay.identity.quotas import Quota
from assay.rpc.team_admission import TeamRefusedError
from assay_orchestrator.store.teams import quotas

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay.storage.database import Database

KEEP_S = 25.0
"""How long a looked-up quota is cached."""
_LEAST_BURST = 20
_AT_ONCE = 10
"""This many of a team's requests run at once on arrival; of a larger burst, a second's worth is paced."""
_BURST_MINUTES = 1 / 60
_MOST_TEAMS = 20_000


@dataclass(slots=True)
class _Team:
    """The state of a team in this process.

    Args:
        limit: Requests per minute; None for no limit.
        known_until_s: When the limit is looked up again.
        level: Requests that may currently start at once; below 0, this many wait for the pace.
        at_s: The time of `level`.
        taken: Requests of this minute that this process has taken but not admitted; -1 if none are left.
        ends_s: When that minute ends.
        changing: Held while the limit is looked up, or more requests are taken.
    """

    limit: int | None = None
    known_until_s: float = 0.0
    level: float = 0.0
    at_s: float = 0.0
    taken: int = 0
    ends_s: float = 0.0
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)


class TeamRequests:
    """Admits the requests of teams up to their quotas; a `TeamAdmission`.

    A process admits a team's requests at the pace of its quota, some at once, and takes them from the minute's account
    in the database, a portion at a time. Another second's worth in a burst is admitted too, but waits for that pace,
    and other teams' requests run in between. While the database does not answer, only the pace limits requests.

    Args:
        database: The store.
        monotonic_s: A clock in seconds.
        clock_s: The time of day in seconds since 1970, whose minutes the quota counts.
        sleep: Waits some seconds.
    """

    def __init__(
        self,
        database: Database,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        clock_s: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._database = database
        self._monotonic_s = monotonic_s
        self._clock_s = clock_s
        self._sleep = sleep
        self._teams: dict[str, _Team] = {}

    async def admit(self, team: str) -> None:
        """Count another request of a team; wait up to a second if it arrives faster than the quota's pace.

        Raises:
            TeamRefusedError: The quota is reached, or requests arrive too fast.
        """
        state = self._teams.get(team) or self._first(team)
        now_s = self._monotonic_s()
        if now_s >= state.known_until_s:
            async with state.changing:
                if now_s >= state.known_until_s:
                    await self._look_up(team, state, now_s)
        if state.limit is None:
            return
        wait_s = self._require_pace(team, state, now_s)
        # Before any wait: requests that arrive meanwhile see the place as taken.
        state.level -= 1
        if self._clock_s() >= state.ends_s or state.taken <= 0:
            await self._take(team, state)
        state.taken -= 1
        if wait_s:
            await self._sleep(wait_s)

    def _first(self, team: str) -> _Team:
        if len(self._teams) >= _MOST_TEAMS:
            self._teams.clear()
        self._teams[team] = _Team()
        return self._teams[team]

    def _require_pace(self, team: str, state: _Team, now_s: float) -> float:
        """Return how long a request has to wait, in seconds.

        Raises:
            TeamRefusedError: The maximum number of requests is already waiting.
        """
        limit = state.limit or 0
        per_s = limit / 60
        floor = 1 - _paced(limit)
        # Only a lowered quota makes it lower: calls that wait under the higher quota wait a second at most.
        level = max(floor - 1, state.level + (now_s - state.at_s) * per_s)
        state.level, state.at_s = min(_at_once(limit), level), now_s
        if state.level < floor:
            raise _refusal(quotas.too_fast(team, limit), team, (floor - state.level) / per_s if per_s else 60.0)
        return max(0.0, (1 - state.level) / per_s)

    async def _look_up(self, team: str, state: _Team, now_s: float) -> None:
        with contextlib.suppress(StorageError):  # the cached limit remains valid
            limits = await self._database.read(lambda c: quotas.read_quotas(c, team))
            limit = limits.get(Quota.REQUESTS_PER_MINUTE)
            if limit is not None and state.limit is None:
                state.level, state.at_s = _at_once(limit), now_s
            state.limit = limit
        state.known_until_s = now_s + KEEP_S

    async def _take(self, team: str, state: _Team) -> None:
        async with state.changing:
            if self._clock_s() < state.ends_s:
                if state.taken > 0:
                    return  # another call has just taken some
                if state.taken < 0:
                    raise _refusal(quotas.minute_used_up(team, state.limit or 0), team, state.ends_s - self._clock_s())
            limit = state.limit or 0
            minute_s = self._clock_s() // 60 * 60
            try:
                count = await self._database.write(lambda c: quotas.take_requests(c, team, limit))
            except StorageError:
                count = limit
            state.ends_s = minute_s + 60
            state.taken = count or -1
            if not count:
                raise _refusal(quotas.minute_used_up(team, limit), team, state.ends_s - self._clock_s())


def _refusal(sentence: str, team: str, after_s: float) -> TeamRefusedError:
    return TeamRefusedError(sentence, team=team, retry_after_s=max(0.01, after_s), reason=quotas.REASON)


def _burst(limit: int) -> int:
    return min(limit, max(_LEAST_BURST, int(limit * _BURST_MINUTES)))


def _paced(limit: int) -> int:
    """Return how many requests of a burst wait for the pace: as many as can start within a second."""
    return max(0, min(int(limit * _BURST_MINUTES), _burst(limit) - _AT_ONCE))


def _at_once(limit: int) -> float:
    return float(_burst(limit) - _paced(limit))
