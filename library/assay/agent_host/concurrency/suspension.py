"""Noticing that this process did not run for a while: stopped by a signal, or on a machine that was suspended."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_INTERVAL_S = 0.25
_LIMIT_S = 1.0


def boot_time() -> float:
    """Return a time in seconds that passes while the machine is suspended, too."""
    # The usual monotonic clock of Linux stands still while the machine is suspended.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Suspensions:
    """Counts how often the event loop did not run for longer than a second.

    Args:
        clock: A time in seconds that passes while the machine is suspended, too.
    """

    def __init__(self, clock: Callable[[], float] = boot_time) -> None:
        self._clock = clock
        self._last = clock()
        self._count = 0

    def check(self) -> int:
        """Notice a suspension that has only just ended; return how many there were until now."""
        now = self._clock()
        self._count += now - self._last > _LIMIT_S
        self._last = now
        return self._count

    async def watch(self) -> None:
        """Notice suspensions until cancelled; without it, a loop that has nothing to do counts as suspended."""
        while True:
            self.check()
            await asyncio.sleep(_INTERVAL_S)
