"""The a2a adapter against a server that answers as agents of a2a-sdk 1.3 do, and against wrong ones."""

from __future__ import annotations

import functools
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from assay.model.answers.agent_response import (
    AgentErrorKind,
    AgentRequest,
    AgentResponse,
    AgentStatus,
    Interrupt,
    InterruptKind,
    Message,
)
from assay.model.answers.approvals import read_approvals
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec
from assay.specs.agents import check_agent
from assay_orchestrator.agents.a2a import A2aAgent
from assay_orchestrator.agents.access import AgentAccess

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Awaitable, Callable

    Listen = Callable[..., Awaitable[Any]]
    ReplyOf = Callable[..., bytes]
    AgentOf = Callable[..., Awaitable[Any]]

SECRET = "sk-very-secret-0123456789"


def message(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a message of an agent."""
    return {"messageId": "m", "contextId": "ctx", "role": "ROLE_AGENT", "parts": list(parts), **fields}


def task(state: str, *texts: str, said: str = "", **fields: Any) -> dict[str, Any]:
    """Return a task in a state, with an artifact of these texts and a message of its status."""
    status = {"state": f"TASK_STATE_{state}"} | ({"message": message({"text": said})} if said else {})
    artifacts = {"artifacts": [{"artifactId": "a", "parts": [{"text": text} for text in texts]}]} if texts else {}
    return {"id": "t-1", "contextId": "ctx", "status": status, **artifacts, **fields}


class Server:
    """Serves a card, and one result after the other."""

    def __init__(self, reply_of: ReplyOf, results: tuple[Any, ...], card: Any = None) -> None:
        self.reply_of = reply_of
        self.results = list(results)
        self.card = card
        self.url = ""
        self.calls: list[dict[str, Any]] = []
        self.requests: list[Any] = []

    async def __call__(self, request: Any, writer: asyncio.StreamWriter) -> None:
        self.requests.append(request)
        status = 200
        if request.method == "GET":
            card = self.card(self.url) if callable(self.card) else self.card
            status, body = (card, {}) if isinstance(card, int) else (200, card)
        else:
            self.calls.append(request.json)
            result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
            if callable(result):
                await result(writer, self.reply_of)
                return
            body = {"jsonrpc": "2.0", "id": request.json["id"], **result}
        writer.write(self.reply_of(json.dumps(body).encode(), status=status))


def card_of(url: str, **interface: Any) -> dict[str, Any]:
    """Return the card of an agent with one interface."""
    offered = {"url": f"{url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0", **interface}
    return {"name": "x", "description": "d", "supportedInterfaces": [offered]}


async def hang_up(writer: asyncio.StreamWriter, _: ReplyOf) -> None:
    """Close the connection without a reply."""
    writer.close()


async def say_nothing(_writer: asyncio.StreamWriter, _: ReplyOf) -> None:
    """Leave a request without its reply."""


async def refuse(writer: asyncio.StreamWriter, reply_of: ReplyOf, status: int = 503) -> None:
    """Reply with a status and without JSON-RPC."""
    writer.write(reply_of(b"busy", status=status))


@pytest.fixture
async def a2a_of(listen: Listen, reply_of: ReplyOf) -> AsyncIterator[AgentOf]:
    """Make an agent of a server with a card that sends some results; returns both."""
    async with AsyncExitStack() as stack:

        async def make(*results: Any, card: Any = card_of, path: str = "", **options: Any) -> tuple[A2aAgent, Server]:
            server = Server(reply_of, results, card)
            server.url = (await listen(server)).url.removesuffix("/ask")
            settings = AgentSpec("a2a", server.url + path, options=options)
            assert check_agent(settings) == []
            access = AgentAccess(("127.0.0.1",), ("BOT_*",), {"BOT_KEY": SECRET})
            agent = A2aAgent(settings, access, poll_timeout_s=0.5)
            stack.push_async_callback(agent.aclose)
            return agent, server

        yield make


async def ask(agent: A2aAgent, turn: int = 0, turns: int = 1, attempt: int = 0, **fields: Any) -> AgentResponse:
    """Ask one turn of row run/0/0."""
    key = "run/0/0" if turns == 1 else f"run/0/0/{turn}"
    request = AgentRequest(
        f"{key}#{attempt}",
        "run",
        "c",
        "q",
        turn_index=turn,
        session_id="run/0/0",
        idempotency_key=key,
        **{"timeout_s": 20.0, **fields},
    )
    return await agent.answer(request, Case("c", (Turn("q"),) * turns))


def error_of(response: AgentResponse, kind: AgentErrorKind) -> str:
    """Return the message of a failed answer, which must be of this kind."""
    assert response.status is AgentStatus.ERROR
    assert response.error is not None
    assert response.error.kind is kind, response.error
    return response.error.message


async def test_a_message_is_an_answer(a2a_of: AgentOf) -> None:
    """Texts are joined, data is output, links are sources, and usage is read from the metadata by agreement."""
    parts: list[dict[str, Any]] = [
        {"text": "one"},
        {"text": "two"},
        {"data": {"n": 1}},
        {"url": "http://a/b", "filename": "b"},
    ]
    usage = {"usage": {"input_tokens": 3, "output_tokens": 4}}
    agent, server = await a2a_of(
        {"result": {"message": message(*parts, metadata=usage)}}, headers={"authorization": "Bearer ${BOT_KEY}"}
    )
    response = await ask(agent)
    assert (response.text, response.output, response.error) == ("one\ntwo", {"n": 1}, None)
    assert [(source.title, source.uri) for source in response.sources] == [("b", "http://a/b")]
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (3, 4)
    assert [request.path for request in server.requests] == ["/.well-known/agent-card.json", "/rpc"]
    for request in server.requests:
        assert (request.headers["a2a-version"], request.headers["authorization"]) == ("1.0", f"Bearer {SECRET}")
    (call,) = server.calls
    assert (call["jsonrpc"], call["method"], call["params"]["message"]["role"]) == ("2.0", "SendMessage", "ROLE_USER")
    assert call["params"]["message"]["parts"] == [{"text": "q"}]
    await ask(agent)
    assert len(server.requests) == 3  # the card is read once


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([{"text": "The"}, {"text": " capital"}, {"text": " is"}, {"text": " Lima."}], "The capital is Lima."),
        ([{"text": "one "}, {"text": "two"}], "one two"),
        ([{"text": "First."}, {"text": "Second."}], "First.\nSecond."),
        ([{"data": {"answer": "42", "n": 1}}], "42"),
        ([{"data": {"n": 1}}], ""),
        ([{"text": "said"}, {"data": {"answer": "42"}}], "said"),
    ],
)
async def test_pieces_of_a_text_are_one_text(a2a_of: AgentOf, parts: list[dict[str, Any]], text: str) -> None:
    """As an agent appends them while its model writes; data alone has the text that every answer has there."""
    agent, _ = await a2a_of({"result": {"message": message(*parts)}})
    assert (await ask(agent)).text == text


async def test_a_task_is_asked_until_it_has_ended(a2a_of: AgentOf) -> None:
    """Its artifacts are the answer; a message of its status counts where there are none."""
    usage = {"usage": {"output_tokens": 4}}
    agent, server = await a2a_of(
        {"result": {"task": task("SUBMITTED")}},
        {"result": task("WORKING", said="thinking")},
        {"result": task("COMPLETED", "a", "b", said="done", metadata=usage)},
        {"result": {"task": task("COMPLETED", said="done")}},
    )
    response = await ask(agent)
    assert response.text == "a\nb"
    assert response.usage is not None
    assert response.usage.output_tokens == 4
    assert [call["method"] for call in server.calls] == ["SendMessage", "GetTask", "GetTask"]
    assert [call["params"] for call in server.calls[1:]] == [{"id": "t-1"}] * 2
    assert (await ask(agent)).text == "done"


async def test_a_task_that_never_ends_is_a_timeout(a2a_of: AgentOf) -> None:
    """The time limit bounds all requests of an attempt together."""
    agent, _ = await a2a_of({"result": {"task": task("WORKING")}}, {"result": task("WORKING")})
    assert "no answer within 0.4 s" in error_of(await ask(agent, timeout_s=0.4), AgentErrorKind.TIMEOUT)


@pytest.mark.parametrize("failing", [refuse, hang_up, say_nothing, {"error": {"code": -32603, "message": "boom"}}])
async def test_a_poll_that_fails_is_repeated(a2a_of: AgentOf, failing: Any) -> None:
    """The task runs on at the agent: the attempt waits for it, as another SendMessage would start and pay another."""
    agent, server = await a2a_of(
        {"result": {"task": task("WORKING")}}, failing, failing, {"result": task("COMPLETED", "a")}
    )
    response = await ask(agent)
    assert (response.text, response.error) == ("a", None)
    assert [call["method"] for call in server.calls] == ["SendMessage", "GetTask", "GetTask", "GetTask"]
    assert [call["params"] for call in server.calls[1:]] == [{"id": "t-1"}] * 3


async def test_a_poll_that_is_refused_ends_the_attempt(a2a_of: AgentOf) -> None:
    """A failure that does not pass is the answer, without waiting for the time limit."""
    agent, server = await a2a_of({"result": {"task": task("WORKING")}}, functools.partial(refuse, status=403))
    assert "HTTP 403" in error_of(await ask(agent), AgentErrorKind.HTTP_STATUS)
    assert len(server.calls) == 2


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("FAILED", "the task failed: sorry"),
        ("REJECTED", "the agent rejected the task: sorry"),
        ("CANCELED", "the task was cancelled at the agent: sorry"),
        ("AUTH_REQUIRED", "set them in agent.headers: sorry"),
    ],
)
async def test_other_ends_of_a_task_are_errors(a2a_of: AgentOf, state: str, said: str) -> None:
    """Each names its state, and keeps what the agent said."""
    agent, _ = await a2a_of({"result": {"task": task(state, "partial", said="sorry")}})
    response = await ask(agent)
    assert said in error_of(response, AgentErrorKind.RAISED)
    assert response.error is not None
    assert (response.error.type, response.error.retryable, response.text) == (state.lower(), False, "partial")


@pytest.mark.parametrize(
    "result",
    [{"message": message()}, {"message": message({"text": " "})}, {"task": task("COMPLETED")}],
)
async def test_an_agent_without_a_word_has_not_answered(a2a_of: AgentOf, result: dict[str, Any]) -> None:
    """As with models; data, files and tool calls are an answer without a text."""
    agent, _ = await a2a_of({"result": result})
    assert "empty answer" in error_of(await ask(agent), AgentErrorKind.RAISED)
    agent, _ = await a2a_of({"result": {"message": message({"data": {"rows": 0}})}})
    assert (await ask(agent)).output == {"rows": 0}


QUESTION = {"result": {"task": task("INPUT_REQUIRED", said="which city?")}}
DONE = {"result": {"task": task("COMPLETED", "clear")}}


def approvals_of(*items: dict[str, Any]) -> dict[str, Any]:
    approvals, problems = read_approvals(list(items), times=1)
    assert not problems
    return {"approvals": approvals}


async def test_a_task_that_wants_input_is_interrupted(a2a_of: AgentOf) -> None:
    """What it asks is what it waits for, and what it has until then is kept; it is no error and not asked again."""
    agent, server = await a2a_of({"result": {"task": task("INPUT_REQUIRED", "draft", said="which city?")}})
    response = await ask(agent)
    assert (response.status, response.error, response.text) == (AgentStatus.INTERRUPTED, None, "draft")
    assert response.interrupts == (Interrupt("t-1", InterruptKind.INPUT, message="which city?"),)
    assert len(server.calls) == 1


async def test_a_task_that_wants_input_gets_the_decision_of_the_case(a2a_of: AgentOf) -> None:
    """Each answer is a message of its own to the same task, in one attempt; the answer is that of the end."""
    agent, server = await a2a_of(QUESTION, QUESTION, QUESTION, DONE)
    answers: list[dict[str, Any]] = [{"answer": "Lima"}, {"answer": {"zip": 15001}}, {"deny": "no city"}]
    response = await ask(agent, **approvals_of(*answers))
    assert (response.text, response.status) == ("clear", AgentStatus.SUCCESS)
    assert [stop.decision for stop in response.interrupts] == ["answer", "answer", "deny"]
    sent = [call["params"]["message"] for call in server.calls]
    assert [one["parts"] for one in sent] == [
        [{"text": "q"}],
        [{"text": "Lima"}],
        [{"data": {"zip": 15001}}],
        [{"text": "no city"}],
    ]
    assert [one.get("taskId") for one in sent] == [None, "t-1", "t-1", "t-1"]
    assert len({one["contextId"] for one in sent}) == 1
    assert len({one["messageId"] for one in sent}) == 4


async def test_interrupts_of_the_metadata_have_their_decisions(a2a_of: AgentOf) -> None:
    """By agreement an agent names the tools that wait, and reads the decisions of all of them from the metadata."""
    stops = [{"kind": "approval", "id": "c1", "tool": "pay", "arguments": {"n": 9}}, {"id": "c2", "tool": "mail"}]
    said = {**task("INPUT_REQUIRED", said="may I?"), "metadata": {"interrupts": stops}}
    agent, server = await a2a_of({"result": {"task": said}}, DONE)
    response = await ask(agent, **approvals_of({"tool": "mail", "approve": True}, {"tool": "pay", "edit": {"n": 1}}))
    assert [(stop.tool, stop.decision) for stop in response.interrupts] == [("pay", "edit"), ("mail", "approve")]
    reply = server.calls[1]["params"]["message"]
    assert reply["parts"] == [{"data": {"n": 1}}, {"text": "approved"}]
    assert reply["metadata"] == {
        "decisions": [
            {"id": "c1", "tool": "pay", "edit": {"n": 1}, "times": 1},
            {"id": "c2", "tool": "mail", "approve": True, "times": 1},
        ]
    }


CONFIRMATION = "adk_request_confirmation"


def adk_part(kind: str, **data: Any) -> dict[str, Any]:
    """Return a part as the server of Google ADK writes it."""
    return {"data": data, "metadata": {"adk_type": kind}}


async def test_calls_of_google_adk_get_their_responses(a2a_of: AgentOf) -> None:
    """Its server takes no text where a call waits: each call gets its function response; none of them is an output."""
    confirmed = {"name": "pay", "id": "c1", "args": {"n": 9}}
    waiting = [
        adk_part("function_call", id="a1", name=CONFIRMATION, args={"originalFunctionCall": confirmed}),
        adk_part("function_call", id="a2", name="ship", args={}),
    ]
    for part in waiting:
        part["metadata"]["adk_is_long_running"] = True
    status = {"state": "TASK_STATE_INPUT_REQUIRED", "message": message(adk_part("function_call", id="c0"), *waiting)}
    agent, server = await a2a_of({"result": {"task": {**task("WORKING"), "status": status}}}, DONE)
    items = ({"tool": "pay", "deny": "no"}, {"answer": {"eta": 3}})
    response = await ask(agent, **approvals_of(*items))
    assert (response.text, response.output) == ("clear", None)
    assert [(stop.id, stop.kind, stop.tool, stop.decision) for stop in response.interrupts] == [
        ("c1", InterruptKind.APPROVAL, "pay", "deny"),
        ("a2", InterruptKind.CALL, "ship", "answer"),
    ]
    assert server.calls[1]["params"]["message"]["parts"] == [
        adk_part(
            "function_response", id="a1", name="adk_request_confirmation", response={"confirmed": False, "hint": "no"}
        ),
        adk_part("function_response", id="a2", name="ship", response={"eta": 3}),
    ]


async def test_function_calls_of_google_adk_are_tool_calls(a2a_of: AgentOf) -> None:
    """Those since the question, each once, with what it returned: neither what it had before a person confirmed it,
    nor the calls by which ADK asks a person.
    """

    def said(message_id: str, *parts: dict[str, Any], role: str = "AGENT") -> dict[str, Any]:
        return {"messageId": message_id, "role": f"ROLE_{role}", "parts": list(parts)}

    confirm = {"id": "a1", "name": CONFIRMATION, "args": {"originalFunctionCall": {"name": "pay", "id": "c1"}}}
    history = [
        said("1", {"text": "earlier"}, role="USER"),
        said("2", adk_part("function_call", id="c0", name="pay", args={"n": 1})),
        said("3", {"text": "q"}, role="USER"),
        said("4", adk_part("function_call", id="c1", name="pay", args={"n": 9})),
        said("5", adk_part("function_call", **confirm)),
        said("6", adk_part("function_response", id="c1", name="pay", response={"error": "confirm"})),
        said("5", adk_part("function_call", **confirm)),
        said("7", adk_part("function_response", id="a1", name=CONFIRMATION, response={"confirmed": True}), role="USER"),
        said("8", adk_part("function_response", id="c1", name="pay", response={"result": "paid"})),
        said("9", adk_part("function_call", id="c2", name="ship", args={})),
        said("10", adk_part("function_response", id="c2", name="ship", response={"error": "no"})),
    ]
    agent, _ = await a2a_of({"result": {"task": {**task("COMPLETED", "done"), "history": history}}})
    calls = (await ask(agent)).tool_calls
    assert [(call.name, call.arguments_json, call.result_json, call.is_error) for call in calls or ()] == [
        ("pay", '{"n": 9}', '{"result": "paid"}', False),
        ("ship", "{}", '{"error": "no"}', True),
    ]
    half = {"result": {"task": {**task("INPUT_REQUIRED"), "history": history[:7]}}}
    agent, _ = await a2a_of(half)
    assert [(call.name, call.result_json) for call in (await ask(agent)).tool_calls or ()] == [("pay", "")]


async def test_thoughts_of_google_adk_are_no_part_of_the_text(a2a_of: AgentOf) -> None:
    """They are marked in the metadata of a part."""
    thought = {"text": "hm", "metadata": {"adk_thought": True}}
    agent, _ = await a2a_of({"result": {"message": message(thought, {"text": "Lima"})}})
    response = await ask(agent)
    assert (response.text, response.thoughts) == ("Lima", "hm")


async def test_arguments_that_google_adk_cannot_edit_are_refused(a2a_of: AgentOf) -> None:
    """Its server runs a call as it is: to approve it would be another decision than that of the case."""
    call = adk_part(
        "function_call", id="a1", name="adk_request_confirmation", args={"originalFunctionCall": {"name": "pay"}}
    )
    call["metadata"]["adk_is_long_running"] = True
    status = {"state": "TASK_STATE_INPUT_REQUIRED", "message": message(call)}
    agent, server = await a2a_of({"result": {"task": {**task("WORKING"), "status": status}}})
    response = await ask(agent, **approvals_of({"edit": {"n": 1}}))
    assert "approvals edit the arguments of pay" in error_of(response, AgentErrorKind.RAISED)
    assert response.error is not None
    assert response.error.type == "UnusableDecision"
    assert len(server.calls) == 1


async def test_decisions_come_before_the_next_turn(a2a_of: AgentOf) -> None:
    """A question of the agent that the approvals do not decide is the answer to its turn, as without any."""
    agent, server = await a2a_of(QUESTION, QUESTION, DONE)
    first = await ask(agent, 0, 2, **approvals_of({"answer": "Lima"}))
    assert (first.text, first.status) == ("which city?", AgentStatus.SUCCESS)
    assert [stop.decision for stop in first.interrupts] == ["answer"]
    assert (await ask(agent, 1, 2)).text == "clear"
    assert [call["params"]["message"].get("taskId") for call in server.calls] == [None, "t-1", "t-1"]


async def test_a_call_that_waits_is_not_answered_by_the_next_turn(a2a_of: AgentOf) -> None:
    """What a user says next approves no call: the conversation ends with a turn that is interrupted."""
    said = {**task("INPUT_REQUIRED", "draft"), "metadata": {"interrupts": [{"tool": "pay"}]}}
    agent, _ = await a2a_of({"result": {"task": said}})
    response = await ask(agent, 0, 2)
    assert (response.status, [stop.tool for stop in response.interrupts]) == (AgentStatus.INTERRUPTED, ["pay"])


async def test_a_task_that_never_has_enough_input_is_an_error(a2a_of: AgentOf) -> None:
    """An answer without limit does not go on for ever; what was decided is kept."""
    agent, server = await a2a_of(QUESTION)
    response = await ask(agent, **approvals_of({"answer": "x", "times": "unlimited"}))
    assert "it stopped again (input)" in error_of(response, AgentErrorKind.RAISED)
    assert len(server.calls) == 101
    assert len(response.interrupts) == 100


async def test_an_attempt_that_fails_after_a_stop_says_what_was_decided(a2a_of: AgentOf) -> None:
    """A retry begins with all approvals, in a context of its own."""
    boom = {"error": {"code": -32603, "message": "boom"}}
    agent, server = await a2a_of(QUESTION, boom, QUESTION, DONE)
    response = await ask(agent, **approvals_of({"answer": "Lima"}))
    assert "boom" in error_of(response, AgentErrorKind.RAISED)
    assert [stop.decision for stop in response.interrupts] == ["answer"]
    assert (await ask(agent, attempt=1, **approvals_of({"answer": "Lima"}))).text == "clear"
    contexts = [call["params"]["message"]["contextId"] for call in server.calls]
    assert contexts[0] == contexts[1] != contexts[2] == contexts[3]


async def test_a_further_turn_is_the_input_that_a_task_wants(a2a_of: AgentOf) -> None:
    """In a conversation the agent's question is an answer, and the next turn goes to the same task and context."""
    agent, server = await a2a_of(
        {"result": {"task": task("INPUT_REQUIRED", said="which city?")}},
        {"result": {"task": task("COMPLETED", "clear")}},
        {"result": {"message": message({"text": "bye"})}},
    )
    assert [(await ask(agent, turn, 3)).text for turn in range(3)] == ["which city?", "clear", "bye"]
    sent = [call["params"]["message"] for call in server.calls]
    assert [one.get("taskId") for one in sent] == [None, "t-1", None]
    assert len({one["contextId"] for one in sent}) == 1
    assert len({one["messageId"] for one in sent}) == 3


async def test_a_retry_of_a_turn_goes_to_the_same_task(a2a_of: AgentOf) -> None:
    """A failed attempt does not lose the task that awaits the turn, nor the context of the conversation."""
    agent, server = await a2a_of(
        {"result": {"task": task("INPUT_REQUIRED", said="which city?")}},
        {"error": {"code": -32603, "message": "boom"}},
        {"result": {"task": task("COMPLETED", "clear")}},
    )
    for turn, attempt in ((0, 0), (1, 0), (1, 1)):
        response = await ask(agent, turn, 2, attempt)
    assert response.text == "clear"
    sent = [call["params"]["message"] for call in server.calls]
    assert [one.get("taskId") for one in sent] == [None, "t-1", "t-1"]
    assert len({one["contextId"] for one in sent}) == 1


async def test_a_retry_of_the_first_turn_has_a_fresh_context(a2a_of: AgentOf) -> None:
    """What a failed attempt has left at the agent is no part of the conversation; further turns are in the new one."""
    agent, server = await a2a_of(
        {"error": {"code": -32603, "message": "boom"}},
        {"result": {"message": message({"text": "x"})}},
    )
    for turn, attempt in ((0, 0), (0, 1), (1, 0)):
        await ask(agent, turn, 2, attempt)
    first, second, third = (call["params"]["message"]["contextId"] for call in server.calls)
    assert first != second == third


async def test_attempts_have_fresh_contexts_and_one_message_id(a2a_of: AgentOf) -> None:
    """Each attempt at a question has a context of its own; by the id of its message an agent recognises a repeat."""
    agent, server = await a2a_of({"result": {"message": message({"text": "x"})}})
    await ask(agent)
    await ask(agent, attempt=1)
    sent = [call["params"]["message"] for call in server.calls]
    assert len({one["contextId"] for one in sent}) == 2
    assert len({one["messageId"] for one in sent}) == 1


@pytest.mark.parametrize(
    ("result", "kind", "said", "retryable"),
    [
        ({"error": {"code": -32603, "message": "boom"}}, AgentErrorKind.RAISED, "error -32603: boom", True),
        ({"error": {"code": -32601, "message": "no"}}, AgentErrorKind.RAISED, "another version of A2A than 1.0", False),
        ({"error": "x"}, AgentErrorKind.RAISED, "error None: (no explanation)", False),
        ({"id": "other", "result": {}}, AgentErrorKind.MALFORMED, "another request, 'other'", False),
        ({"result": {}}, AgentErrorKind.MALFORMED, "neither message nor task", False),
        ({"result": [1]}, AgentErrorKind.MALFORMED, "must be an object with a message or a task", False),
        ({"result": {"task": {"id": "t"}}}, AgentErrorKind.MALFORMED, "the task has no state", False),
        (
            {"result": {"task": task("WORKING") | {"status": {"state": "working"}}}},
            AgentErrorKind.MALFORMED,
            "1.0",
            False,
        ),
        ({"result": {"message": message(parts=3)}}, AgentErrorKind.MALFORMED, "parts must be a list", False),
        ({}, AgentErrorKind.MALFORMED, "an object of JSON-RPC with a result", False),
        ({"error": None}, AgentErrorKind.MALFORMED, "an object of JSON-RPC with a result", False),
    ],
)
async def test_what_is_no_result_says_why(
    a2a_of: AgentOf, result: Any, kind: AgentErrorKind, said: str, retryable: bool
) -> None:
    """Errors of JSON-RPC come with HTTP 200; the agent's own exception may pass."""
    agent, _ = await a2a_of(result)
    response = await ask(agent)
    assert said in error_of(response, kind)
    assert response.error is not None
    assert response.error.retryable is retryable


async def test_messages_before_the_question_are_refused(a2a_of: AgentOf) -> None:
    """The protocol has no place for them, and without them the question is another one."""
    agent, server = await a2a_of({"result": {}})
    response = await ask(agent, history=(Message("user", "hi"),))
    assert "make them turns" in error_of(response, AgentErrorKind.RAISED)
    assert not server.requests


@pytest.mark.parametrize(
    ("card", "said"),
    [
        (card_of, ""),
        (lambda url: card_of(url, protocolBinding="GRPC"), "offers GRPC 1.0, and this adapter speaks JSONRPC 1.0"),
        (lambda url: card_of(url, protocolVersion="2.0"), "offers JSONRPC 2.0"),
        (lambda url: {"name": "x", "protocolVersion": "0.3.0", "url": url}, "speaks A2A '0.3.0', and this adapter 1.0"),
        (lambda url: card_of(url) | {"supportedInterfaces": []}, "offers no interface"),
        (lambda _: card_of("http://10.0.0.1"), "to the host '10.0.0.1', not to '127.0.0.1'"),
        (lambda _: card_of("ftp://127.0.0.1"), "no http or https URL"),
        (lambda url: card_of(f"{url}/\nrpc"), "no http or https URL"),
        (lambda url: card_of(f"\x01{url}"), "no http or https URL"),
        ({"skills": []}, "is not an agent card"),
        (404, "there is no agent card at"),
        ("<html>", "is not an agent card"),
    ],
)
async def test_the_card_is_checked_before_anything_is_asked(a2a_of: AgentOf, card: Any, said: str) -> None:
    """An agent that cannot be called from here is refused with the reason, and never asked."""
    agent, server = await a2a_of({"result": {}}, card=card)
    found = await agent.problems()
    assert [(problem.field, said in problem.message) for problem in found] == [("agent.target", True)] * bool(said)
    if said:
        error_of(await ask(agent), AgentErrorKind.HTTP_STATUS if card == 404 else AgentErrorKind.MALFORMED)
    assert not server.calls or not said


async def test_the_target_may_be_that_of_the_card(a2a_of: AgentOf) -> None:
    """A card elsewhere than under the agent's URL is named by its own; tenants go along with each request."""
    agent, server = await a2a_of(
        {"result": {"message": message({"text": "x"})}},
        path="/cards/bot.json",
        card=lambda url: card_of(url, tenant="team-1"),
    )
    assert await agent.problems() == []
    await ask(agent)
    assert server.requests[0].path == "/cards/bot.json"
    assert server.calls[0]["params"]["tenant"] == "team-1"


async def test_an_agent_that_is_not_there_is_named_with_the_remedy() -> None:
    """Before anything is asked."""
    agent = A2aAgent(AgentSpec("a2a", "http://127.0.0.1:9"), AgentAccess(("127.0.0.1",), ()))
    (problem,) = await agent.problems()
    assert "http://127.0.0.1:9 cannot be reached: start the agent, or correct the URL" in problem.message
    await agent.aclose()


def test_a_card_may_not_lead_away_from_encryption() -> None:
    """Questions and headers for an https target are not sent in the clear."""
    from assay_orchestrator.agents.a2a import CardRefusedError, interface_of

    with pytest.raises(CardRefusedError, match="must be https"):
        interface_of(card_of("http://agents.example"), "https://agents.example")


@pytest.mark.parametrize(
    ("target", "options", "field", "said"),
    [
        ("agents.example", {}, "agent.target", "must be an http or https URL"),
        ("https://me:word@agents.example", {}, "agent.target", "holds a name or password"),
        ("https://a", {"body": 3}, "agent.body", "unknown option of the a2a adapter"),
        ("https://a", {"headers": {"x-api-key": "k"}}, "agent.headers.x-api-key", "holds a secret"),
    ],
)
def test_wrong_specs_are_refused(target: str, options: dict[str, Any], field: str, said: str) -> None:
    """With the spec, before anything is called."""
    found = {problem.field: problem.message for problem in check_agent(AgentSpec("a2a", target, options=options))}
    assert said in found[field]
