"""Reads a streamed reply, server-sent events or lines of JSON, with the arrival time of each event."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from assay.model.answers.agent_response import AgentErrorKind, MalformedAnswerError, error_response
from assay.model.answers.response_fields import excerpt
from assay.model.answers.response_limits import AnswerTooLargeError
from assay_orchestrator.agents.http_body import MAX_BODY_BYTES, content_encoding
from assay_orchestrator.agents.http_connection import FailedRequestError, ms_since
from assay_orchestrator.scorers.jobs import ReplyEvents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx2

MAX_EVENTS = 100_000
_DONE = b"[DONE]"
"""The last event of services like OpenAI's; it is not JSON."""
_LINE_END = re.compile(rb"\r\n|\n|\r")


async def read_events(reply: httpx2.Response, form: str, start: float) -> ReplyEvents:
    """Return the events of a stream.

    Args:
        reply: A reply whose body is still to be read.
        form: "sse" or "jsonl".
        start: When the question was sent, by `time.perf_counter`.

    Raises:
        MalformedAnswerError: There is no event, or the stream is compressed.
        AnswerTooLargeError: It is larger than 4 MiB, or has more than 100,000 events.
        FailedRequestError: The server sent an event of the type "error".
    """
    if encoding := content_encoding(reply):
        raise MalformedAnswerError(f"the stream is compressed as {encoding[:40]!r}, which was not requested")
    events: list[bytes] = []
    arrived_ms: list[float] = []
    lines = _lines(reply)
    async for event in _server_sent(lines) if form == "sse" else lines:
        if event.strip() == _DONE:
            break
        if not event.strip():
            continue
        if len(events) == MAX_EVENTS:
            raise AnswerTooLargeError(f"the stream has more than {MAX_EVENTS:,} events")
        events.append(event)
        arrived_ms.append(ms_since(start))
    if not events:
        kind = "server-sent event" if form == "sse" else "line"
        problem_text = f"the stream ended without a {kind} of JSON; its content type is"
        raise MalformedAnswerError(f"{problem_text} {reply.headers.get('content-type', 'not given')[:100]!r}")
    return ReplyEvents(tuple(events), tuple(arrived_ms))


async def _lines(reply: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield lines as they arrive, without line ends; text after the last line end is a line, too."""
    pieces: list[bytes] = []
    size, is_first = 0, True
    # The CR and LF of a line end may arrive in two chunks.
    after_return = False
    async for chunk in reply.aiter_raw():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise AnswerTooLargeError(f"the reply is larger than {MAX_BODY_BYTES // 1024 // 1024} MiB")
        if after_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        after_return = chunk.endswith(b"\r")
        *whole, rest = _LINE_END.split(chunk)
        for part in whole:
            line = b"".join([*pieces, part])
            yield line.removeprefix(b"\xef\xbb\xbf") if is_first else line
            pieces, is_first = [], False
        pieces.append(rest)
    if any(pieces):
        yield b"".join(pieces)


async def _server_sent(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of events; the last event counts even without the empty line that should end it.

    Raises:
        FailedRequestError: The server sent an event of the type "error".
    """
    data: list[bytes] = []
    kind = b""
    async for line in lines:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if data:
                yield _checked(kind, b"\n".join(data))
            data, kind = [], b""
        elif name == b"data":
            data.append(value)
        elif name == b"event":
            kind = value
    if data:
        yield _checked(kind, b"\n".join(data))


def _checked(kind: bytes, data: bytes) -> bytes:
    if kind == b"error":
        problem_text = f"the server sent an event of the type error: {excerpt(data)}"
        raise FailedRequestError(error_response(AgentErrorKind.RAISED, problem_text, type="error"))
    return data
