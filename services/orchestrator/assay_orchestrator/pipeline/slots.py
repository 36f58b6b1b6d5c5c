"""How many questions of a run may be in flight in this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


class Slots:
    """A semaphore with a variable size: each shard of a run adds its slots, and all share them.

    Args:
        count: The initial number of slots.
    """

    def __init__(self, count: int = 0) -> None:
        self._semaphore = asyncio.Semaphore(count)

    async def __aenter__(self) -> None:
        await self._semaphore.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._semaphore.release()

    def add(self, count: int) -> None:
        """Add slots."""
        for _ in range(count):
            self._semaphore.release()

    async def remove(self, count: int) -> None:
        """Remove slots; return once they are free."""
        for _ in range(count):
            await self._semaphore.acquire()
