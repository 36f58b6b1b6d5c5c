"""Values that many rows request: simultaneous requests travel in one call, and each key is requested once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Sequence

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits of batching and caching.

    Args:
        keys: Maximum keys per call.
        call_bytes: A call takes no further key once its keys have this size.
        in_flight: Maximum calls in flight.
        cache_bytes: Maximum size of the cached values, with their keys.
    """

    keys: int
    call_bytes: int
    in_flight: int
    cache_bytes: int


@dataclass(slots=True)
class _Waiting(Generic[K, V]):
    key: K
    future: asyncio.Future[V]


class SharedCalls(Generic[K, V]):
    """Gathers values by key, in calls of many keys.

    While calls are in flight, further keys gather and leave together in the next call. Values are cached for a while,
    so that a repeated key gets the same value. Failures are not cached.

    Args:
        call: Returns the values of some keys, in order.
        size_of: The size of a key in a call, in bytes.
        value_bytes: The approximate size of a cached value besides its key, in bytes.
        limits: Limits of batching and caching.
    """

    def __init__(
        self,
        call: Callable[[Sequence[K]], Awaitable[Sequence[V]]],
        size_of: Callable[[K], int],
        *,
        value_bytes: int,
        limits: CallLimits,
    ) -> None:
        self._call = call
        self._size_of = size_of
        self._value_bytes = value_bytes
        self._limits = limits
        self._waiting: deque[_Waiting[K, V]] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._kept: OrderedDict[K, asyncio.Future[V]] = OrderedDict()
        self._kept_bytes = 0

    async def get(self, key: K) -> V:
        """Return the value of a key.

        Raises:
            AssayError: The call failed.
        """
        return await asyncio.shield(self._shared(key))

    def prefetch(self, key: K) -> None:
        """Request a value that will be needed; if that fails, the next caller that needs it requests it again."""
        self._shared(key).add_done_callback(_ignore)

    async def aclose(self) -> None:
        """Stop; waiting requests are cancelled."""
        for task in self._senders:
            task.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        for waiting in self._waiting:
            waiting.future.cancel()
        self._waiting.clear()

    def _shared(self, key: K) -> asyncio.Future[V]:
        cached = self._kept.get(key)
        if cached is not None and not _has_failed(cached):
            self._kept.move_to_end(key)
            return cached
        if cached is not None:
            self._forget(key)
        pending = self._kept[key] = asyncio.ensure_future(self._ask(key))
        self._kept_bytes += self._kept_size(key)
        while self._kept_bytes > self._limits.cache_bytes and len(self._kept) > 1:
            self._forget(next(iter(self._kept)))
        return pending

    def _forget(self, key: K) -> None:
        del self._kept[key]
        self._kept_bytes -= self._kept_size(key)

    def _kept_size(self, key: K) -> int:
        return self._size_of(key) + self._value_bytes

    async def _ask(self, key: K) -> V:
        waiting: _Waiting[K, V] = _Waiting(key, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        # A finished sender takes no more keys, although its callback may not have run yet.
        if sum(not sender.done() for sender in self._senders) < self._limits.in_flight:
            task = asyncio.create_task(self._send_all())
            self._senders.add(task)
            task.add_done_callback(self._senders.discard)
        return await waiting.future

    async def _send_all(self) -> None:
        await asyncio.sleep(0)  # lets rows that are ready at the same moment join the first call
        while batch := self._take():
            try:
                values = await self._call([waiting.key for waiting in batch])
                for waiting, value in zip(batch, values, strict=True):
                    if not waiting.future.done():
                        waiting.future.set_result(value)
            except asyncio.CancelledError:
                for waiting in batch:
                    waiting.future.cancel()
                raise
            except Exception as problem:  # noqa: BLE001 - the boundary of a task: those that wait get it
                for waiting in batch:
                    if not waiting.future.done():
                        waiting.future.set_exception(problem)

    def _take(self) -> list[_Waiting[K, V]]:
        batch: list[_Waiting[K, V]] = []
        size = 0
        while self._waiting and len(batch) < self._limits.keys and size < self._limits.call_bytes:
            waiting = self._waiting.popleft()
            if not waiting.future.done():
                batch.append(waiting)
                size += self._size_of(waiting.key)
        return batch


def _has_failed(future: asyncio.Future[V]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)


def _ignore(future: asyncio.Future[V]) -> None:
    if not future.cancelled():
        future.exception()  # retrieved, so that asyncio does not report it as never retrieved
