"""Settlements of orders. A failed write is repeated later; no verdict waits for it.

Until a settlement is written, the database holds the whole reservation, which is never less than the cost. If the
process dies before, the reservation counts as spent.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from assay.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine

    from assay.model.scope import Scope
    from assay_judge.clock import Clock
    from assay_judge.model import RunKey

T = TypeVar("T")
logger = logging.getLogger("assay_judge")


@dataclass(frozen=True, slots=True, eq=False)
class Settlement:
    """The end of one reservation.

    Args:
        run: The run that pays.
        write: Settles the reservation; may be repeated.
        close: Closes the account. Until then the account is not read again from the database, whose amount is too high.
    """

    run: RunKey
    write: Callable[[], Awaitable[None]]
    close: Callable[[], None]


class Settlements:
    """Writes settlements; `run` repeats failed writes.

    Args:
        clock: The clock.
        pause_s: Pause before a repetition, in seconds.
    """

    def __init__(self, clock: Clock, pause_s: float) -> None:
        self._clock = clock
        self._pause_s = pause_s
        self._unwritten: set[Settlement] = set()
        self._has_failed = asyncio.Event()

    async def write(self, settlements: Collection[Settlement]) -> None:
        """Write settlements, which count at once; failed writes are logged and left to `run`."""
        self._unwritten.update(settlements)
        problems = await asyncio.gather(*map(self._write, settlements))
        failed = [problem for problem in problems if problem is not None]
        if failed:
            self._has_failed.set()
            logger.warning("cannot settle reservations, they stay set aside: count=%d: %s", len(failed), failed[0])

    async def run(self) -> None:
        """Repeat failed writes until cancelled."""
        while True:
            await self._has_failed.wait()
            await self._clock.sleep(self._pause_s)
            await self.retry()

    async def retry(self) -> None:
        """Try each unwritten settlement once."""
        self._has_failed.clear()
        await self.write(list(self._unwritten))

    def forget(self, scope: Scope) -> None:
        """Drop the settlements of a deleted team."""
        for settlement in [settlement for settlement in self._unwritten if settlement.run.team == scope.team]:
            self._end(settlement)

    async def _write(self, settlement: Settlement) -> StorageError | None:
        try:
            await settlement.write()
        except StorageError as problem:
            return problem
        self._end(settlement)
        return None

    def _end(self, settlement: Settlement) -> None:
        self._unwritten.discard(settlement)
        settlement.close()


async def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of writes that belong together; a cancellation waits for the last of them.

    The database finishes a write even if its caller is cancelled; without waiting, the caller would not know what is
    stored.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as problem:
            cancelled = problem
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # retrieved: no caller is left
        raise cancelled
    return task.result()
