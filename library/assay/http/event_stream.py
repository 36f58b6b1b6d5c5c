"""Server-sent events, as the HTML standard defines them: only the data of each event is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator

EVENT_STREAM = "text/event-stream"
"""The media type."""


async def read_events(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of each event; comments and events with empty data only keep the connection open.

    The caller bounds the stream. An event that the stream ends in the middle of is left out, as the standard says.
    Lines end with \\n or \\r\\n alone: JSON may hold the other characters that Python ends lines at.

    Args:
        chunks: The body in arbitrary pieces.
    """
    data: list[bytes] = []
    async for line in _lines(chunks):
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif not line:
            if event := b"\n".join(data):
                yield event
            data = []


async def _lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    pieces: list[bytes] = []  # of the line that has not ended: joining them at each chunk would take quadratic time
    start = True
    async for chunk in chunks:
        first, *rest = chunk.split(b"\n")
        pieces.append(first)
        for next_line in rest:
            line = b"".join(pieces).removesuffix(b"\r")
            yield line.removeprefix(b"\xef\xbb\xbf") if start else line
            start, pieces = False, [next_line]
