"""What time it is, and waiting: a seam, because batches take hours that tests do not have."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """The time, and sleeping."""

    def now(self) -> float:
        """Return the seconds since 1970."""

    async def sleep(self, seconds: float) -> None:
        """Return after some seconds."""


class _SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        """Return the seconds since 1970."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Return after some seconds."""
        await asyncio.sleep(seconds)


SYSTEM_CLOCK = _SystemClock()
"""The clock that is used unless another one is given."""
