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
    stop = asyncio.ensure_future(stopping.wait())
    reading: asyncio.Task[Any] | None = asyncio.ensure_future(_next(source))
    working: set[asyncio.Task[Response]] = set()
    try:
        while reading or working:
            waited: set[asyncio.Task[Any]] = {*working}
            if reading and len(working) < in_flight:
                # At the limit nothing more is read, so HTTP/2's flow control slows the client down.
                waited |= {reading, stop}
            done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if stop in done:
                await _cancel([reading])
                reading = None
            elif reading in done and reading is not None:
                request = reading.result()
                reading = None if request is _END else asyncio.ensure_future(_next(source))
                if request is not _END:
                    working.add(asyncio.ensure_future(answer(request)))
            for task in done & working:
                working.discard(task)
                yield task.result()
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
