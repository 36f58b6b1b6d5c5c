"""How many questions of a run may be in flight in this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


class Slots:
    """A semaphore whose size changes: the shards of a run share theirs, and each brings some along.

    Args:
        count: How many there are at first.
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
        """Let so many more in."""
        for _ in range(count):
            self._semaphore.release()

    async def remove(self, count: int) -> None:
        """Let so many fewer in; return when that is so."""
        for _ in range(count):
            await self._semaphore.acquire()
