"""The adk adapter with a URL, against a server that answers as `adk api_server` 2.13 does."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from assay.model.agent_response import AgentErrorKind, AgentRequest, AgentResponse, AgentStatus, Message
from assay.model.case import Case, Turn
from assay.model.run import AgentSettings
from assay.spec.agents import check_agent
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
        said = self.sessions[data["sessionId"]]
        said.append(data["newMessage"]["parts"][0]["text"])
        return 200, self.events if self.events is not None else [event({"text": " | ".join(said)})]


@pytest.fixture
async def adk_of(listen: Listen, reply_of: ReplyOf) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Make an agent of a server that answers with some events; returns both."""
    async with AsyncExitStack() as stack:

        async def make(events: Any = None, **options: Any) -> tuple[AdkServerAgent, Server]:
            server = Server(reply_of, events)
            url = (await listen(server)).url.removesuffix("/ask")
            settings = AgentSettings("adk", url, options={"app_name": "echo", **options})
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
        ([event({"text": "x"}, usageMetadata={"promptTokenCount": "many"})], "usageMetadata is no whole number"),
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
        AgentSettings("adk", "http://127.0.0.1:9", options={"app_name": "echo"}), AgentAccess(("127.0.0.1",), ())
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
    found = {
        problem.field: problem.message for problem in check_agent(AgentSettings("adk", "http://x", options=options))
    }
    assert said in found[field]


async def test_the_server_s_events_mean_what_events_in_process_mean(adk_of: Callable[..., Awaitable[Any]]) -> None:
    """Failed calls are marked, tools that hand over output are none, and thoughts within the candidates count once."""
    call: dict[str, Any] = {"id": "search", "name": "search", "args": {}}
    output: dict[str, Any] = {"id": "out", "name": "set_model_response", "args": {}}
    events = [
        event({"functionCall": call}, {"functionCall": output}),
        event({"functionResponse": {"id": "search", "name": "search", "response": {"error": "no network"}}}),
        event({"text": "x"}, usageMetadata={"promptTokenCount": 10, "candidatesTokenCount": 8, "thoughtsTokenCount": 3,
                                            "totalTokenCount": 18}),
    ]  # fmt: skip
    agent, _ = await adk_of(events)
    response = await ask(agent)
    assert [(one.name, one.is_error) for one in response.tool_calls or ()] == [("search", True)]
    assert response.usage is not None
    assert (response.usage.output_tokens, response.usage.reasoning_tokens) == (8, 3)
    passing, _ = await adk_of([event(errorCode="ABORTED", errorMessage="again")])
    assert (error := (await ask(passing)).error) is not None
    assert error.retryable
