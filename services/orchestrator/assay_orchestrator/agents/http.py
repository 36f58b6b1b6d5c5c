"""The http adapter: fills a request template and maps the reply with JMESPath."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING

import httpx2

from assay.model.answers.agent_response import AgentErrorKind, MalformedAnswerError, clean_text, error_response
from assay.model.answers.response_fields import excerpt
from assay.model.answers.response_limits import AnswerTooLargeError
from assay.specs.http_options import HttpOptions, render
from assay_orchestrator.agents.http_body import MAX_BODY_BYTES, content_encoding, read_body
from assay_orchestrator.agents.http_connection import FailedRequestError, HttpConnection, json_bytes, ms_since
from assay_orchestrator.scorers.jobs import ReplyEvents
from assay_orchestrator.scorers.reply_reader import ReplyReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from assay.errors import Problem
    from assay.model.answers.agent_response import AgentRequest, AgentResponse
    from assay.model.case import Case
    from assay.model.run import AgentSpec
    from assay_orchestrator.agents.access import AgentAccess
    from assay_orchestrator.scorers.pool import ScorerPool

_ACCEPT = {"": "application/json", "sse": "text/event-stream", "jsonl": "application/x-ndjson, application/jsonl"}


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


class HttpAgent:
    """One attempt is one request; headers, query, body and URL may name variables and secrets.

    Args:
        settings: Checked settings.
        access: What may be called and named.
        scorers: Parse replies that take much work; None to parse all of them here.
        has_answers: Whether the run already has answers, which prove its mapping.

    Raises:
        InvalidInputError: The host is not allowed, or a variable or secret is missing or not allowed.
    """

    def __init__(
        self,
        settings: AgentSpec,
        access: AgentAccess,
        *,
        scorers: ScorerPool | None = None,
    ) -> None:
        problems: list[Problem] = []
        options = HttpOptions.from_options(settings.options, problems)
        self._options = options
        self._connection = HttpConnection(
            settings,
            access,
            problems,
            headers=options.headers,
            accept=_ACCEPT[options.stream if options.stream in _ACCEPT else ""],
            templates={"agent.query": options.query, "agent.body": options.body},
        )
        self._replies = ReplyReader(options.response, scorers)

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Return the answer to a request."""
        return await self._connection.attempt(request, self._ask, self._read)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()

    async def _ask(self, request: AgentRequest) -> bytes | ReplyEvents:
        """Return the reply's body, or its events."""
        start = time.perf_counter()
        query, body = self._connection.templates["agent.query"], self._connection.templates["agent.body"]
        parameters = {name: _as_parameter(value) for name, value in render(query, request).items()}
        async with self._connection.stream(
            self._options.method,
            httpx2.URL(self._connection.url).copy_merge_params(parameters),  # `params` would drop the URL's own query
            json_bytes(render(body, request)) if body is not None else None,
            {"idempotency-key": request.idempotency_key} if request.idempotency_key.isascii() else None,
        ) as reply:
            if self._options.stream:
                return await read_events(reply, self._options.stream, start)
            return await read_body(reply)

    async def _read(self, reply: bytes | ReplyEvents, request: AgentRequest) -> AgentResponse:
        return await self._replies.read(reply, request.run_id)


def _as_parameter(value: object) -> str:
    """Return a value as a query parameter: a text unchanged, anything else as JSON."""
    return clean_text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
