"""One piece of work for all who ask for the same at once; it goes on as long as anyone waits for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

__all__ = ["JointWork"]

T = TypeVar("T")


class _Work(Generic[T]):
    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task = task
        self.waiting = 0


class JointWork(Generic[T]):
    """Work under way, by key."""

    def __init__(self) -> None:
        self._under_way: dict[object, _Work[T]] = {}

    def is_under_way(self, key: object) -> bool:
        """Return whether someone waits for this already."""
        return key in self._under_way

    async def do(self, key: object, start: Callable[[], Coroutine[Any, Any, T]], timeout_s: float) -> T:
        """Return the result of the work with this key, which is started unless it is under way.

        Whoever leaves, by timeout or cancellation, leaves the others their work; the last one ends it.

        Args:
            key: What the work is.
            start: Starts it.
            timeout_s: How long to wait.

        Raises:
            TimeoutError: It takes longer.
        """
        work = self._under_way.get(key)
        if work is None:
            work = self._under_way[key] = _Work(asyncio.ensure_future(start()))
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
        """End all work."""
        for work in list(self._under_way.values()):
            await _ended(work.task)

    def _forget(self, key: object, task: asyncio.Task[Any]) -> None:
        work = self._under_way.get(key)
        if work is not None and work.task is task:
            del self._under_way[key]


async def _ended(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its last words, such as what it has spent."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.exception()  # nobody is left who wants to know
