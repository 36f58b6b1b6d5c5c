"""The adk adapter with a URL, against a server that answers as `adk api_server` 2.13 does."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from assay.model.answers.agent_response import AgentErrorKind, AgentRequest, AgentResponse, AgentStatus, Message
from assay.model.answers.approvals import read_approvals
from assay.model.answers.interrupts import Interrupt, InterruptKind
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec
from assay.specs.agents import check_agent
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.adk_server import AdkServerAgent

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Awaitable, Callable

    Listen = Callable[..., Awaitable[Any]]
    ReplyOf = Callable[..., bytes]

USAGE = {"promptTokenCount": 40, "candidatesTokenCount": 9, "thoughtsTokenCount": 2, "totalTokenCount": 51}
CALL = {"functionCall": {"id": "c1", "args": {"city": "Oslo"}, "name": "weather"}}
ANSWER = {"functionResponse": {"id": "c1", "name": "weather", "response": {"sky": "clear"}}}


def event(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return an event as the server writes it."""
    content = {"content": {"role": "model", "parts": list(parts)}} if parts else {}
    return {**content, "author": "echo", "actions": {"stateDelta": {}}, "id": "e", **fields}


THOUGHT = {"text": "hm", "thought": True}
WEATHER = [
    event(CALL, usageMetadata=USAGE, modelVersion="m-1"),
    event(ANSWER),
    event({"text": "It is "}, partial=True, usageMetadata=USAGE),
    event(
        THOUGHT, {"text": "It is "}, {"text": "clear."}, usageMetadata=USAGE, modelVersion="m-1", finishReason="STOP"
    ),
    event(),
]


class Server:
    """Holds sessions, and answers /run with events."""

    def __init__(self, reply_of: ReplyOf, events: Any = None) -> None:
        self.reply_of = reply_of
        self.events = events
        self.sessions: dict[str, list[str]] = {}
        self.log: list[str] = []

    async def __call__(self, request: Any, writer: asyncio.StreamWriter) -> None:
        self.log.append(f"{request.method} {request.path}")
        status, body = self._answer(request)
        writer.write(self.reply_of(json.dumps(body).encode(), status=status))

    def _answer(self, request: Any) -> tuple[int, Any]:
        if request.path == "/list-apps":
            return 200, ["echo", "other"]
        if request.method == "DELETE":
            return 200, self.sessions.pop(request.path.rpartition("/")[2]) and None
        data = request.json
        if request.path == "/apps/echo/users/assay/sessions":
            name = data["sessionId"]
            if name in self.sessions:
                return 409, {"detail": "Session already exists"}
            self.sessions[name] = [
                part["text"] for event in data.get("events", ()) for part in event["content"]["parts"]
            ]
            return 200, {"id": name}
        assert (request.path, data["appName"], data["userId"]) == ("/run", "echo", "assay")
        said, parts = self.sessions[data["sessionId"]], data["newMessage"]["parts"]
        if callable(self.events):
            return 200, self.events(parts)
        said.append(parts[0]["text"])
        return 200, self.events if self.events is not None else [event({"text": " | ".join(said)})]


@pytest.fixture
async def adk_of(listen: Listen, reply_of: ReplyOf) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Make an agent of a server that answers with some events; returns both."""
    async with AsyncExitStack() as stack:

        async def make(events: Any = None, **options: Any) -> tuple[AdkServerAgent, Server]:
            server = Server(reply_of, events)
            url = (await listen(server)).url.removesuffix("/ask")
            settings = AgentSpec("adk", url, options={"app_name": "echo", **options})
            assert check_agent(settings) == []
            agent = AdkServerAgent(settings, AgentAccess(("127.0.0.1",), ()))
            stack.push_async_callback(agent.aclose)
            return agent, server

        yield make


async def ask(agent: AdkServerAgent, text: str = "q", turn: int = 0, turns: int = 1, **fields: Any) -> AgentResponse:
    """Ask one turn of row run/0/0."""
    key = "run/0/0" if turns == 1 else f"run/0/0/{turn}"
    request = AgentRequest(
        **{"request_id": f"{key}#0", "idempotency_key": key, "session_id": "run/0/0", **fields},
        run_id="run",
        case_id="c",
        input=text,
        turn_index=turn,
    )
    return await agent.answer(request, Case("c", (Turn(text),) * turns))


async def test_events_are_an_answer(adk_of: Callable[..., Awaitable[Any]]) -> None:
    """Text of the last final event without thoughts, calls with their results, tokens of the whole events alone."""
    agent, server = await adk_of(WEATHER)
    response = await ask(agent, "weather?")
    assert (response.text, response.model, response.finish_reason) == ("It is clear.", "m-1", "STOP")
    (call,) = response.tool_calls or ()
    assert (call.name, call.id, call.arguments_json) == ("weather", "c1", '{"city": "Oslo"}')
    assert call.result_json == '{"sky": "clear"}'
    usage = response.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.reasoning_tokens, usage.requests) == (
        80, 22, 102, 4, 2,
    )  # fmt: skip
    assert server.log == ["POST /apps/echo/users/assay/sessions", "POST /run"]


async def test_sources_are_what_the_answer_is_grounded_on(adk_of: Callable[..., Awaitable[Any]]) -> None:
    """Chunks of searches and of retrieval, and citations, in the order of the events."""
    chunks = [
        {"web": {"uri": "http://a", "title": "A"}},
        {"retrievedContext": {"uri": "b", "title": "B", "text": "b b"}},
    ]
    found = event(
        {"text": "x"},
        groundingMetadata={"groundingChunks": chunks},
        citationMetadata={"citations": [{"uri": "http://c", "title": "C"}]},
    )
    agent, _ = await adk_of([found])
    response = await ask(agent)
    assert [(one.title, one.uri, one.content) for one in response.sources] == [
        ("A", "http://a", ""),
        ("B", "b", "b b"),
        ("C", "http://c", ""),
    ]


@pytest.mark.parametrize(
    ("events", "said", "retryable"),
    [
        ([event(errorCode="503", errorMessage="overloaded")], "503: overloaded", True),
        ([event({"text": "before"}), event(errorCode="SAFETY")], "SAFETY: the event has no errorMessage", False),
        ([event({"text": "half"}, finishReason="SAFETY")], "SAFETY: the event has no errorMessage", False),
        ([event({"text": "half"}, errorCode="MAX_TOKENS", errorMessage="cut")], "MAX_TOKENS: cut", False),
    ],
)
async def test_an_error_event_is_an_error_of_the_row(
    adk_of: Callable[..., Awaitable[Any]], events: Any, said: str, retryable: bool
) -> None:
    """The server answers HTTP 200 where the model failed."""
    agent, _ = await adk_of(events)
    response = await ask(agent)
    assert response.status is AgentStatus.ERROR
    assert response.error is not None
    assert (response.error.message, response.error.retryable) == (said, retryable)


async def test_an_error_that_the_agent_recovers_from_is_none(adk_of: Callable[..., Awaitable[Any]]) -> None:
    """A later final event with a text is the answer."""
    agent, _ = await adk_of([event(errorCode="503", errorMessage="overloaded"), event({"text": "yes"})])
    assert (await ask(agent)).text == "yes"


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ({"detail": "x"}, "must be a list of events, not an object"),
        ([], "none of the 0 events"),
        ([event(THOUGHT)], "none of the 1 events of /run is a final response with a text"),
        ([event({"text": "x"}, usageMetadata={"promptTokenCount": "many"})], "usageMetadata is not an integer"),
        (["x"], "must be a list of events"),
    ],
)
async def test_what_is_no_answer_says_why(adk_of: Callable[..., Awaitable[Any]], events: Any, said: str) -> None:
    """A reply without a final text is an error of the row, never an empty answer."""
    agent, _ = await adk_of(events)
    response = await ask(agent)
    assert response.error is not None
    assert (response.error.kind, said in response.error.message) == (AgentErrorKind.MALFORMED, True), response.error


async def test_sessions_are_fresh_and_those_of_a_conversation_are_shared(
    adk_of: Callable[..., Awaitable[Any]],
) -> None:
    """Each attempt at a question has a session of its own; turns share one, also where an earlier run left it there."""
    agent, server = await adk_of()
    assert [(await ask(agent, "a", request_id=f"run/0/0#{n}")).text for n in range(2)] == ["a", "a"]
    for _ in range(2):
        assert [(await ask(agent, text, turn, 2)).text for turn, text in enumerate("ab")] == ["a", "a | b"]
    assert set(server.sessions) == {"run-0-0-0", "run-0-0-1", "run-0-0"}


async def test_a_retry_of_a_turn_does_not_find_its_question_asked(adk_of: Callable[..., Awaitable[Any]]) -> None:
    """The session is made anew of what was said before: the attempt that failed left the question in it."""
    agent, _ = await adk_of()
    assert (await ask(agent, "a", 0, 2)).text == "a"
    history = (Message("user", "a"), Message("assistant", "A"))
    assert (await ask(agent, "b", 1, 2, history=history)).text == "a | b"
    retried = await ask(agent, "b", 1, 2, history=history, request_id="run/0/0/1#1")
    assert retried.text == "a | A | b"


async def test_what_was_said_before_is_in_the_session(adk_of: Callable[..., Awaitable[Any]]) -> None:
    """Messages of the case become events of the new session; roles that a session lacks are refused."""
    agent, server = await adk_of()
    history = (Message("user", "one"), Message("assistant", "two"))
    assert (await ask(agent, "three", history=history)).text == "one | two | three"
    response = await ask(agent, "x", history=(Message("system", "be brief"),))
    assert response.error is not None
    assert (response.error.type, "'system'" in response.error.message) == ("history", True)
    assert len(server.log) == 2


async def test_the_app_is_checked_before_anything_is_asked(adk_of: Callable[..., Awaitable[Any]]) -> None:
    """A name that the server lacks is refused with those it has; so is a server that is not there."""
    agent, _ = await adk_of()
    assert await agent.problems() == []
    wrong, server = await adk_of(app_name="ecko")
    (problem,) = await wrong.problems()
    assert (problem.field, "has no app 'ecko'; it has 'echo', 'other'" in problem.message) == ("agent.app_name", True)
    assert server.log == ["GET /list-apps"]
    gone = AdkServerAgent(
        AgentSpec("adk", "http://127.0.0.1:9", options={"app_name": "echo"}), AgentAccess(("127.0.0.1",), ())
    )
    (problem,) = await gone.problems()
    assert (problem.field, "cannot be reached: start it with adk api_server" in problem.message) == (
        "agent.target",
        True,
    )
    await gone.aclose()


@pytest.mark.parametrize(
    ("options", "field", "said"),
    [
        ({}, "agent.app_name", "GET /list-apps"),
        ({"app_name": "a/../b"}, "agent.app_name", "must have letters"),
        ({"app_name": "a", "user_id": 3}, "agent.user_id", "must have letters"),
        ({"app_name": "a", "runner": "m:r"}, "agent.runner", "unknown option of the adk adapter with a URL"),
        ({"app_name": "a", "headers": {"authorization": "Bearer x"}}, "agent.headers.authorization", "holds a secret"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], field: str, said: str) -> None:
    """With the spec, before anything is called."""
    found = {problem.field: problem.message for problem in check_agent(AgentSpec("adk", "http://x", options=options))}
    assert said in found[field]


async def test_the_server_s_events_mean_what_events_in_process_mean(adk_of: Callable[..., Awaitable[Any]]) -> None:
    """Failed calls are marked, tools that hand over output are none, and thoughts within the candidates count once."""
    call: dict[str, Any] = {"id": "search", "name": "search", "args": {}}
    output: dict[str, Any] = {"id": "out", "name": "set_model_response", "args": {}}
    events = [
        event({"functionCall": call}, {"functionCall": output}),
        event({"functionResponse": {"id": "search", "name": "search", "response": {"error": "no network"}}}),
        event({"functionCall": {**call, "id": "mcp"}}),
        event({"functionResponse": {"id": "mcp", "name": "search", "response": {"content": [], "isError": True}}}),
        event({"text": "x"}, usageMetadata={"promptTokenCount": 10, "candidatesTokenCount": 8, "thoughtsTokenCount": 3,
                                            "totalTokenCount": 18}),
    ]  # fmt: skip
    agent, _ = await adk_of(events)
    response = await ask(agent)
    assert [(one.name, one.is_error) for one in response.tool_calls or ()] == [("search", True)] * 2
    assert response.usage is not None
    assert (response.usage.output_tokens, response.usage.reasoning_tokens) == (8, 3)
    passing, _ = await adk_of([event(errorCode="ABORTED", errorMessage="again")])
    assert (error := (await ask(passing)).error) is not None
    assert error.retryable


def asks(*calls: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of some calls, and the confirmation that ADK asks for each."""
    asked = [
        {"functionCall": {"id": f"ask-{call['id']}", "name": "adk_request_confirmation",
                          "args": {"originalFunctionCall": call, "toolConfirmation": {"hint": "sure?"}}}}
        for call in calls
    ]  # fmt: skip
    held = [
        {"functionResponse": {"id": call["id"], "name": call["name"], "response": {"error": "requires confirmation"}}}
        for call in calls
    ]
    return [
        event(*({"functionCall": call} for call in calls), usageMetadata=USAGE),
        event(*asked, longRunningToolIds=[part["functionCall"]["id"] for part in asked]),
        event(*held, actions={"skipSummarization": True,
                              "requestedToolConfirmations": {call["id"]: {} for call in calls}}),
    ]  # fmt: skip


PAY, PAY_6 = ({"id": f"p{amount}", "name": "pay", "args": {"amount": amount}} for amount in (5, 6))


def pays(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ask for the confirmation of two payments, and answer with what was paid."""
    answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
    if not answers:
        return asks(PAY, PAY_6)
    results = [
        {"functionResponse": {"id": answer["id"].removeprefix("ask-"), "name": "pay",
                              "response": {"result": "paid"} if answer["response"]["confirmed"] else
                              {"error": answer["response"]["hint"]}}}
        for answer in answers
    ]  # fmt: skip
    return [event(*results), event({"text": "done"}, usageMetadata=USAGE)]


def approvals(*items: dict[str, Any]) -> dict[str, Any]:
    """Return the field of a request with some approvals."""
    return {"approvals": read_approvals(items, times=1)[0]}


async def test_a_confirmation_interrupts_the_row(adk_of: Callable[..., Awaitable[Any]]) -> None:
    """With the calls that wait, which have no result yet; ADK's own call is none of the agent's."""
    agent, _ = await adk_of(pays)
    response = await ask(agent)
    assert (response.status, response.error, response.text) == (AgentStatus.INTERRUPTED, None, "")
    assert response.interrupts == tuple(
        Interrupt(f"p{amount}", InterruptKind.APPROVAL, "pay", f'{{"amount": {amount}}}', "sure?") for amount in (5, 6)
    )
    assert [(one.name, one.result_json, one.is_error) for one in response.tool_calls or ()] == [("pay", "", False)] * 2
    assert response.usage is not None
    assert response.usage.requests == 1


async def test_approvals_resume_the_session(adk_of: Callable[..., Awaitable[Any]]) -> None:
    """Both decisions are one message; calls and tokens of all replies are those of the answer."""
    agent, server = await adk_of(pays)
    response = await ask(agent, **approvals({"approve": True}, {"deny": "too much"}))
    assert (response.text, [one.decision for one in response.interrupts]) == ("done", ["approve", "deny"])
    assert [(one.id, one.result_json, one.is_error) for one in response.tool_calls or ()] == [
        ("p5", '{"result": "paid"}', False),
        ("p6", '{"error": "too much"}', True),
    ]
    assert response.usage is not None
    assert response.usage.requests == 2
    assert server.log == ["POST /apps/echo/users/assay/sessions", "POST /run", "POST /run"]


async def test_a_row_with_an_undecided_stop_is_not_resumed(adk_of: Callable[..., Awaitable[Any]]) -> None:
    """ADK resumes an invocation with all responses; the decided one comes first."""
    agent, server = await adk_of(pays)
    response = await ask(agent, **approvals({"approve": True}))
    assert response.status is AgentStatus.INTERRUPTED
    assert [one.decision for one in response.interrupts] == ["approve", ""]
    assert server.log.count("POST /run") == 1


async def test_edited_arguments_need_the_agent_in_process(adk_of: Callable[..., Awaitable[Any]]) -> None:
    """The server checks that a confirmed call is as the model made it: the row says so, with what was done."""
    agent, _ = await adk_of(pays)
    response = await ask(agent, **approvals({"edit": {"amount": 3}, "times": 2}))
    assert response.error is not None
    assert (response.error.type, response.error.traceback) == ("UnusableDecision", "")
    assert "a server of ADK runs pay with the arguments of the model" in response.error.message
    assert not response.error.retryable
    assert len(response.tool_calls or ()) == 2


async def test_a_long_running_call_is_answered(adk_of: Callable[..., Awaitable[Any]]) -> None:
    """The value is the call's result; without one the row waits."""

    def ships(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if "functionResponse" in parts[0]:
            return [event({"text": parts[0]["functionResponse"]["response"]["result"]})]
        return [event({"functionCall": {"id": "s", "name": "ship", "args": {}}}, longRunningToolIds=["s"])]

    agent, _ = await adk_of(ships)
    assert (await ask(agent)).interrupts == (Interrupt("s", InterruptKind.CALL, "ship", "{}"),)
    answered = await ask(agent, **approvals({"answer": "on its way"}))
    assert (answered.status, answered.text) == (AgentStatus.SUCCESS, "on its way")
    assert [one.result_json for one in answered.tool_calls or ()] == ['{"result": "on its way"}']


@pytest.mark.parametrize(
    ("events", "text", "output"),
    [
        (
            [event({"functionResponse": {"id": "q", "name": "quote", "response": {"result": "5 EUR"}}},
                   actions={"skipSummarization": True})],
            "5 EUR", None,
        ),
        ([event({"functionResponse": {"id": "q", "name": "quote", "response": {"answer": "5 EUR", "n": 1}}},
                actions={"skipSummarization": True})], "5 EUR", {"answer": "5 EUR", "n": 1}),
        ([event({"text": "draft"}),
          event({"functionResponse": {"id": "e", "name": "exit_loop", "response": {"result": None}}},
                actions={"skipSummarization": True})], "draft", None),
        ([event({"functionCall": {"id": "o", "name": "set_model_response", "args": {}}}),
          event({"text": '{"answer": "Lima"}'})], "Lima", {"answer": "Lima"}),
        ([event({"text": '{"answer": "Lima"}'})], '{"answer": "Lima"}', None),
        ([event({"text": "draft"}), event(output={"answer": "Lima"})], "Lima", {"answer": "Lima"}),
    ],
)  # fmt: skip
async def test_the_last_final_value_is_the_answer(
    adk_of: Callable[..., Awaitable[Any]], events: Any, text: str, output: Any
) -> None:
    """A result that the model does not summarize, an output of a workflow, and typed output after tools."""
    agent, _ = await adk_of(events)
    response = await ask(agent)
    assert (response.text, response.output) == (text, output)
