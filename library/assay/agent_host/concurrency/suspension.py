"""Detecting that this process was suspended: stopped by a signal, or with its whole machine."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_INTERVAL_S = 0.25
_LIMIT_S = 1.0


def boot_time() -> float:
    """Return a clock in seconds that keeps running while the machine is suspended."""
    # Linux's usual monotonic clock stops while the machine is suspended.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Suspensions:
    """Counts how often the event loop did not run for longer than a second.

    Args:
        clock: A clock in seconds that keeps running while the machine is suspended.
    """

    def __init__(self, clock: Callable[[], float] = boot_time) -> None:
        self._clock = clock
        self._last = clock()
        self._count = 0

    def check(self) -> int:
        """Detect a suspension that has just ended; return the number of suspensions so far."""
        now = self._clock()
        self._count += now - self._last > _LIMIT_S
        self._last = now
        return self._count

    async def watch(self) -> None:
        """Detect suspensions until cancelled; without it, an idle loop counts as suspended."""
        while True:
            self.check()
            await asyncio.sleep(_INTERVAL_S)
