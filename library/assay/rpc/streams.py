"""Concurrent answers to a stream of requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from assay.errors import UnavailableError

Request = TypeVar("Request")
Response = TypeVar("Response")

_END = object()


async def answered(
    requests: AsyncIterable[Request],
    answer: Callable[[Request], Coroutine[Any, Any, Response]],
    *,
    in_flight: int,
    stopping: asyncio.Event,
) -> AsyncIterator[Response]:
    """Yield the answer to each request as soon as it is ready, in any order.

    Args:
        requests: The client's stream; not read while `in_flight` requests are being answered.
        answer: Answers one request; an exception ends the stream.
        in_flight: Maximum number of requests answered at once.
        stopping: Once set, no further request is read, and the stream ends after the answers in flight.

    Raises:
        UnavailableError: The server is stopping (reason STOPPING); unanswered requests were not processed.
    """
    source = aiter(requests)
    ended: asyncio.Queue[asyncio.Task[Any]] = asyncio.Queue()

    def started(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        # Not `asyncio.wait`, which goes through all requests in flight for each of them that is answered.
        task.add_done_callback(ended.put_nowait)
        return task

    stop = started(stopping.wait())
    reading: asyncio.Task[Any] | None = started(_next(source))
    working: set[asyncio.Task[Response]] = set()
    is_read = False
    try:
        while reading or working:
            task = await ended.get()
            if task is stop:
                await _cancel([reading])
                reading, is_read = None, True
            elif task is reading:
                request, reading = task.result(), None
                is_read = request is _END
                if not is_read:
                    working.add(started(answer(request)))
            elif task in working:
                working.discard(task)
                yield task.result()
            if reading is None and not is_read and len(working) < in_flight:
                # At the limit nothing more is read, so HTTP/2's flow control slows the client down.
                reading = started(_next(source))
        if stop.done():
            raise UnavailableError("The server is stopping; ask again for what has no answer.", reason="STOPPING")
    finally:
        await _cancel([stop, reading, *working])


async def _next(source: AsyncIterator[Any]) -> Any:
    return await anext(source, _END)


async def _cancel(tasks: Iterable[asyncio.Task[Any] | None]) -> None:
    left = [task for task in tasks if task is not None]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
