"""The http adapter against a server on a real port."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import gzip
import html
import json
import logging
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from assay.errors import InvalidInputError
from assay.model.answers.agent_response import (
    AgentErrorKind,
    AgentRequest,
    AgentResponse,
    AgentStatus,
    Interrupt,
    InterruptKind,
    Message,
    response_to_json,
)
from assay.model.case import Case, Turn
from assay_orchestrator.agents.http import HttpAgent
from assay_orchestrator.agents.http_body import MAX_BODY_BYTES
from assay_orchestrator.agents.retrying import RetryingAgent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Listen = Callable[..., Awaitable[Any]]
    AgentOf = Callable[..., HttpAgent]
    ReplyOf = Callable[..., bytes]

CASE = Case("c", (Turn("q"),))
SECRET = "sk-very-secret-0123456789"
HARD = 'قال: "مرحبا"\n\tباي {{input}} \\ 😀'


def asked(text: str = "q", **fields: Any) -> AgentRequest:
    """Return a question."""
    return AgentRequest(
        request_id="r",
        run_id="run",
        case_id="c",
        input=text,
        idempotency_key="run/0/0",
        **{"timeout_s": 20.0, **fields},
    )


async def answer(agent: HttpAgent | RetryingAgent, request: AgentRequest | None = None) -> AgentResponse:
    """Ask once."""
    return await agent.answer(request or asked(), CASE)


def message_of(response: AgentResponse, kind: AgentErrorKind) -> str:
    """Return the message of a failed answer, which must be of this kind."""
    assert response.status is AgentStatus.ERROR
    assert response.error is not None
    assert response.error.kind is kind, response.error
    return response.error.message


OK = json.dumps({"text": "yes"}).encode()


async def test_any_text_passes_through_the_template_whole(listen: Listen, agent_of: AgentOf, reply_of: ReplyOf) -> None:
    """Arabic, quotes, line breaks and braces arrive as they are, alone and inside a longer text, and come back."""
    server = await listen(reply_of(json.dumps({"text": HARD}).encode()))
    agent = agent_of(server, body={"alone": "{{input}}", "inside": "Q: {{ input }}!", "list": ["{{input}}", 1]})
    response = await answer(agent, asked(HARD))
    assert server.received[0].json == {"alone": HARD, "inside": f"Q: {HARD}!", "list": [HARD, 1]}
    assert response.text == HARD
    assert response.latency_ms is not None


async def test_a_placeholder_alone_keeps_its_type(listen: Listen, agent_of: AgentOf, reply_of: ReplyOf) -> None:
    """Numbers, lists and absent variables stay what they are; inside a text they are JSON, and absent ones nothing."""
    server = await listen(reply_of(OK))
    agent = agent_of(
        server,
        body={
            "k": "{{parameters.k}}",
            "tags": "{{variables.tags}}",
            "none": "{{variables.missing}}",
            "all": "{{variables}}",
            "text": "k={{parameters.k}} {{variables.missing}}",
            "json": "{{variables.tags}} {{parameters.on}} {{parameters.off}} {{parameters}}",
            "messages": "{{messages}}",
        },
    )
    request = asked("q", variables={"tags": ["ä", {"b": None}]}, parameters={"k": 0, "on": True, "off": None})
    request = dataclasses.replace(request, history=(Message("user", "hi"),))
    await answer(agent, request)
    assert server.received[0].json == {
        "k": 0,
        "tags": ["ä", {"b": None}],
        "none": None,
        "all": {"tags": ["ä", {"b": None}]},
        "text": "k=0 ",
        "json": '["ä", {"b": null}] true null {"k": 0, "on": true, "off": null}',
        "messages": [{"role": "user", "content": "hi"}, {"role": "user", "content": "q"}],
    }


async def test_a_lone_surrogate_in_a_variable_harms_nothing(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf
) -> None:
    """What UTF-8 cannot hold is replaced on its way out."""
    server = await listen(reply_of(OK))
    response = await answer(agent_of(server, body="{{variables.x}}"), asked(variables={"x": "a\ud800"}))
    assert response.text == "yes"
    assert server.received[0].json == "a\ufffd"


async def test_no_row_carries_the_cookies_of_another(listen: Listen, agent_of: AgentOf, reply_of: ReplyOf) -> None:
    """What a server sets is not sent back: its session of one row is not that of the next; the spec's is sent."""
    server = await listen(reply_of(OK, set_cookie="sid=1; Path=/"))
    plain = agent_of(server)
    fixed = agent_of(server, {"BOT_COOKIE": "team=blue"}, headers={"cookie": "${BOT_COOKIE}"})
    for agent in (plain, fixed):
        for row in range(3):
            assert (await answer(agent, asked(str(row)))).text == "yes"
    assert [request.headers.get("cookie") for request in server.received] == [None] * 3 + ["team=blue"] * 3


async def test_the_request_carries_its_key_and_its_query(listen: Listen, agent_of: AgentOf, reply_of: ReplyOf) -> None:
    """A GET has no body, its query joins that of the URL, and the idempotency key is a header."""
    server = await listen(reply_of(OK))
    agent = agent_of(f"{server.url}?version=2", method="GET", query={"q": "{{input}} & more"})
    await answer(agent, asked("سؤال"))
    request = server.received[0]
    assert (request.method, request.body) == ("GET", b"")
    assert request.query == {"version": "2", "q": "سؤال & more"}
    assert request.headers["idempotency-key"] == "run/0/0"


async def test_what_is_no_text_is_json_in_a_query(listen: Listen, agent_of: AgentOf, reply_of: ReplyOf) -> None:
    """Lists, numbers and absent variables; a text has no quotes."""
    server = await listen(reply_of(OK))
    names = {"tags": "{{variables.tags}}", "k": "{{parameters.k}}", "none": "{{variables.missing}}", "q": "{{input}}"}
    await answer(
        agent_of(server, method="GET", query=names), asked("q", variables={"tags": ["é", 1]}, parameters={"k": 0.5})
    )
    assert server.received[0].query == {"tags": '["é", 1]', "k": "0.5", "none": "null", "q": "q"}


async def test_the_default_template_and_mapping(listen: Listen, agent_of: AgentOf, reply_of: ReplyOf) -> None:
    """Without options the input is posted as `input` and the usual names of an answer are looked for."""
    server = await listen(reply_of(b'{"response": "yes"}'))
    response = await answer(agent_of(server))
    assert (response.text, server.received[0].json) == ("yes", {"input": "q"})
    assert server.received[0].path == "/ask"


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ({"text": "yes", "answer": "no"}, "yes"),
        ({"output": "no", "content": "yes"}, "yes"),
        ({"message": {"role": "assistant"}, "result": "yes"}, "yes"),
        ({"output": "yes", "error": None}, "yes"),
        ({"answer": ""}, ""),
        ("yes", "yes"),
    ],
)
async def test_without_a_mapping_the_usual_names_are_read(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, reply: object, text: str
) -> None:
    """The same names in the same order as for Python agents; a JSON string is the text itself."""
    server = await listen(reply_of(json.dumps(reply).encode()))
    response = await answer(agent_of(server))
    assert (response.status, response.text) == (AgentStatus.SUCCESS, text)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ({"reply": "yes", "id": 1}, "its fields are 'reply', 'id'"),
        ({"reply": "yes", "sources": ["a"]}, "its fields are 'reply', 'sources'"),
        (["yes"], "map its text in agent.response"),
        (None, "map its text in agent.response"),
    ],
)
async def test_without_a_text_the_fields_are_named(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, reply: object, said: str
) -> None:
    """A reply without a text under a usual name is an error, never an empty answer."""
    server = await listen(reply_of(json.dumps(reply).encode()))
    assert said in message_of(await answer(agent_of(server)), AgentErrorKind.MALFORMED)


async def test_a_reply_with_the_names_of_an_answer_keeps_them(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf
) -> None:
    """Without a mapping a reply has the keys of a Python agent's answer; a status of the agent's own is metadata."""
    reply = {
        "answer": "yes",
        "status": "ok",
        "events": ["e1"],
        "sources": [{"title": "s", "score": 0.5}],
        "tool_calls": [{"name": "find", "arguments": {"q": 1}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
        "attempts": [{"latency_ms": 1}],
        "trace": "t-1",
    }
    server = await listen(reply_of(json.dumps(reply).encode()))
    response = await answer(agent_of(server))
    assert (response.text, response.status) == ("yes", AgentStatus.SUCCESS)
    assert response.retrieved is not None
    assert [event.title for event in response.retrieved] == ["e1"]
    assert [(source.title, source.score) for source in response.sources] == [("s", 0.5)]
    assert [(call.name, call.arguments_json) for call in response.tool_calls or ()] == [("find", '{"q": 1}')]
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (3, 4)
    assert (response.metadata, response.attempts) == ({"status": "ok", "trace": "t-1"}, ())


async def test_an_error_needs_nothing_of_an_answer(listen: Listen, agent_of: AgentOf, reply_of: ReplyOf) -> None:
    """Where `error` finds something, expressions that do not fit the reply are no further error."""
    server = await listen(reply_of(b'{"fault": {"message": "no quota"}}'))
    response = await answer(agent_of(server, response={"text": "join('', texts)", "error": "fault"}))
    assert message_of(response, AgentErrorKind.RAISED) == "no quota"


@pytest.mark.parametrize(
    ("reply", "mapping", "interrupt"),
    [
        ({"status": "interrupted", "answer": "May I?"}, {}, Interrupt(message="May I?")),
        (
            {"answer": "draft", "interrupts": [{"name": "refund", "args": {"amount": 5}}]},
            {},
            Interrupt("", InterruptKind.APPROVAL, "refund", '{"amount": 5}'),
        ),
        (
            {"messages": [{"content": "draft"}], "__interrupt__": [{"id": "1", "value": "Which city?"}]},
            {"text": "messages[-1].content", "interrupts": "__interrupt__"},
            Interrupt("1", message="Which city?"),
        ),
        ({"state": "interrupted"}, {"text": "reply", "status": "state"}, Interrupt()),
    ],
)
async def test_an_agent_that_waits_for_a_person_is_asked_once(
    listen: Listen,
    agent_of: AgentOf,
    reply_of: ReplyOf,
    reply: dict[str, Any],
    mapping: dict[str, str],
    interrupt: Interrupt,
) -> None:
    """With the names of an answer or with expressions; a draft beside the stop is no answer."""
    server = await listen(reply_of(json.dumps(reply).encode()))
    agent = RetryingAgent(agent_of(server, **({"response": mapping} if mapping else {})), 2, jitter=lambda: 0.0)
    response = await answer(agent)
    assert (response.status, response.interrupts, response.error) == (AgentStatus.INTERRUPTED, (interrupt,), None)
    assert len(server.received) == 1


async def test_a_mapping_reads_every_part_of_an_answer(listen: Listen, agent_of: AgentOf, reply_of: ReplyOf) -> None:
    """JMESPath expressions pick the answer's fields out of any reply."""
    reply = {"data": {"out": "yes", "docs": [{"t": "A"}, {"t": "B"}], "n": 0}, "tokens": {"in": 0}}
    server = await listen(reply_of(json.dumps(reply).encode()))
    mapping = {
        "text": "data.out",
        "sources": "data.docs[].t",
        "data_rows": "data.n",
        "usage": "{input_tokens: tokens.in}",
        "events": "data.docs[?t=='C']",
    }
    response = await answer(agent_of(server, response=mapping))
    assert [source.title for source in response.sources] == ["A", "B"]
    assert response.usage is not None
    assert (response.text, response.data_rows, response.usage.input_tokens, response.retrieved) == ("yes", 0, 0, ())


async def test_a_mapping_of_tool_calls_that_finds_none_reports_none(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf
) -> None:
    """A reply that was searched for tool calls says that no tool was called; without a mapping nothing is known."""
    server = await listen(reply_of(b'{"out": "yes"}'))
    mapped = await answer(agent_of(server, response={"text": "out", "tool_calls": "calls"}))
    assert mapped.tool_calls == ()
    assert (await answer(agent_of(server, response={"text": "out"}))).tool_calls is None
    nothing = await answer(agent_of(server, response={"text": "other", "tool_calls": "calls"}))
    assert nothing.error is not None, "a reply in which nothing was found is no answer"


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
async def test_a_failure_that_may_pass_is_asked_again(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, status: int
) -> None:
    """Too many requests and server errors are retried, and the answer keeps the failed attempt."""
    server = await listen(reply_of(b"busy", status=status), reply_of(OK))
    response = await answer(RetryingAgent(agent_of(server), 1, jitter=lambda: 0.0))
    assert response.text == "yes"
    assert [attempt.error.http_status for attempt in response.attempts] == [status]
    assert response.attempts[0].error.message == f"HTTP {status}: busy"
    assert len(server.received) == 2


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422])
async def test_a_refusal_is_not_asked_again(listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, status: int) -> None:
    """Client errors are final."""
    server = await listen(reply_of(b"no", status=status))
    response = await answer(RetryingAgent(agent_of(server), 5))
    assert f"HTTP {status}" in message_of(response, AgentErrorKind.HTTP_STATUS)
    assert len(server.received) == 1


async def test_a_redirect_is_not_followed(listen: Listen, agent_of: AgentOf, reply_of: ReplyOf) -> None:
    """A redirect could lead past the allowed hosts: it is an error that says what to do."""
    other = await listen(reply_of(OK))
    server = await listen(reply_of(b"", status=307, location=other.url))
    assert "use the final URL" in message_of(await answer(agent_of(server)), AgentErrorKind.HTTP_STATUS)
    assert other.received == []


@pytest.mark.parametrize("status", [300, 304, 305])
async def test_a_status_that_leads_nowhere_is_no_redirect(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, status: int
) -> None:
    """No other URL answers what 304 says."""
    server = await listen(reply_of(b"", status=status))
    message = message_of(await answer(agent_of(server)), AgentErrorKind.HTTP_STATUS)
    assert f"HTTP {status}: " in message
    assert "URL" not in message


async def test_a_huge_body_is_cut_off(listen: Listen, agent_of: AgentOf) -> None:
    """A reply without an end is read up to the limit, and no further."""
    sent = 0

    async def endless(_request: object, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()
            sent += 0x10000

    server = await listen(endless)
    assert "4 MiB" in message_of(await answer(agent_of(server)), AgentErrorKind.TOO_LARGE)
    assert sent < 100 * MAX_BODY_BYTES


@pytest.mark.parametrize(
    "members",
    [[b" " * 100_000_000], [b" " * (MAX_BODY_BYTES + 1)], [b" " * (MAX_BODY_BYTES // 2)] * 3],
    ids=["bomb", "one-byte", "members"],
)
async def test_a_packed_bomb_is_counted_unpacked(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, members: list[bytes]
) -> None:
    """A small gzip body that unpacks beyond the limit is too large, all its members together."""
    body = b"".join(gzip.compress(member, 1) for member in members)
    server = await listen(reply_of(body, content_encoding="gzip"))
    assert "4 MiB" in message_of(await answer(agent_of(server)), AgentErrorKind.TOO_LARGE)


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (gzip.compress(OK), "gzip"),
        (gzip.compress(OK), " GZip"),
        (OK, "Identity"),
        (zlib.compress(OK), "deflate"),
        (b"".join(gzip.compress(OK[at : at + 1]) for at in range(len(OK))), "gzip"),
        (gzip.compress(OK) + gzip.compress(b" " * 100_000) + gzip.compress(b""), "x-gzip"),
    ],
    ids=["gzip", "letters", "identity", "deflate", "members", "large-members"],
)
async def test_a_packed_answer_is_read(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, body: bytes, coding: str
) -> None:
    """No packing is asked for, and gzip is understood all the same, with all its members."""
    server = await listen(reply_of(body, content_encoding=coding))
    assert (await answer(agent_of(server))).text == "yes"
    assert server.received[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("coding", ["gzip, gzip", "br", "zstd"])
async def test_other_packings_are_refused(listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, coding: str) -> None:
    """Packing that was not offered, several layers of it above all, is not undone."""
    server = await listen(reply_of(gzip.compress(gzip.compress(OK)), content_encoding=coding))
    assert "not requested" in message_of(await answer(agent_of(server)), AgentErrorKind.MALFORMED)


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (b"not gzip", "gzip"),
        (gzip.compress(OK, mtime=0)[:-4], "gzip"),
        (gzip.compress(OK, mtime=0) + gzip.compress(b"\n", mtime=0)[:-4], "gzip"),
        (gzip.compress(OK, mtime=0) + b"garbage", "gzip"),
        (zlib.compress(OK) + zlib.compress(OK), "deflate"),
    ],
    ids=["none", "early", "second-early", "garbage", "deflate-twice"],
)
async def test_a_broken_packing_is_an_error(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, body: bytes, coding: str
) -> None:
    """A body that is not gzip, ends early, or is followed by something else, is no answer."""
    server = await listen(reply_of(body, content_encoding=coding))
    assert coding in message_of(await answer(agent_of(server)), AgentErrorKind.MALFORMED)


@pytest.mark.parametrize(
    ("headers", "waits"),
    [({"retry_after": "2"}, [2.0]), ({"retry_after": "9", "retry_after_ms": "150"}, [0.15]), ({}, [0.0])],
)
async def test_a_busy_server_is_left_alone_for_as_long_as_it_asks(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, headers: dict[str, str], waits: list[float]
) -> None:
    """Retry-After comes before the next attempt."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    server = await listen(reply_of(b"busy", status=429, **headers), reply_of(OK))
    response = await answer(RetryingAgent(agent_of(server), 1, sleep=sleep, jitter=lambda: 0.0))
    assert (response.text, slept) == ("yes", waits)


async def test_a_reply_that_drips_ends_at_the_limit(listen: Listen, agent_of: AgentOf) -> None:
    """The time limit is for the whole call, however often a byte arrives."""

    async def drips(_request: object, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    response = await answer(agent_of(await listen(drips)), asked(timeout_s=0.1))
    assert message_of(response, AgentErrorKind.TIMEOUT) == "no answer within 0.1 s"
    assert response.error is not None
    assert response.error.retryable


async def test_a_body_that_is_cut_short_is_an_error(listen: Listen, agent_of: AgentOf, reply_of: ReplyOf) -> None:
    """A connection that breaks in the middle of a reply can be tried again."""
    whole = reply_of(OK, content_length="1000")

    async def breaks(_request: object, writer: asyncio.StreamWriter) -> None:
        writer.write(whole)
        writer.close()

    response = await answer(agent_of(await listen(breaks)))
    message_of(response, AgentErrorKind.UNREACHABLE)
    assert response.error is not None
    assert response.error.retryable


async def test_nobody_listening_is_unreachable(listen: Listen, agent_of: AgentOf, unused_tcp_port: int) -> None:
    """A refused connection names the URL."""
    url = f"http://127.0.0.1:{unused_tcp_port}/ask"
    assert url in message_of(await answer(agent_of(url)), AgentErrorKind.UNREACHABLE)


@pytest.mark.parametrize(
    ("body", "mapping", "message"),
    [
        (b"<html>Sorry", {}, "not JSON: <html>Sorry"),
        (b"", {}, "not JSON: (empty)"),
        (b"\xff\xfe\x00", {}, "the reply is not UTF-8: "),
        (b"[" * 100_000, {}, "not JSON"),
        (b'{"text": "a", "text": "b"}', {}, "an object has the same key twice"),
        (b'{"nothing": 1}', {}, "finds nothing in {\"nothing\": 1}; fields found: 'nothing'"),
        (b'{"text": {"a": 1}}', {}, "text must be a string, not an object"),
        (b'{"text": "t", "n": 5}', {"data_rows": "length(n)"}, "agent.response.data_rows (length(n))"),
        (b'{"text": "t"}', {"output": "contains(text, `5`)"}, "agent.response.output"),
        (b'{"text": "t", "n": NaN}', {"output": "n"}, "not JSON"),
        (b'{"text": "t", "n": 1' + b"0" * 400 + b"}", {"reported_latency_ms": "n"}, "reported_latency_ms"),
        (b'{"text": "t", "s": "fine"}', {"status": "s"}, "status must be"),
    ],
)
async def test_a_reply_that_does_not_fit_says_where(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, body: bytes, mapping: dict[str, str], message: str
) -> None:
    """A reply that is not JSON or that the mapping does not fit is malformed; the message shows what came."""
    server = await listen(reply_of(body))
    agent = agent_of(server, response={"text": "text", **mapping})
    assert message in message_of(await answer(agent), AgentErrorKind.MALFORMED)


@pytest.mark.parametrize("body", [b"Open at nine.\n", "\ufeffOpen at nine.".encode(), b'"Open at nine."'])
async def test_a_reply_that_is_a_text_is_the_answer(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, body: bytes
) -> None:
    """Without `response`, plain text and a JSON string need no mapping."""
    server = await listen(reply_of(body))
    response = await answer(agent_of(server, response=None))
    assert (response.status, response.text) == (AgentStatus.SUCCESS, "Open at nine.")


@pytest.mark.parametrize(
    ("charset", "body"),
    [
        ("iso-8859-1", "café".encode("latin-1")),
        ('"Windows-1252"; format=flowed', "café".encode("cp1252")),
        ("UTF-16", "café".encode("utf-16")),
        ("shift_jis", "カフェ".encode("shift_jis")),
        ("utf-8", "café".encode()),
        ("us-ascii", "café".encode()),
        ("klingon", "café".encode()),
    ],
)
async def test_a_text_is_read_in_its_charset(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, charset: str, body: bytes
) -> None:
    """A charset that a reply declares is heeded where it is known; else the text is taken for UTF-8."""
    server = await listen(reply_of(body, content_type=f"text/plain; charset={charset}"))
    response = await answer(agent_of(server, response=None))
    assert response.text in ("café", "カフェ")


@pytest.mark.parametrize(
    ("content_type", "message"),
    [
        ("text/plain", "the reply is not UTF-8: caf"),
        ("text/plain; charset=klingon", "the reply is not UTF-8: caf"),
        ("text/plain; charset=hex", "the reply is not UTF-8: caf"),
        ("text/plain; charset=shift_jis", "the reply is not valid shift_jis, its declared charset: caf"),
        ("application/json; charset=iso-8859-1", "the reply is not UTF-8: caf"),
    ],
)
async def test_a_text_in_another_charset_is_an_error(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, content_type: str, message: str
) -> None:
    """The message says what the reply is not; JSON is UTF-8 always."""
    server = await listen(reply_of("café".encode("latin-1"), content_type=content_type))
    assert message in message_of(await answer(agent_of(server, response=None)), AgentErrorKind.MALFORMED)


async def test_a_text_that_grows_in_utf_8_is_counted_there(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf
) -> None:
    """What is read further is not larger than the limit."""
    body = "é".encode("latin-1") * (MAX_BODY_BYTES // 2 + 1)
    server = await listen(reply_of(body, content_type="text/plain; charset=latin-1"))
    assert "4 MiB" in message_of(await answer(agent_of(server, response=None)), AgentErrorKind.TOO_LARGE)


@pytest.mark.parametrize("body", [b"<html>Sorry", b"", b'{"text": "Open at', b"[1, 2"])
async def test_a_page_or_a_broken_reply_is_no_text(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, body: bytes
) -> None:
    """What begins as a page or as JSON and is none is an error, never an answer."""
    server = await listen(reply_of(body))
    assert "not JSON" in message_of(await answer(agent_of(server, response=None)), AgentErrorKind.MALFORMED)


@pytest.mark.parametrize(
    ("error", "message"),
    [("quota used up", "quota used up"), ({"message": "down", "kind": []}, "down"), (None, None), (False, None)],
)
async def test_a_200_can_be_a_failure(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, error: object, message: str | None
) -> None:
    """Where the mapping has an `error`, its value fails the answer; none at all does not."""
    server = await listen(reply_of(json.dumps({"text": "t", "err": error}).encode()))
    response = await answer(agent_of(server, response={"text": "text", "error": "err"}))
    if message is None:
        assert (response.status, response.text) == (AgentStatus.SUCCESS, "t")
    else:
        assert message_of(response, AgentErrorKind.RAISED) == message


@pytest.mark.parametrize(
    ("status", "reply", "mapping"),
    [
        (500, f'{{"you sent": "{SECRET}"}}', {}),
        (500, "x" * 190 + SECRET, {}),
        (500, "س" * 390 + SECRET, {}),
        (200, f"no JSON {SECRET}", {}),
        (200, f'{{"key": "{SECRET}"}}', {}),
        (200, f'{{"text": "t", "err": "bad key {SECRET}"}}', {"error": "err"}),
        (200, f'{{"text": "t", "n": "{SECRET}"}}', {"data_rows": "n"}),
        (200, f'{{"text": "t", "n": "{SECRET}"}}', {"data_rows": "abs(n)"}),
    ],
)
async def test_secrets_travel_in_headers_and_never_in_messages(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, status: int, reply: str, mapping: dict[str, str]
) -> None:
    """A server that sends the key back cannot bring it, or a part of it, into an error message."""
    server = await listen(reply_of(reply.encode(), status=status))
    agent = agent_of(
        server,
        environ={"BOT_KEY": SECRET},
        headers={"Authorization": "Bearer ${BOT_KEY}"},
        response={"text": "text", **mapping},
    )
    response = await answer(agent)
    assert server.received[0].headers["authorization"] == f"Bearer {SECRET}"
    assert response.error is not None
    assert SECRET[:8] not in response.error.message


async def test_secrets_of_the_url_are_not_shown(agent_of: AgentOf, unused_tcp_port: int) -> None:
    """A key in the query is taken out of the message about a connection."""
    agent = agent_of(f"http://127.0.0.1:{unused_tcp_port}/?key=${{BOT_KEY}}", environ={"BOT_KEY": SECRET})
    message = message_of(await answer(agent), AgentErrorKind.UNREACHABLE)
    assert "[redacted]" in message
    assert SECRET not in message


async def test_secrets_of_the_url_are_not_logged(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, caplog: pytest.LogCaptureFixture
) -> None:
    """A key in the query reaches the agent and no log, though the HTTP client would log every URL."""
    caplog.set_level(logging.DEBUG, "httpx2")
    caplog.set_level(logging.DEBUG, "httpcore2")
    server = await listen(reply_of(OK))
    agent = agent_of(f"{server.url}?key=${{BOT_KEY}}", environ={"BOT_KEY": SECRET})
    assert (await answer(agent)).text == "yes"
    assert server.received[0].query == {"key": SECRET}
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("target", "header", "environ", "message"),
    [
        ("http://127.0.0.1/", "${BOT_KEY}", {}, "variable BOT_KEY is not set"),
        ("http://127.0.0.1/", "${BOT_KEY}", {"BOT_KEY": ""}, "variable BOT_KEY is not set"),
        ("http://127.0.0.1/", "${AWS_KEY}", {"AWS_KEY": "k"}, "--agent-env"),
        ("http://127.0.0.1/", "${BOT_KEY}", {"BOT_KEY": "two\nlines"}, "printable ASCII"),
        ("http://127.0.0.1/", "${BOT_KEY}", {"BOT_KEY": "مفتاح"}, "printable ASCII"),
        ("http://169.254.169.254/", "x", {}, "may not call '169.254.169.254'"),
        ("http://127.0.0.1@evil.test/", "x", {}, "may not call 'evil.test'"),
        ("http://127.0.0.1.evil.test/", "x", {}, "may not call"),
        ("http://${BOT_HOST}/", "x", {"BOT_HOST": "evil.test"}, "may not call '[redacted]'"),
    ],
)
async def test_what_may_not_be_called_or_named_is_refused_at_the_door(
    agent_of: AgentOf, target: str, header: str, environ: dict[str, str], message: str
) -> None:
    """Hosts and variables that the operator does not allow, and missing ones, are refused before any call."""
    with pytest.raises(InvalidInputError) as caught:
        agent_of(target, environ=environ, headers={"X-Key": header})
    assert message in str(caught.value)
    assert not any(value in str(caught.value) for value in environ.values() if value and "evil" not in value)


async def test_the_environment_has_no_say_in_the_way(
    listen: Listen, agent_of: AgentOf, reply_of: ReplyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy of the environment sees neither questions nor keys."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server = await listen(reply_of(OK))
    assert (await answer(agent_of(server))).text == "yes"


async def test_one_bad_reply_does_not_spoil_the_next(listen: Listen, agent_of: AgentOf, reply_of: ReplyOf) -> None:
    """Calls at once over one agent keep their own answers, also after failures."""

    async def echo(request: Any, writer: asyncio.StreamWriter) -> None:
        text = request.json["input"]
        body = b"{broken" if text == "3" else json.dumps({"text": text}).encode()
        writer.write(reply_of(body))

    agent = agent_of(await listen(echo))
    responses = await asyncio.gather(*(answer(agent, dataclasses.replace(asked(), input=str(n))) for n in range(20)))
    assert [response.text for response in responses] == ["" if n == 3 else str(n) for n in range(20)]


async def test_no_value_of_a_variable_comes_back_in_an_answer(listen: Listen, agent_of: AgentOf) -> None:
    """An agent that echoes its request, in whatever field and encoding, gives away none of the operator's secrets."""
    names = ("PATH", "HEADER", "LOGIN", "QUERY", "BODY")
    environ = {f"BOT_{name}": f'{name.lower()}-5ecr3t/"&+é{index}' for index, name in enumerate(names)}
    environ["BOT_HEADER"], environ["BOT_LOGIN"] = "header-5ecr3t-value", "login-5ecr3t"

    async def echo(request: Any, writer: asyncio.StreamWriter) -> None:
        said = [request.path, request.headers["x-key"], request.json["k"], json.dumps(request.json), request.query["q"],
                base64.b64encode(f"user:{environ['BOT_LOGIN']}!".encode()).decode(),
                base64.urlsafe_b64encode(environ["BOT_BODY"].encode()).decode(),
                environ["BOT_BODY"].encode().hex(), html.escape(environ["BOT_BODY"])]  # fmt: skip
        text = "\n".join(said)
        reply = {
            "text": text, "output": {text: [text, {"a": text}]}, "sql": text, "model": text, "finish_reason": text,
            "tool_calls": [{"name": text, "id": text, "arguments": {"a": text}, "result": text}],
            "sources": [{"id": text, "title": text, "uri": text, "content": text, "metadata": {"a": text}}],
            "retrieved": [text], "metadata": {"a": text, text: 1},
        }  # fmt: skip
        error = {"error": {"message": text, "type": text}} if request.json["fail"] == "yes" else {}
        body = json.dumps(reply | error).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    server = await listen(echo)
    fields = (
        "text output sql model finish_reason tool_calls sources retrieved metadata error status usage".split()  # noqa: SIM905
    )
    for fail in ("yes", "no"):
        agent = agent_of(
            server.url + "/${BOT_PATH}",
            environ,
            headers={"x-key": "Bearer ${BOT_HEADER}", "authorization": "Basic ${BOT_LOGIN}"},
            query={"q": "${BOT_QUERY}"},
            body={"k": "${BOT_BODY}", "fail": fail},
            response={name: name for name in fields},
        )
        stored = json.dumps(response_to_json(await answer(agent)), ensure_ascii=False)
        assert stored.count("[redacted]") > 10
        assert "5ecr3t" not in stored
        for value in environ.values():
            core = base64.b64encode(value.encode()).decode()[4:12]
            assert core not in stored
            assert value.encode().hex()[:16] not in stored


async def test_an_answer_without_secrets_is_left_as_it_is(listen: Listen, agent_of: AgentOf, reply_of: ReplyOf) -> None:
    """Words that happen to be the value of a short variable are no secrets."""
    server = await listen(reply_of(b'{"text": "yes, in eu-west"}'))
    agent = agent_of(
        server, {"BOT_REGION": "eu", "BOT_KEY": "k" * 40}, headers={"r": "${BOT_REGION}", "k": "${BOT_KEY}"}
    )
    assert (await answer(agent)).text == "yes, in eu-west"
