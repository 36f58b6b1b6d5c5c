"""Streamed replies of http agents: server-sent events and lines of JSON, whole, cut off, endless and hostile."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import time
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.docs.guides import blocks

from assay.model.answers.agent_response import AgentErrorKind, AgentRequest, AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay_orchestrator.agents.http import MAX_EVENTS, read_events
from assay_orchestrator.agents.http_body import MAX_BODY_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from assay_orchestrator.agents.http import HttpAgent

    Listen = Callable[..., Awaitable[Any]]
    AgentOf = Callable[..., HttpAgent]

CASE = Case("c", (Turn("q"),))

OPENAI, ADK = (
    yaml.safe_load(block.text)["agent"]["response"]
    for block in blocks("docs/http.md", "yaml")
    if "stream:" in block.text
)


async def ask(agent: HttpAgent, **fields: Any) -> AgentResponse:
    """Ask once."""
    request = AgentRequest("r", "run", "c", "q", idempotency_key="k", **{"timeout_s": 20.0, **fields})
    return await agent.answer(request, CASE)


def message_of(response: AgentResponse, kind: AgentErrorKind) -> str:
    """Return the message of a failed answer, which must be of this kind."""
    assert response.status is AgentStatus.ERROR
    assert response.error is not None
    assert response.error.kind is kind, response.error
    return response.error.message


def chunked(*pieces: bytes, end: bool = True, **headers: str) -> bytes:
    """Return a reply whose length is not known before it ends; without `end` it is cut off."""
    lines = ["HTTP/1.1 200 OK", "transfer-encoding: chunked", "content-type: text/event-stream"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return "\r\n".join([*lines, "", ""]).encode() + body + (b"0\r\n\r\n" if end else b"")


def events(*data: Any) -> bytes:
    """Return server-sent events with this data as JSON."""
    return b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in data)


def chunk(text: str | None, **more: Any) -> dict[str, Any]:
    """Return a chunk as services like OpenAI's send it."""
    return {"model": "m-1", "choices": [{"delta": {"content": text} if text is not None else {}, **more}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}}


async def test_chunks_of_openai_are_one_answer(listen: Listen, agent_of: AgentOf) -> None:
    """Deltas are joined, usage is that of the last event, and [DONE] ends the reply."""
    body = events(chunk("مر"), chunk("حبا"), chunk(None, finish_reason="stop"), USAGE) + b"data: [DONE]\n\n"
    server = await listen(chunked(body, end=False))
    response = await ask(agent_of(server, stream="sse", response=OPENAI))
    assert (response.text, response.error) == ("مرحبا", None)
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (7, 2)
    assert (response.model, response.finish_reason) == ("m-1", "stop")
    assert server.received[0].headers["accept"] == "text/event-stream"


async def test_the_first_text_is_what_the_time_to_first_token_is_of(listen: Listen, agent_of: AgentOf) -> None:
    """Events without a text do not count; an answer whose first text is late has a late first token."""
    waited: list[float] = []

    async def reply(_request: Any, writer: asyncio.StreamWriter) -> None:
        start = time.perf_counter()
        writer.write(chunked(events(chunk(None), chunk("")), end=False))
        await writer.drain()
        await asyncio.to_thread(gzip.compress, b"\0" * 20_000_000)
        waited.append((time.perf_counter() - start) * 1000)
        body = events(chunk("a"), chunk("b"))
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))

    response = await ask(agent_of(await listen(reply), stream="sse", response=OPENAI | {"usage": "`null`"}))
    assert response.time_to_first_token_ms is not None
    assert response.latency_ms is not None
    assert waited[0] <= response.time_to_first_token_ms < response.latency_ms


async def test_events_of_adk_hold_no_text_twice(listen: Listen, agent_of: AgentOf) -> None:
    """Partial events give the time of the first token; text, tool calls and usage come from the whole ones."""
    said = {"role": "model"}
    usage = {"promptTokenCount": 40, "candidatesTokenCount": 9}
    call = {"functionCall": {"id": "c1", "args": {"city": "Oslo"}, "name": "weather"}}
    answer = {"functionResponse": {"id": "c1", "name": "weather", "response": {"sky": "clear"}}}
    body = events(
        {"content": {**said, "parts": [call]}, "usageMetadata": usage, "author": "echo"},
        {"content": {"role": "user", "parts": [answer]}, "author": "echo"},
        {"content": {**said, "parts": [{"text": "hm", "thought": True}]}, "partial": True},
        {"content": {**said, "parts": [{"text": "It is "}]}, "partial": True},
        {"content": {**said, "parts": [{"text": "clear."}]}, "partial": True},
        {
            "content": {**said, "parts": [{"text": "hm", "thought": True}, {"text": "It is clear."}]},
            "usageMetadata": usage,
        },
    )
    response = await ask(agent_of(await listen(chunked(body)), stream="sse", response=ADK))
    assert (response.text, response.error) == ("It is clear.", None)
    assert [(call.name, call.id, call.arguments_json) for call in response.tool_calls or ()] == [
        ("weather", "c1", '{"city": "Oslo"}')
    ]
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (80, 18)
    assert response.time_to_first_token_ms is not None


async def test_an_error_in_a_stream_is_an_error_of_the_row(listen: Listen, agent_of: AgentOf) -> None:
    """ADK sends the failure of a model as an event after HTTP 200."""
    body = events({"errorCode": "503", "errorMessage": "overloaded"})
    response = await ask(agent_of(await listen(chunked(body)), stream="sse", response=ADK))
    assert message_of(response, AgentErrorKind.RAISED) == "overloaded"


async def test_lines_of_json_are_events(listen: Listen, agent_of: AgentOf) -> None:
    """Empty lines are none, the last line needs no end, and other fields are found in the list of all lines."""
    body = b'{"t": "a"}\r\n\n{"t": ["b", "c"]}\n{"sources": ["d1", "d2"]}'
    agent = agent_of(await listen(chunked(body)), stream="jsonl", response={"delta": "t", "sources": "[-1].sources"})
    response = await ask(agent)
    assert (response.text, [source.title for source in response.sources]) == ("abc", ["d1", "d2"])


@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        (
            chunked(events(chunk("a")) + b"data: {oops\n\n"),
            AgentErrorKind.MALFORMED,
            "event 2 of the stream is not JSON",
        ),
        (chunked(b"<html>no</html>"), AgentErrorKind.MALFORMED, "without a server-sent event of JSON"),
        (chunked(b": ping\n\n"), AgentErrorKind.MALFORMED, "'text/event-stream'"),
        (chunked(b'event: error\ndata: {"message": "no"}\n\n'), AgentErrorKind.RAISED, 'error: {"message": "no"}'),
        (chunked(events(chunk("a")), end=False) + b"zz\r\n", AgentErrorKind.UNREACHABLE, "cannot be reached"),
        (chunked(b"x", content_encoding="gzip"), AgentErrorKind.MALFORMED, "compressed as 'gzip'"),
        (chunked(b"x" * (MAX_BODY_BYTES + 1)), AgentErrorKind.TOO_LARGE, "larger than 4 MiB"),
        (chunked(b"data:1\n\n" * (MAX_EVENTS + 1)), AgentErrorKind.TOO_LARGE, "more than 100,000 events"),
        (
            chunked(events({"choices": [{"delta": {"content": {"a": 1}}}]})),
            AgentErrorKind.MALFORMED,
            "must find a text",
        ),
        (chunked(events({"id": 1})), AgentErrorKind.MALFORMED, "fields of the last of 1 entries: 'id'"),
    ],
    ids=["no-json", "no-events", "comments", "error-event", "broken", "gzip", "large", "many", "no-text", "nothing"],
)
async def test_a_stream_that_is_none_says_why(
    listen: Listen, agent_of: AgentOf, reply: bytes, kind: AgentErrorKind, said: str
) -> None:
    """Each kind of broken stream is an error of its row, with the reason."""
    assert said in message_of(await ask(agent_of(await listen(reply), stream="sse", response=OPENAI)), kind)


async def test_a_stream_that_is_cut_off_is_no_answer(listen: Listen, agent_of: AgentOf) -> None:
    """A connection that closes within the reply: the answer is none, and may be retried."""

    async def reply(_request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(chunked(events(chunk("a")), end=False))
        writer.close()

    response = await ask(agent_of(await listen(reply), stream="sse", response=OPENAI))
    message_of(response, AgentErrorKind.UNREACHABLE)
    assert response.error is not None
    assert response.error.retryable


async def test_a_stream_without_end_is_a_timeout(listen: Listen, agent_of: AgentOf) -> None:
    """The time limit is that of the whole attempt, however often an event comes."""

    async def reply(_request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(chunked(events(chunk("a")), end=False))
        await writer.drain()
        await asyncio.Event().wait()

    response = await ask(agent_of(await listen(reply), stream="sse", response=OPENAI), timeout_s=0.3)
    assert "no answer within 0.3 s" in message_of(response, AgentErrorKind.TIMEOUT)


@given(
    texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=6),
    line_end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_where_the_bytes_are_cut_changes_nothing(texts: list[str], line_end: bytes, cuts: list[int]) -> None:
    """A stream in any chunks and with any line ends has the same events, with a mark and comments before them."""
    wanted = [json.dumps(text, ensure_ascii=False).encode() for text in texts]
    body = b"\xef\xbb\xbf: hi" + line_end * 2
    body += b"".join(b"id: 3" + line_end + b"data: " + each + line_end * 2 for each in wanted)
    places = sorted({0, *(cut for cut in cuts if cut < len(body)), len(body)})

    async def pieces() -> AsyncIterator[bytes]:
        for start, end in itertools.pairwise(places):
            yield body[start:end]

    reply = httpx2.Response(200, content=pieces())
    found = asyncio.run(read_events(reply, "sse", time.perf_counter()))
    assert list(found.events) == wanted
    assert list(found.arrived_ms) == sorted(found.arrived_ms)


async def test_a_line_end_that_is_cut_in_two_is_one() -> None:
    """CR and LF in two chunks do not end an event that has a further line of data."""

    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"data: [1,\r", b"\ndata: 2]\r\n", b"\r\n"):
            yield piece

    found = await read_events(httpx2.Response(200, content=pieces()), "sse", time.perf_counter())
    assert found.events == (b"[1,\n2]",)
