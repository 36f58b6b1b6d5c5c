"""When a process may declare others dead: only after they had time to beat following an outage or a suspend."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

GONE_BEATS = 2
"""Beats that a worker may miss after losing its connection: the connection alone may have broken."""


class Liveness:
    """Since when a process has reached the database without a break, and what it may conclude from that.

    An outage frees the locks of all workers and makes all their heartbeats old; a process that was suspended does not
    know how long the others were. In both cases counting restarts with the first success afterwards.

    Args:
        beat_s: Time between heartbeats of a process, in seconds.
        dead_after_s: Time without a heartbeat before a process counts as dead, in seconds.
        clock: Returns seconds, including time spent suspended.
    """

    def __init__(self, beat_s: float, dead_after_s: float, clock: Callable[[], float]) -> None:
        self._beat_s = beat_s
        self._dead_after_s = dead_after_s
        self._clock = clock
        self._reached_at: float | None = clock()
        self._has_restarted = False
        self._ticked_at = clock()

    def tick(self) -> bool:
        """Record that this process runs; return whether it was suspended long enough to lose its jobs."""
        now = self._clock()
        gap_s, self._ticked_at = now - self._ticked_at, now
        if gap_s > self._dead_after_s / 2:
            self.lose()
            return True
        return False

    def lose(self) -> None:
        """Record that the database was not reached, or may have been away."""
        self._reached_at = None

    def reach(self, server_age_s: float = float("inf")) -> None:
        """Record that the database was reached.

        Args:
            server_age_s: How long its server has been up: workers may not be back yet after a restart.
        """
        if self._reached_at is None or server_age_s < self._dead_after_s:
            self._reached_at = self._clock()
            self._has_restarted = True

    @property
    def reachable_s(self) -> float:
        """How long the database has been reached without a break, in seconds."""
        return self._clock() - self._reached_at if self._reached_at is not None else 0.0

    @property
    def is_returning(self) -> bool:
        """Whether this process, and perhaps others, returned a moment ago."""
        return self._has_restarted and not self.trusts_silence

    @property
    def trusts_silence(self) -> bool:
        """Whether a worker without a beat for `dead_after_s` is dead."""
        return self.reachable_s > self._dead_after_s

    @property
    def trusts_locks(self) -> bool:
        """Whether a worker without its lock is dead; an outage takes the locks of all."""
        return self.reachable_s > (self._dead_after_s if self._has_restarted else GONE_BEATS * self._beat_s)
