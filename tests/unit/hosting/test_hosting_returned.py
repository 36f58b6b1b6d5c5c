"""What Python agents return and yield: texts, mappings, data classes, models, and any object with expressions."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import sqlite3
import threading
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from assay.agent_host.caller import AgentCaller
from assay.model.answers.agent_response import AgentErrorKind, AgentRequest, AgentResponse, Source, ToolCall, Usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


def asked(**changes: Any) -> AgentRequest:
    """Return a question."""
    return AgentRequest(**{"request_id": "r", "run_id": "run", "case_id": "c", "input": "q", **changes})


async def outcome(agent: Callable[..., Any], **options: Any) -> AgentResponse:
    """Return what one call of the agent comes to."""
    caller = AgentCaller(agent, **options)
    try:
        return await caller.call(asked())
    finally:
        await caller.aclose()


def problem_of(response: AgentResponse) -> tuple[AgentErrorKind, str]:
    """Return the kind and the message of the answer's error."""
    assert response.error is not None
    return response.error.kind, response.error.message


class Label(enum.Enum):
    """A label of an answer."""

    GOOD = "good"


@dataclasses.dataclass
class Reply:
    """A typed answer."""

    text: str
    sources: list[Source]
    usage: Usage | None = None
    label: Label = Label.GOOD


class Model:
    """What pydantic's models offer of themselves."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """Return plain data."""
        assert mode == "json"
        return self.fields


class Named(NamedTuple):
    """A named tuple."""

    answer: str
    sources: list[Source]
    usage: Usage | None
    label: str


REPLY = Reply("a", [Source(title="t", uri="u")], Usage(input_tokens=3))


@pytest.mark.parametrize(
    "returned",
    [REPLY, Model(text="a", sources=[{"title": "t", "uri": "u"}], usage={"input_tokens": 3}, label="good"),
     {"text": "a", "sources": REPLY.sources, "usage": REPLY.usage, "label": Label.GOOD},
     Named("a", REPLY.sources, REPLY.usage, "good")],
    ids=["data class", "model", "objects in a mapping", "named tuple"],
)  # fmt: skip
async def test_typed_answers_are_read_as_mappings(returned: object) -> None:
    """Data classes, models and named tuples are read as mappings, wherever they are in the answer."""
    response = await outcome(lambda request: returned)
    assert response.error is None
    assert (response.text, response.sources, response.usage) == ("a", (Source(title="t", uri="u"),), REPLY.usage)
    assert response.metadata == {"label": "good"}


async def test_a_model_of_pydantic_is_an_answer() -> None:
    """The real package, where it is installed: dates and models inside it become JSON."""
    pydantic = pytest.importorskip("pydantic")
    inner = pydantic.create_model("Inner", when=(date, ...))
    model = pydantic.create_model("Answer", answer=(str, ...), output=(inner, ...))
    response = await outcome(lambda request: model(answer="a", output={"when": date(2026, 1, 2)}))
    assert (response.text, response.output) == ("a", {"when": "2026-01-02"})


class Knot:
    """An object of no known kind, which holds itself, with a property."""

    def __init__(self) -> None:
        self.me = self
        self.said = [REPLY, {"calls": [ToolCall("find", arguments_json='{"a": 1}')]}]
        self.when = date(2026, 1, 2)

    @property
    def words(self) -> str:
        """Its text."""
        return "from a property"

    @property
    def broken(self) -> str:
        """Nothing."""
        raise KeyError("broken property")


MAP = {"text": "me.words", "sources": "said[0].sources", "tool_calls": "said[1].calls", "usage": "said[0].usage",
       "status": "missing", "data_rows": "length(said)"}  # fmt: skip


async def test_expressions_find_the_answer_in_any_object() -> None:
    """Expressions read attributes, properties and items of any object, and return plain data."""
    response = await outcome(lambda request: Knot(), answer_map=MAP)
    assert response.error is None
    assert (response.text, response.sources) == ("from a property", (Source(title="t", uri="u"),))
    assert response.tool_calls == (ToolCall("find", arguments_json='{"a": 1}'),)
    assert (response.usage, response.data_rows) == (REPLY.usage, 2)


@pytest.mark.parametrize(
    ("expressions", "kind", "sentence"),
    [
        ({"text": "nowhere"}, AgentErrorKind.MALFORMED, "agent.map.text (nowhere) finds nothing in the Knot that was"),
        ({"text": "length(when)"}, AgentErrorKind.MALFORMED, "agent.map.text (length(when)) does not fit the object"),
        ({"text": "words", "output": "when"}, AgentErrorKind.MALFORMED, "output cannot be written as JSON"),
        ({"text": "words", "output": "me"}, AgentErrorKind.MALFORMED, "output cannot be written as JSON"),
        ({"text": "broken"}, AgentErrorKind.RAISED, "KeyError: 'broken property'"),
        ({"text": "words", "error": "said[0].text"}, AgentErrorKind.RAISED, "a"),
    ],
)
async def test_what_expressions_do_not_find_is_an_error(
    expressions: dict[str, str], kind: AgentErrorKind, sentence: str
) -> None:
    """The message names the expression; a matched `error` makes the answer a failure."""
    found, message = problem_of(await outcome(lambda request: Knot(), answer_map=expressions))
    assert (found, message.startswith(sentence) or sentence in message) == (kind, True)


async def test_a_text_needs_no_expressions() -> None:
    """An agent with a map that returns a text has answered."""
    assert (await outcome(lambda request: "plain", answer_map=MAP)).text == "plain"


async def test_an_object_that_is_no_answer_says_what_to_return() -> None:
    """The message names the valid shapes and the map."""
    kind, message = problem_of(await outcome(lambda request: Knot()))
    assert kind is AgentErrorKind.MALFORMED
    assert "return a text, a mapping" in message
    assert "agent.map" in message


async def test_a_property_that_hangs_is_a_timeout() -> None:
    """Reading the object has the call's time limit and leaves the event loop free."""
    release = threading.Event()

    class Slow:
        @property
        def text(self) -> str:
            release.wait(60)
            return ""

    caller = AgentCaller(lambda request: Slow(), answer_map={"text": "text"})
    kind, _ = problem_of(await caller.call(asked(timeout_s=0.05)))
    release.set()
    await caller.aclose()
    assert kind is AgentErrorKind.TIMEOUT


def in_pieces(request: AgentRequest) -> Iterator[str]:
    yield ""
    yield "a"
    yield "b"


def ending_in_an_answer(request: AgentRequest) -> Iterator[object]:
    yield from in_pieces(request)
    yield {"sources": ["t"]}


def returning_an_answer(request: AgentRequest) -> Any:
    yield from in_pieces(request)
    return Reply("", [Source(title="t")])


async def ending_async(request: AgentRequest) -> AsyncIterator[object]:
    for piece in in_pieces(request):
        yield piece
    yield Model(sources=["t"])


async def handing_over(request: AgentRequest) -> Iterator[object]:
    return ending_in_an_answer(request)


@pytest.mark.parametrize(
    "agent", [in_pieces, ending_in_an_answer, returning_an_answer, ending_async, handing_over, lambda r: in_pieces(r)]
)
async def test_generators_give_text_in_pieces_and_an_answer_at_the_end(agent: Callable[..., Any]) -> None:
    """Pieces are passed on in order, the first with a text is timed, and the last may be the answer."""
    seen: list[tuple[str, int]] = []
    caller = AgentCaller(agent)
    response = await caller.call(asked(), lambda piece: seen.append((piece, threading.get_ident())))
    await asyncio.sleep(0)
    await caller.aclose()
    assert (response.text, response.error) == ("ab", None)
    assert seen == [(piece, threading.get_ident()) for piece in ("", "a", "b")]
    assert response.latency_ms is not None
    assert response.time_to_first_token_ms is not None
    assert 0 < response.time_to_first_token_ms <= response.latency_ms
    assert [source.title for source in response.sources] == (
        [] if "pieces" in repr(agent) or "lambda" in repr(agent) else ["t"]
    )


async def test_the_text_of_the_last_answer_stands_in_place_of_the_pieces() -> None:
    """The text of the last answer replaces the drafts; expressions find it there too."""

    def agent(request: AgentRequest) -> Iterator[object]:
        yield "draft"
        yield {"answer": "final", "text": None}

    assert (await outcome(agent, answer_map={"text": "answer"})).text == "final"
    assert (await outcome(agent, answer_map={"text": "nothing", "output": "@"})).text == "draft"


@pytest.mark.parametrize(
    ("pieces", "sentence"),
    [
        (["a", 1], "it yielded a int"),
        (["a", None], "it yielded a NoneType"),
        ([{"text": "a"}, "b"], "it yielded more after its answer, a dict"),
    ],
)
async def test_what_is_yielded_in_the_wrong_place_is_malformed(pieces: list[object], sentence: str) -> None:
    """Texts come first and one answer last; both kinds of generators name the wrong piece."""

    async def as_stream(request: AgentRequest) -> AsyncIterator[object]:
        for piece in pieces:
            yield piece

    for agent in (lambda request: (piece for piece in pieces), as_stream):
        kind, message = problem_of(await outcome(agent))
        assert (kind, sentence in message) == (AgentErrorKind.MALFORMED, True)


async def test_a_generator_stays_in_its_thread() -> None:
    """A generator is read in the thread of the function that returned it."""

    def agent(request: AgentRequest) -> Iterator[str]:
        connection = sqlite3.connect(":memory:")  # belongs to the thread that opened it
        return (str(connection.execute("SELECT 1").fetchone()[0]) for _ in range(1))

    assert (await outcome(agent)).text == "1"


async def test_an_endless_generator_is_left_and_closed() -> None:
    """After the time limit no further piece is read, and the generator is closed in its thread."""
    closed = threading.Event()

    def agent(request: AgentRequest) -> Iterator[str]:
        try:
            while True:
                yield ""
        finally:
            closed.set()

    caller = AgentCaller(agent)
    kind, _ = problem_of(await caller.call(asked(timeout_s=0.5)))  # it must have begun by then
    assert await asyncio.to_thread(closed.wait, 30)
    await caller.aclose()
    assert kind is AgentErrorKind.TIMEOUT


async def test_the_first_call_is_cold() -> None:
    """The first call of a caller is marked cold, whatever its outcome; others only if the agent says so."""

    def agent(request: AgentRequest) -> object:
        if request.input == "bad":
            raise ValueError
        return {"text": "a", "cold": request.input == "cold"}

    caller = AgentCaller(agent)
    marks = [(await caller.call(asked(input=text))).cold for text in ("bad", "q", "cold", "q")]
    await caller.aclose()
    assert marks == [True, False, True, False]
