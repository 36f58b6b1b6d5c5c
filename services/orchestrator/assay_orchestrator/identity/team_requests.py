"""The quota of requests at the door: steady in each process, and exact over all processes of an installation."""

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
"""How long a quota is not looked up again."""
_LEAST_BURST = 20
_AT_ONCE = 10
"""So many requests of a team are worked on as they come; of more that may come at once, a second's worth is paced."""
_BURST_MINUTES = 1 / 60
_MOST_TEAMS = 20_000


@dataclass(slots=True)
class _Team:
    """What a team may do in this process.

    Args:
        limit: Requests a minute; None for any number.
        known_until_s: When the limit is looked up again.
        level: Requests that are worked on at once now; below 0, as many wait for the pace.
        at_s: When that was so.
        taken: Requests of this minute that this process has taken and not admitted yet; -1 where none are left.
        ends_s: When that minute ends.
        changing: Held while the limit is looked up, or more are taken.
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
    in the database, a part at a time. A second's worth that comes at once is admitted as well, and waits for that pace:
    what other teams ask meanwhile is worked on in between. While the database does not answer, only the pace holds.

    Args:
        database: The store.
        monotonic_s: A clock in seconds.
        clock_s: The time of day in seconds since 1970, by whose minutes requests are counted.
        sleep: How to wait some seconds.
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
        """Count one more request of a team; wait where it comes faster than the pace of the quota, a second at most.

        Raises:
            TeamRefusedError: The quota is reached, or they come too fast for it.
        """
        known = self._teams.get(team) or self._first(team)
        now_s = self._monotonic_s()
        if now_s >= known.known_until_s:
            async with known.changing:
                if now_s >= known.known_until_s:
                    await self._look_up(team, known, now_s)
        if known.limit is None:
            return
        wait_s = self._require_pace(team, known, now_s)
        known.level -= 1
        if self._clock_s() >= known.ends_s or known.taken <= 0:
            await self._take(team, known)
        known.taken -= 1
        if wait_s:
            await self._sleep(wait_s)

    def _first(self, team: str) -> _Team:
        if len(self._teams) >= _MOST_TEAMS:
            self._teams.clear()
        self._teams[team] = _Team()
        return self._teams[team]

    def _require_pace(self, team: str, known: _Team, now_s: float) -> float:
        """Return how long a request has to wait, in seconds.

        Raises:
            TeamRefusedError: As many wait already as may.
        """
        limit = known.limit or 0
        per_s = limit / 60
        floor = 1 - _paced(limit)
        # Only a lowered quota leaves it lower: the calls that wait by the higher one wait for a second at most.
        level = max(floor - 1, known.level + (now_s - known.at_s) * per_s)
        known.level, known.at_s = min(_at_once(limit), level), now_s
        if known.level < floor:
            raise _refusal(quotas.too_fast(team, limit), team, (floor - known.level) / per_s if per_s else 60.0)
        return max(0.0, (1 - known.level) / per_s)

    async def _look_up(self, team: str, known: _Team, now_s: float) -> None:
        with contextlib.suppress(StorageError):  # what was known holds on
            limits = await self._database.read(lambda c: quotas.read_quotas(c, team))
            limit = limits.get(Quota.REQUESTS_PER_MINUTE)
            if limit is not None and known.limit is None:
                known.level, known.at_s = _at_once(limit), now_s
            known.limit = limit
        known.known_until_s = now_s + KEEP_S

    async def _take(self, team: str, known: _Team) -> None:
        async with known.changing:
            if self._clock_s() < known.ends_s:
                if known.taken > 0:
                    return  # another call has just taken some
                if known.taken < 0:
                    raise _refusal(quotas.minute_used_up(team, known.limit or 0), team, known.ends_s - self._clock_s())
            limit = known.limit or 0
            minute_s = self._clock_s() // 60 * 60
            try:
                count = await self._database.write(lambda c: quotas.take_requests(c, team, limit))
            except StorageError:
                count = limit
            known.ends_s = minute_s + 60
            known.taken = count or -1
            if not count:
                raise _refusal(quotas.minute_used_up(team, limit), team, known.ends_s - self._clock_s())


def _refusal(sentence: str, team: str, after_s: float) -> TeamRefusedError:
    return TeamRefusedError(sentence, team=team, retry_after_s=max(0.01, after_s), reason=quotas.REASON)


def _burst(limit: int) -> int:
    return min(limit, max(_LEAST_BURST, int(limit * _BURST_MINUTES)))


def _paced(limit: int) -> int:
    """Return how many requests of a burst wait for the pace: none of them for longer than a second."""
    return max(0, min(int(limit * _BURST_MINUTES), _burst(limit) - _AT_ONCE))


def _at_once(limit: int) -> float:
    return float(_burst(limit) - _paced(limit))
