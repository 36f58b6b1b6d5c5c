"""Streamed replies, assembled into the reply that one piece would have held."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, Any, Protocol

import httpx2

from assay.http.event_stream import EVENT_STREAM, read_events
from assay.providers.errors import ReplyTooLargeError, UnreachableError, error_without_status
from assay.providers.http_client import headers_of, object_in, provider_error, read_reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from assay.providers.messages import Reply

STREAM_HEADERS = {"accept": EVENT_STREAM}
"""Headers of a request for a reply in pieces."""

_LAST = b"[DONE]"
_MAX_CHARS = 4 * 1024 * 1024
_MAX_EVENT_BYTES = 4 * 1024 * 1024
_MAX_PARTS = 10_000
_END_S = 0.1
"""How long the end of the body is waited for after the end of the reply, in seconds."""


class Pieces:
    """A text assembled from pieces."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._chars = 0

    def add(self, piece: object) -> bool:
        """Add a piece that is a non-empty text and ignore any other; return whether it was one.

        Raises:
            ReplyTooLargeError: All of them are longer than 4 Mi characters.
        """
        if not isinstance(piece, str) or not piece:
            return False
        self._chars += len(piece)
        if self._chars > _MAX_CHARS:
            raise ReplyTooLargeError(f"the reply is larger than {_MAX_CHARS // 1024 // 1024} MiB")
        self._pieces.append(piece)
        return True

    def __str__(self) -> str:
        return "".join(self._pieces)


class PartCount:
    """Counts the parts of a streamed reply: choices, tool calls, blocks, items, citations."""

    def __init__(self) -> None:
        self._parts = 0

    def add(self, parts: int = 1) -> None:
        """Count new parts.

        Raises:
            ReplyTooLargeError: They are more than 10,000 by now.
        """
        self._parts += parts
        if self._parts > _MAX_PARTS:
            raise ReplyTooLargeError(f"the reply has more than {_MAX_PARTS:,} parts")


class Assembly(Protocol):
    """The pieces of one reply."""

    @property
    def has_ended(self) -> bool:
        """Whether a piece has said that it is the last, as the protocol does it besides [DONE]."""

    def add(self, event: Mapping[str, Any]) -> bool:
        """Add a piece; return whether it holds text of the reply, other than thoughts."""

    def whole(self, *, ended: bool) -> Mapping[str, Any] | None:
        """Return the assembled reply; None if pieces are missing.

        Args:
            ended: Whether the service has marked the end of the stream with [DONE].
        """


class StreamReader:
    """Reads one stream; created when the request is sent, from where the time to the first text counts.

    Args:
        assembly: Takes the pieces.
        reply_from: Reads what they are together, and the headers.
    """

    def __init__(self, assembly: Assembly, reply_from: Callable[[Mapping[str, Any], Mapping[str, str]], Reply]) -> None:
        self._assembly = assembly
        self._reply_from = reply_from
        self._started = time.perf_counter()

    async def read(self, reply: httpx2.Response) -> Reply:
        """Return the reply of a model in an HTTP reply whose body has not been read.

        The mark of its end ends it, even if the service leaves the connection open.

        Raises:
            ProviderStatusError: The service failed within the stream.
            UnreachableError: The stream was cut off.
            MalformedReplyError: A piece is not JSON, or all of them are no reply of a model.
            ReplyTooLargeError: An event is larger than 4 MiB, or the reply has too many parts.
        """
        first_text_s: float | None = None
        ended = False
        events = read_events(reply.aiter_bytes())
        try:
            if EVENT_STREAM not in reply.headers.get("content-type", ""):
                await reply.aread()  # a service that knows no streams answers in one piece
                return read_reply(reply, self._reply_from)
            async for event in events:
                ended = event.strip() == _LAST
                if not ended and self._add(event, reply) and first_text_s is None:
                    first_text_s = time.perf_counter() - self._started
                if ended or self._assembly.has_ended:
                    await _read_to_end(events)
                    break
        except httpx2.HTTPError as problem:
            raise provider_error(problem) from None
        data = self._assembly.whole(ended=ended)
        if data is None:
            raise UnreachableError("the stream ended before the reply was complete", type="cut_off", sent=True)
        return dataclasses.replace(self._reply_from(data, headers_of(reply)), first_text_s=first_text_s)

    def _add(self, event: bytes, reply: httpx2.Response) -> bool:
        if len(event) > _MAX_EVENT_BYTES:
            raise ReplyTooLargeError(f"an event of the stream is larger than {_MAX_EVENT_BYTES // 1024 // 1024} MiB")
        data = object_in(event)
        if data.get("error") or data.get("type") == "error":
            raise error_without_status(data, headers_of(reply))
        return self._assembly.add(data)


async def _read_to_end(events: AsyncIterator[bytes]) -> None:
    """Read what follows the last event: a connection is used again only if it is known to hold no more bytes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_S):
            async for _ in events:
                pass
