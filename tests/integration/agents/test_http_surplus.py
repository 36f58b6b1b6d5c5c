"""The http adapter against servers that send what no request asked for: no row gets the answer of another."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from assay.model.answers.agent_response import AgentErrorKind, AgentRequest, AgentResponse
from assay.model.case import Case, Turn

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay_orchestrator.agents.http import HttpAgent

    Listen = Callable[..., Awaitable[Any]]
    AgentOf = Callable[..., HttpAgent]
    ReplyOf = Callable[..., bytes]


CASE = Case("c", (Turn("q"),))
ROWS = 100


async def ask(agent: HttpAgent, question: str, **fields: Any) -> AgentResponse:
    """Ask one question."""
    request = AgentRequest("r", "run", "c", question, idempotency_key=question, **{"timeout_s": 60.0, **fields})
    return await agent.answer(request, CASE)


class Server:
    """Answers with the question itself, and adds what a test wants.

    Args:
        after: Returns what is sent right after a reply, given the reply.
    """

    def __init__(self, reply_of: ReplyOf, after: Callable[[bytes], bytes] = lambda _reply: b"") -> None:
        self._reply_of = reply_of
        self._after = after
        self.writers: list[asyncio.StreamWriter] = []
        """The connection of each request, in the order of the requests."""

    @property
    def connection_count(self) -> int:
        """How many connections carried a request."""
        return len({id(writer) for writer in self.writers})

    def answer(self, question: str) -> bytes:
        """Return the whole reply to a question."""
        return self._reply_of(json.dumps({"text": question}).encode())

    async def __call__(self, request: Any, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        self.writers.append(writer)
        reply = self.answer(request.json["input"])
        writer.write(reply + self._after(reply))


def own_answer(question: str, response: AgentResponse) -> bool:
    """Return whether a response is the question's own answer, or an error that says what the server did."""
    if response.error is None:
        return response.text == question
    return response.error.kind is AgentErrorKind.UNREACHABLE and "server must send one reply" in response.error.message


SURPLUS: dict[str, Callable[[bytes], bytes]] = {
    "a second reply": lambda reply: reply,
    "two more replies": lambda reply: reply * 2,
    "half of a reply": lambda reply: reply[: len(reply) // 2],
    "one byte": lambda _reply: b"x",
    "many bytes": lambda reply: reply + b"x" * 200_000,
    "a second reply after line ends": lambda reply: b"\r\n\r\n" + reply,
    "an interim reply": lambda _reply: b"HTTP/1.1 100 Continue\r\n\r\n",
}


@pytest.mark.parametrize("surplus", SURPLUS)
async def test_no_row_gets_the_answer_of_another(
    surplus: str, listen: Listen, agent_of: AgentOf, reply_of: Any
) -> None:
    """Half of the replies carry more than they announce: each answer of 100 rows is the row's own."""
    rng = random.Random(surplus)
    server = Server(reply_of, lambda reply: SURPLUS[surplus](reply) if rng.random() < 0.5 else b"")
    agent = agent_of(await listen(server))
    questions = [f"question {index}" for index in range(ROWS)]
    responses: list[AgentResponse] = []
    for start in range(0, ROWS, 4):
        responses += await asyncio.gather(*(ask(agent, question) for question in questions[start : start + 4]))
    assert all(map(own_answer, questions, responses))
    refused = sum(response.error is not None for response in responses)
    assert refused <= 4, "a server that is known to do this gets one request per connection"


async def test_bytes_that_arrive_while_a_connection_is_idle_close_it(
    listen: Listen, agent_of: AgentOf, reply_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A second reply that comes late, before the next question, is not the answer to that question."""
    server = Server(reply_of)
    agent = agent_of(await listen(server))
    for index in range(ROWS):
        assert (await ask(agent, f"question {index}")).text == f"question {index}"
        late = server.writers[-1]
        if not late.is_closing():
            late.write(server.answer("an answer to another question"))
            await late.drain()
    assert server.connection_count == ROWS
    said = [record for record in caplog.records if record.name.startswith("assay")]
    assert len(said) == 1, "the log has one line for one misbehaving server"
    assert "one connection per request" in said[0].getMessage()


async def test_a_reply_that_may_be_that_to_an_earlier_request_is_refused(
    listen: Listen, agent_of: AgentOf, reply_of: Any
) -> None:
    """Bytes that arrive with the reply show that requests and replies of the connection have come apart."""
    server = Server(reply_of)

    async def late(request: Any, writer: asyncio.StreamWriter) -> None:
        server.writers.append(writer)
        ahead = server.answer("one") if request.json["input"] == "two" else b""
        writer.write(ahead + server.answer(request.json["input"]))

    agent = agent_of(await listen(late))
    assert (await ask(agent, "one")).text == "one"
    refused = await ask(agent, "two")
    assert refused.error is not None
    assert refused.error.retryable
    assert "may be that to an earlier request" in refused.error.message
    assert (await ask(agent, "three")).text == "three"
    assert server.connection_count == 2


async def test_a_wrong_content_length_is_never_another_rows_answer(
    listen: Listen, agent_of: AgentOf, reply_of: Any
) -> None:
    """A body that is longer than announced fails its own row alone."""

    async def short(request: Any, writer: asyncio.StreamWriter) -> None:
        body = json.dumps({"text": request.json["input"]}).encode()
        wrong = {"content_length": "5"} if request.json["input"] == "one" else {}
        writer.write(reply_of(body, **wrong))

    agent = agent_of(await listen(short))
    cut = await ask(agent, "one")
    assert cut.error is not None
    assert cut.error.kind is AgentErrorKind.MALFORMED
    assert [(await ask(agent, question)).text for question in ("two", "three")] == ["two", "three"]


async def test_line_ends_after_a_reply_are_harmless(listen: Listen, agent_of: AgentOf, reply_of: Any) -> None:
    """Some servers send one line end too many, at once or late: the connection stays in use."""
    server = Server(reply_of, lambda _reply: b"\r\n")
    agent = agent_of(await listen(server))
    for index in range(20):
        assert (await ask(agent, f"question {index}")).text == f"question {index}"
    assert server.connection_count == 1


async def test_a_flood_of_interim_replies_ends(listen: Listen, agent_of: AgentOf) -> None:
    """A server that only ever says `100 Continue` fails its row long before the time limit."""

    async def flood(_request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100_000)

    response = await ask(agent_of(await listen(flood)), "q")
    assert response.error is not None
    assert "interim (1xx) replies" in response.error.message


async def test_some_interim_replies_are_allowed(listen: Listen, agent_of: AgentOf, reply_of: Any) -> None:
    """Early hints come before many replies."""
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" * 3

    async def hint(request: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(hints + reply_of(json.dumps({"text": request.json["input"]}).encode()))

    agent = agent_of(await listen(hint))
    assert [(await ask(agent, question)).text for question in ("one", "two")] == ["one", "two"]


async def test_a_server_that_behaves_keeps_its_connections(listen: Listen, agent_of: AgentOf, reply_of: Any) -> None:
    """100 questions, four at a time, need four connections."""
    server = Server(reply_of)
    agent = agent_of(await listen(server))
    for start in range(0, ROWS, 4):
        await asyncio.gather(*(ask(agent, f"question {start + index}") for index in range(4)))
    assert server.connection_count == 4


async def test_a_reply_that_was_not_awaited_is_not_the_next_one(
    listen: Listen, agent_of: AgentOf, reply_of: Any
) -> None:
    """The connection of a question that ran out of time is not used again."""
    server = Server(reply_of)
    free = asyncio.Event()

    async def slow(request: Any, writer: asyncio.StreamWriter) -> None:
        if request.json["input"] == "slow":
            await free.wait()
        await server(request, writer)

    agent = agent_of(await listen(slow))
    timed_out = await ask(agent, "slow", timeout_s=0.05)
    assert timed_out.error is not None
    assert timed_out.error.kind is AgentErrorKind.TIMEOUT
    free.set()
    assert dataclasses.replace(await ask(agent, "next"), latency_ms=None) == AgentResponse(text="next")
