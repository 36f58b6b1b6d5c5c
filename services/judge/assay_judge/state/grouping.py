"""Transactions shared by many requests.

In SQLite, a transaction and the switch to another thread cost more than the statements of a verdict, so requests that
wait at the same time share a transaction.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import sqlalchemy as sa

    Work = Callable[[sa.Connection], Any]
    Run = Callable[[Callable[[sa.Connection], list[Any]]], Awaitable[list[Any]]]

T = TypeVar("T")


class Grouped:
    """Runs work in consecutive transactions; work that arrives during one goes into the next.

    Args:
        run: Runs work in one transaction.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._waiting: list[tuple[Work, asyncio.Future[Any]]] = []
        self._running: asyncio.Task[None] | None = None

    async def do(self, work: Callable[[sa.Connection], T]) -> T:
        """Return the result of the work; a cancellation does not stop it.

        Raises:
            StorageError: The work failed; other work in its transaction cannot be the cause.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, done))
        if self._running is None:
            self._running = asyncio.ensure_future(self._run_all())
        return await done

    async def aclose(self) -> None:
        """Wait for all running and waiting work."""
        if self._running is not None:
            await asyncio.wait([self._running])

    async def _run_all(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting, []
                if not await self._succeeds(group) and len(group) > 1:
                    for request in group:  # one by one, so that a failing request does not fail the others
                        await self._succeeds([request])
        finally:
            self._running = None

    async def _succeeds(self, group: Sequence[tuple[Work, asyncio.Future[Any]]]) -> bool:
        """Run a group and deliver the results; return False if it failed. A group of one also gets the error."""
        (results,) = await asyncio.gather(
            self._run(lambda connection: [work(connection) for work, _ in group]), return_exceptions=True
        )
        waiting = [done for _, done in group]
        if isinstance(results, BaseException):
            if len(group) == 1 and not waiting[0].done():
                waiting[0].set_exception(results)
            return False
        for done, result in zip(waiting, results, strict=True):
            if not done.done():  # else its caller was cancelled
                done.set_result(result)
        return True
