"""Final values of frameworks become answers, and conversations continue from what belongs to them."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.agent_host.caller import AgentCaller
from assay.agent_host.frameworks.answers import answer_with, check_provided, json_of, plain, traced
from assay.agent_host.frameworks.conversations import Conversations, earlier_messages, question_of
from assay.agent_host.progress import report_progress
from assay.errors import InvalidInputError
from assay.model.answers.agent_request import AgentRequest, Message
from assay.model.answers.agent_response import (
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    MalformedAnswerError,
    Source,
    ToolCall,
    Usage,
    response_from_json,
    response_to_json,
)

TRACE = AgentResponse(tool_calls=(ToolCall("look"),), sources=(Source(title="seen"),), usage=Usage(requests=1))
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
JSON = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)
FIELDS = st.sampled_from(["text", "answer", "status", "error", "sql", "data_rows", "sources", "retrieved", "events"])


def request(history: tuple[Message, ...] = (), session: str = "s", text: str = "q") -> AgentRequest:
    return AgentRequest("r", "run", "case", text, session_id=session, history=history)


@given(JSON | st.dictionaries(FIELDS, JSON, max_size=5))
def test_any_typed_output_is_an_answer(value: Any) -> None:
    """Any output type is stored in the row, together with the framework's trace."""
    answer = answer_with(value, TRACE)
    assert answer.tool_calls == TRACE.tool_calls
    if isinstance(value, str):
        assert (answer.text, answer.output) == (value, None)
    else:
        assert answer.output == value
    assert response_from_json(response_to_json(answer)) == answer


@dataclasses.dataclass
class _City:
    answer: str
    sources: list[str]
    sql: str
    data_rows: int


@dataclasses.dataclass
class _Weather:
    degrees: Decimal
    seen: set[int]
    at: Path
    nothing: float = float("nan")


def test_fields_of_typed_output_are_those_of_an_answer() -> None:
    """Fields of the right type are the answer's fields: 0 rows counts, a number as `sources` does not."""
    answer = answer_with(_City(answer="Lima", sources=["Atlas"], sql="SELECT 1", data_rows=0), TRACE)
    assert (answer.text, answer.sql, answer.data_rows) == ("Lima", "SELECT 1", 0)
    assert answer.sources == (Source(title="Atlas"),)
    odd = answer_with({"answer": "a", "sources": 3, "sql": ["x"], "data_rows": -1, "status": "fine"}, TRACE)
    assert (odd.text, odd.sources, odd.sql, odd.data_rows) == ("a", TRACE.sources, None, None)
    assert answer_with({"answer": 42}, TRACE).text == "42"
    assert answer_with({"text": ["a"]}, TRACE).text == '{"text": ["a"]}'
    refused = answer_with({"answer": "no", "status": "out_of_scope"}, TRACE)
    assert (refused.status, refused.text) == (AgentStatus.OUT_OF_SCOPE, "no")
    failed = answer_with({"answer": "", "status": "error", "error": "no table"}, TRACE)
    assert failed.error is not None
    assert (failed.error.message, failed.tool_calls) == ("no table", TRACE.tool_calls)
    with pytest.raises(MalformedAnswerError, match="ended without a final output"):
        answer_with(None, TRACE)


def test_values_that_json_lacks() -> None:
    """Values that JSON cannot hold are written as text, so that an odd tool result loses no row."""
    weather = _Weather(Decimal("1.5"), {1}, Path("/tmp"))
    assert plain(weather) == {"degrees": "1.5", "seen": [1], "at": "/tmp", "nothing": "NaN"}
    assert "object object" in json_of(object())
    assert json_of(b"\xff") == '"_w=="'
    assert json_of({"odd": "\ud800"}) == '{"odd": "\ud800"}'
    assert (json_of('{"a": 1}'), json_of("[1"), json_of("7"), json_of(None)) == ('{"a": 1}', '"[1"', '"7"', "null")
    assert json_of({"all": _circular()}).startswith("\"{'all': [[[[")
    assert json_of(_broken()).startswith('"<generator ob')


@given(TEXTS)
def test_the_json_of_a_text_is_json(text: str) -> None:
    """Any text of a tool becomes JSON: the value it contains, or the text itself."""
    data = json.loads(json_of(text))
    assert data == text or (json_of(text) == text and isinstance(data, list | dict))


async def test_a_failed_call_keeps_its_trace() -> None:
    """A failed call has the agent's error and the trace up to it."""

    async def raising() -> str:
        raise LookupError("no such city")

    async def agent(request: AgentRequest) -> str:
        return await traced(raising(), lambda: TRACE)

    answer = await AgentCaller(agent).call(request())
    assert answer.error is not None
    assert (answer.error.type, answer.error.message) == ("LookupError", "LookupError: no such city")
    assert (answer.tool_calls, answer.usage) == (TRACE.tool_calls, TRACE.usage)


@pytest.mark.parametrize("way", ["awaits", "swallows", "thread"])
async def test_a_time_out_keeps_the_trace(way: str) -> None:
    """A call that times out keeps its trace, whether the agent is cancelled, ignores it or hangs in a thread."""
    done: list[ToolCall] = []
    released = threading.Event()

    async def run() -> str:
        done.append(ToolCall("look"))
        try:
            if way == "thread":
                await asyncio.to_thread(released.wait)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            done.append(ToolCall("clean"))
            if way != "swallows":
                raise
        return "late"

    async def agent(request: AgentRequest) -> str:
        return await traced(run(), lambda: AgentResponse(tool_calls=tuple(done), usage=Usage(total_tokens=7)))

    answer = await AgentCaller(agent).call(dataclasses.replace(request(), timeout_s=0.2))
    released.set()
    assert answer.error is not None
    assert (answer.error.kind, answer.error.retryable) == (AgentErrorKind.TIMEOUT, True)
    assert answer.tool_calls == (ToolCall("look"), ToolCall("clean"))
    assert answer.usage == Usage(total_tokens=7)


async def test_a_cancelled_call_stays_cancelled() -> None:
    """A cancelled call returns no answer in place of the cancellation."""

    async def agent(request: AgentRequest) -> str:
        await traced(asyncio.Event().wait(), lambda: TRACE)
        return "late"

    call = asyncio.ensure_future(AgentCaller(agent).call(request()))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


def _broken() -> Iterator[int]:
    yield 1
    raise RuntimeError("the stream ended early")


def _circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", [None, _circular(), _broken(), {"answer": "x" * 3_000_000}])
async def test_a_final_value_that_cannot_be_written_keeps_its_trace(value: Any) -> None:
    """An unwritable final value is a malformed answer with its trace, which is not retried."""

    async def agent(request: AgentRequest) -> AgentResponse:
        return answer_with(value, TRACE)

    answer = await AgentCaller(agent).call(request())
    assert answer.error is not None
    assert answer.error.kind in (AgentErrorKind.MALFORMED, AgentErrorKind.TOO_LARGE)
    assert not answer.error.retryable
    assert (answer.tool_calls, answer.usage) == (TRACE.tool_calls, TRACE.usage)


async def test_a_trace_that_cannot_be_read_does_not_hide_the_failure() -> None:
    """A trace that is too large leaves its usage; a trace that raises is named in the error."""
    large = dataclasses.replace(TRACE, tool_calls=(ToolCall("look", result_json=f'"{"x" * 3_000_000}"'),))

    def unreadable() -> AgentResponse:
        raise LookupError("gone")

    async def agent(request: AgentRequest) -> str:
        report_progress((lambda: large) if request.input == "large" else unreadable)
        raise ValueError("first")

    caller = AgentCaller(agent)
    answer = await caller.call(request(text="large"))
    assert answer.error is not None
    assert (answer.error.message, answer.tool_calls, answer.usage) == ("ValueError: first", None, TRACE.usage)
    answer = await caller.call(request())
    assert answer.error is not None
    assert answer.error.message == "ValueError: first (what the agent did before cannot be read: LookupError)"


@pytest.mark.parametrize(
    ("option", "problem", "with_lifespan"),
    [
        (3, "", ""),
        (lambda request: request, "", ""),
        (lambda request, opened: opened, "which takes other arguments than the request", ""),
        (lambda: 3, "which takes other arguments than the request", "or also what the lifespan yields"),
        (_City, "names the class _City", "names the class _City"),
    ],
)
def test_an_option_is_an_object_or_a_function_of_the_request(option: object, problem: str, with_lifespan: str) -> None:
    """An option of another kind is refused at its field before a question is asked."""
    for options, said in (({"deps": option}, problem), ({"deps": option, "lifespan": True}, with_lifespan)):
        if said:
            with pytest.raises(InvalidInputError, match=rf"agent\.deps: .*{said}"):
                check_provided(options, "deps")
        else:
            check_provided(options, "deps")


ROLES = st.sampled_from(["user", "assistant", "system"])
HISTORIES = st.lists(st.builds(Message, ROLES, TEXTS), max_size=4).map(tuple)


@given(HISTORIES, HISTORIES, TEXTS, TEXTS)
def test_a_turn_continues_from_its_own_conversation(
    history: tuple[Message, ...], other: tuple[Message, ...], text: str, answer: str
) -> None:
    """State stored after a turn is found only by the turn with the same history."""
    conversations: Conversations[str] = Conversations()
    conversations.keep(request(history, text=text), answer, "memory")
    conversation = (*history, Message("user", text), Message("assistant", answer))
    assert conversations.find(request(conversation)) == "memory"
    assert conversations.find(request(conversation, session="other")) is None
    assert conversations.find(request(other)) == ("memory" if other == conversation else None)


def test_what_is_kept_is_bounded() -> None:
    """Thousands of conversations do not fill the memory; of the oldest the texts are left."""
    conversations: Conversations[int] = Conversations()
    for number in range(5_000):
        conversations.keep(request(session=str(number)), "a", number)
    history = (Message("user", "q"), Message("assistant", "a"))
    kept = [number for number in range(5_000) if conversations.find(request(history, session=str(number))) == number]
    assert kept == list(range(3_000, 5_000))


def test_messages_of_a_history_have_a_text_and_a_known_role() -> None:
    """Empty messages are left out; a tool's message is refused, because no framework takes one without its call."""
    assert earlier_messages(request((Message("user", "a"), Message("assistant", " ")))) == [Message("user", "a")]
    with pytest.raises(TypeError, match="a message with the role 'tool'"):
        earlier_messages(request((Message("tool", "a"),)))


def test_a_case_without_a_text_asks_nothing() -> None:
    """A case with variables alone is refused before the model is called; an empty text is asked."""
    assert question_of(request(text="")) == ""
    with pytest.raises(TypeError, match="the case has variables and no text"):
        question_of(dataclasses.replace(request(text=""), variables={"city": "Lima"}))
