"""Single flight: identical requests share a task, which is cancelled when its last caller leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class _Work(Generic[T]):
    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task = task
        self.waiting = 0


class SingleFlight(Generic[T]):
    """Tasks in flight, by key."""

    def __init__(self) -> None:
        self._in_flight: dict[object, _Work[T]] = {}

    def is_in_flight(self, key: object) -> bool:
        """Return whether a task with this key is in flight."""
        return key in self._in_flight

    async def do(self, key: object, start: Callable[[], Coroutine[Any, Any, T]], timeout_s: float) -> T:
        """Return the result of the task with this key, starting it unless it is in flight.

        A caller that times out or is cancelled leaves the task to the others; the last caller cancels it.

        Args:
            key: Identifies the work.
            start: Starts the work.
            timeout_s: Longest wait, in seconds.

        Raises:
            TimeoutError: The task takes longer.
        """
        work = self._in_flight.get(key)
        if work is None:
            work = self._in_flight[key] = _Work(asyncio.ensure_future(start()))
            work.task.add_done_callback(lambda task: self._forget(key, task))
        work.waiting += 1
        try:
            done, _ = await asyncio.wait([work.task], timeout=timeout_s)
            if not done:
                raise TimeoutError
            return work.task.result()
        finally:
            work.waiting -= 1
            if not work.waiting and not work.task.done():
                self._forget(key, work.task)
                await _ended(work.task)

    async def aclose(self) -> None:
        """Cancel all tasks."""
        for work in list(self._in_flight.values()):
            await _ended(work.task)

    def _forget(self, key: object, task: asyncio.Task[Any]) -> None:
        work = self._in_flight.get(key)
        if work is not None and work.task is task:
            del self._in_flight[key]


async def _ended(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its cleanup, which settles what it has spent."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it
