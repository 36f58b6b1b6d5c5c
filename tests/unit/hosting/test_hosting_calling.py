"""Calling the user's agent: whatever it does, the outcome is an answer."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import threading
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.docs.guides import blocks
from tests.support.processes.waiting import until

from assay.agent_host.caller import AgentCaller
from assay.model.answers.agent_response import AgentErrorKind, AgentRequest, AgentResponse, AgentStatus, Source
from assay.model.answers.response_limits import MAX_ANSWER_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator


def asked(text: str = "q", *, timeout_s: float = 30.0) -> AgentRequest:
    """Return a question."""
    return AgentRequest(request_id="r", run_id="run", case_id="c", input=text, timeout_s=timeout_s)


async def outcome(agent: Callable[..., Any], *, timeout_s: float = 30.0, **options: Any) -> AgentResponse:
    """Return the answer to one call of the agent."""
    caller = AgentCaller(agent, **options)
    try:
        return await caller.call(asked(timeout_s=timeout_s))
    finally:
        await caller.aclose()


def kind_of(response: AgentResponse) -> AgentErrorKind:
    """Return the kind of the answer's error."""
    assert response.status is AgentStatus.ERROR
    assert response.error is not None
    return response.error.kind


def sync(request: AgentRequest) -> str:
    return request.input + "!"


async def asynchronous(request: AgentRequest) -> dict[str, str]:
    return {"text": request.input + "!"}


async def stream(request: AgentRequest) -> AsyncIterator[str]:
    yield request.input
    yield "!"


class Sync:
    def __call__(self, request: AgentRequest) -> str:
        return request.input + "!"

    def method(self, request: AgentRequest) -> str:
        return request.input + "!"


class Async:
    async def __call__(self, request: AgentRequest) -> str:
        return request.input + "!"


class Stream:
    async def __call__(self, request: AgentRequest) -> AsyncIterator[str]:
        yield request.input + "!"


@pytest.mark.parametrize(
    "agent",
    [sync, asynchronous, stream, Sync(), Sync().method, Async(), Stream(), functools.partial(asynchronous),
     functools.partial(stream), lambda request: asynchronous(request)],
    ids=["sync", "async", "stream", "object", "method", "async object", "stream object", "partial", "partial stream",
         "lambda"],
)  # fmt: skip
async def test_every_kind_of_callable_answers(agent: Callable[..., Any]) -> None:
    """Functions, objects, partials and generators of texts return their answer with its latency."""
    response = await outcome(agent)
    assert (response.status, response.text) == (AgentStatus.SUCCESS, "q!")
    assert response.latency_ms is not None


def typed(request: AgentRequest) -> AgentResponse:
    return AgentResponse(text=f"{request.input}!", retrieved=(Source(title="a"),))


async def test_a_typed_answer_is_taken() -> None:
    """An agent may return the object itself."""
    response = await outcome(typed)
    assert (response.status, response.text, response.retrieved) == (AgentStatus.SUCCESS, "q!", (Source(title="a"),))


async def test_a_synchronous_function_runs_beside_the_loop() -> None:
    """Two synchronous calls run at the same time in threads of their own: they meet at a barrier."""
    barrier = threading.Barrier(2, timeout=30)

    def agent(request: AgentRequest) -> str:
        barrier.wait()
        return request.input

    caller = AgentCaller(agent)
    answers = await asyncio.gather(*(caller.call(asked(f"q{i}")) for i in range(2)))
    await caller.aclose()
    assert [answer.text for answer in answers] == ["q0", "q1"]


async def test_the_first_piece_with_a_text_is_timed() -> None:
    """Each piece is passed on at once; an agent that yields no text or returns an answer has no time to first token."""

    async def in_pieces(request: AgentRequest) -> AsyncIterator[str]:
        yield ""
        yield "a"
        yield "b"

    async def silent(request: AgentRequest) -> AsyncIterator[str]:
        yield ""

    seen: list[str] = []
    response = await AgentCaller(in_pieces).call(asked(), seen.append)
    assert (response.text, seen) == ("ab", ["", "a", "b"])
    assert response.latency_ms is not None
    assert response.time_to_first_token_ms is not None
    assert 0 < response.time_to_first_token_ms <= response.latency_ms
    for agent in (silent, typed):
        assert (await outcome(agent)).time_to_first_token_ms is None


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class OutsideError(BaseException):
    """An error that is not an Exception."""


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (ValueError("bad \ud800 text"), "ValueError: bad \ufffd text"),
        (KeyError(), "KeyError"),
        (TimeoutError("the agent's own"), "TimeoutError: the agent's own"),
        (UnprintableError(), "cannot be shown"),
        (SystemExit(3), "SystemExit"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (OutsideError("out"), "OutsideError: out"),
        (asyncio.CancelledError(), "Cancelled"),
        (StopIteration(1), "StopIteration"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
async def test_what_the_agent_raises_is_its_answer(problem: BaseException, message: str) -> None:
    """Any exception, SystemExit included, becomes an error that names it."""

    def raises(request: AgentRequest) -> str:
        raise problem

    async def raises_later(request: AgentRequest) -> str:
        await asyncio.sleep(0)
        raise problem

    for agent in (raises, raises_later):
        response = await outcome(agent)
        assert kind_of(response) is AgentErrorKind.RAISED
        assert response.error is not None
        assert message in response.error.message.replace("the agent cancelled itself", "Cancelled")


async def test_a_long_message_is_cut() -> None:
    """An error message is at most 4,000 characters."""

    def raises(request: AgentRequest) -> str:
        raise ValueError("x" * 10_000)

    response = await outcome(raises)
    assert response.error is not None
    assert len(response.error.message) == 4000


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Return an event that lets hanging threads go; set after the test."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_call_that_hangs_ends_at_its_limit_and_blocks_nobody(release: threading.Event) -> None:
    """A hanging function is a retryable timeout, while other calls are answered."""

    def hangs(request: AgentRequest) -> str:
        if request.input == "hang":
            release.wait()
        return "ok"

    async def hangs_async(request: AgentRequest) -> str:
        if request.input == "hang":
            await asyncio.Event().wait()
        return "ok"

    for agent in (hangs, hangs_async):
        caller = AgentCaller(agent)
        hung, *others = await asyncio.gather(
            caller.call(asked("hang", timeout_s=0.05)), *(caller.call(asked()) for _ in range(5))
        )
        assert kind_of(hung) is AgentErrorKind.TIMEOUT
        assert hung.error is not None
        assert hung.error.retryable
        assert [other.text for other in others] == ["ok"] * 5
        await caller.aclose()


async def never(request: AgentRequest) -> str:
    await asyncio.Event().wait()
    return ""


async def stubborn(request: AgentRequest) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "too late"
    return ""


async def clumsy(request: AgentRequest) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise ValueError("cancelled?") from None
    return ""


async def silent(request: AgentRequest) -> AsyncIterator[str]:
    yield "first"
    await asyncio.Event().wait()


@pytest.mark.parametrize("agent", [never, stubborn, clumsy, silent])
async def test_an_asynchronous_agent_that_hangs_times_out(agent: Callable[..., Any]) -> None:
    """A call without an answer within the time limit is a timeout, however the agent handles its cancellation."""
    response = await outcome(agent, timeout_s=0.05)
    assert response.error is not None
    assert (response.error.kind, response.error.retryable) == (AgentErrorKind.TIMEOUT, True)
    assert "0.05 s" in response.error.message


async def test_calls_that_are_cancelled_do_not_count_as_hanging() -> None:
    """After a lost connection cancels many slow calls at once, the agent is still called."""
    release, running = threading.Event(), threading.Semaphore(0)

    def agent(request: AgentRequest) -> str:
        if request.input != "q0":
            running.release()
            release.wait(60)
        return "answer"

    caller = AgentCaller(agent)
    calls = [asyncio.create_task(caller.call(asked(f"q{i}"))) for i in range(1, 121)]
    await asyncio.to_thread(lambda: [running.acquire(timeout=60) for _ in calls])
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    response = await caller.call(asked("q0"))
    release.set()
    await caller.aclose()
    assert response.text == "answer"


async def test_cancelling_the_call_cancels_the_agent() -> None:
    """Cancelling a question cancels the agent's code, and the cancellation is raised."""
    started, stopped = asyncio.Event(), asyncio.Event()

    async def waits(request: AgentRequest) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    call = asyncio.ensure_future(AgentCaller(waits).call(asked()))
    await started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await stopped.wait()


async def test_an_answer_that_came_as_the_call_was_cancelled_is_no_hang() -> None:
    """Calls cancelled from outside never count as hanging, so they cannot block later calls."""
    caller = AgentCaller(lambda request: "ok", max_hung=1)
    for _ in range(20):
        call = asyncio.ensure_future(caller.call(asked()))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert (await caller.call(asked())).text == "ok"
    await caller.aclose()


async def test_a_stream_is_closed_at_the_limit() -> None:
    """A generator that never ends is stopped at the largest answer and closed."""
    closed = asyncio.Event()

    async def endless(request: AgentRequest) -> AsyncIterator[str]:
        try:
            while True:
                yield "x" * 100_000
        finally:
            closed.set()

    assert kind_of(await outcome(endless)) is AgentErrorKind.TOO_LARGE
    assert closed.is_set()


def deep(levels: int) -> object:
    value: object = "x"
    for _ in range(levels):
        value = [value]
    return value


def circle() -> object:
    value: list[object] = []
    value.append(value)
    return {"text": "t", "output": value}


class Hostile(dict[str, Any]):
    """A mapping that raises when it is read."""

    def get(self, key: str, default: Any = None) -> Any:
        raise ZeroDivisionError


DOUBLED: list[Any] = ["x" * 1000]
for _ in range(60):
    DOUBLED = [DOUBLED, DOUBLED]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: None, "None"),
        (lambda: 42, "a number"),
        (lambda: object(), "agent.map"),
        (lambda: {"text": {1, 2}}, "text must be a string"),
        (lambda: {"text": "a", "status": "fine"}, "status must be"),
        (lambda: {"text": "a", "usage": {"input_tokens": -1}}, "usage.input_tokens"),
        (lambda: {"text": "a", "sources": [{"score": float("nan")}]}, "sources[0].score"),
        (lambda: {"text": "a", "metadata": {("a", "b"): 1}}, "metadata"),
        (lambda: {"text": "a", "tool_calls": [{"arguments": {}}]}, "tool_calls[0].name"),
        (lambda: {"text": "t", "output": object()}, "output"),
        (lambda: {"text": "t", "output": float("nan")}, "output"),
        (lambda: {"text": "t", "output": deep(100_000)}, "more than 100 levels"),
        (lambda: {"text": deep(100_000)}, "more than 100 levels"),
        (lambda: {"status": deep(100_000)}, "more than 100 levels"),
        (circle, "more than 100 levels"),
        (lambda: AgentResponse(text="a", output=object()), "output"),
        (lambda: AgentResponse(status="fine"), "AttributeError"),  # type: ignore[arg-type]  # wrong on purpose
        (lambda: Hostile(), "ZeroDivisionError"),
        (lambda: (piece for piece in (1, 2)), "it yielded a int"),
    ],
)
async def test_a_value_that_is_no_answer_is_malformed(make: Callable[[], object], problem: str) -> None:
    """A wrong, deep, circular or hostile value is refused for good, with its field in a short message."""
    response = await outcome(lambda request: make())
    assert kind_of(response) is AgentErrorKind.MALFORMED
    assert response.error is not None
    assert not response.error.retryable
    assert problem in response.error.message
    assert len(response.error.message) < 300


@pytest.mark.parametrize(
    "make",
    [
        lambda: "x" * 200_000_000,
        lambda: {"text": "x" * 200_000_000},
        lambda: {"text": "t", "output": ["y" * 1000] * 1_000_000},
        lambda: {"text": "t", "output": [[]] * 1_000_000},
        lambda: {"output": DOUBLED},  # its JSON would have no end
    ],
)
async def test_a_value_that_is_too_large_is_refused_before_it_is_written(make: Callable[[], object]) -> None:
    """A huge value becomes an error with a short message, which is not asked for again."""
    response = await outcome(lambda request: make())
    assert kind_of(response) is AgentErrorKind.TOO_LARGE
    assert response.error is not None
    assert not response.error.retryable
    assert len(response.error.message) < 300


async def test_the_largest_answer_still_passes() -> None:
    """An answer of exactly the limit, the default one or a given one, is taken; one byte more is not."""
    response = await outcome(lambda request: "x" * MAX_ANSWER_BYTES)
    assert len(response.text) == MAX_ANSWER_BYTES
    fits = await outcome(lambda request: "ا" * 50, max_answer_bytes=100)
    over = await outcome(lambda request: "ا" * 50 + "x", max_answer_bytes=100)
    assert (fits.error, over.text) == (None, "")


async def test_too_many_hanging_threads_stop_further_calls(release: threading.Event) -> None:
    """While too many calls hang, the agent is not called; once they end, it is."""
    called = []

    def hangs(request: AgentRequest) -> str:
        called.append(request)
        release.wait()
        return "ok"

    caller = AgentCaller(hangs, max_hung=3)
    await asyncio.gather(*(caller.call(asked(timeout_s=0.02)) for _ in range(3)))
    refused = await caller.call(asked())
    assert refused.error is not None
    assert refused.error.kind is AgentErrorKind.TIMEOUT
    assert "3 earlier calls" in refused.error.message
    assert not refused.error.retryable
    release.set()
    await until(lambda: caller._threads._hung, lambda left: not left)
    assert len(called) == 3
    assert (await caller.call(asked())).text == "ok"
    await caller.aclose()


async def test_threads_are_used_again() -> None:
    """Successive calls share a thread; concurrent calls have one each."""
    used = set()

    def agent(request: AgentRequest) -> str:
        used.add(threading.get_ident())
        return "ok"

    caller = AgentCaller(agent)
    for _ in range(10):
        await caller.call(asked())
    await caller.aclose()
    assert len(used) == 1


@pytest.mark.parametrize(
    "source",
    [
        "def agent(question): return question + '!'",
        "def agent(query): return query + '!'",
        "def agent(prompt, temperature=0): return prompt + '!'",
        "def agent(input: 'Any'): return input + '!'",
        "def agent(text): return text + '!'",
        "def agent(words: str): return words + '!'",
        "def agent(words: 'str'): return words + '!'",
        "async def agent(question): return question + '!'",
        "class Agent:\n    def __call__(self, question): return question + '!'\nagent = Agent()",
        "class Agent:\n    def ask(self, question): return question + '!'\nagent = Agent().ask",
        "import functools\ndef ask(k, question): return question + k\nagent = functools.partial(ask, '!')",
        "agent = lambda question: question + '!'",
        "def agent(request): return request.input + '!'",
        "def agent(request): return f'{request}!'",
        "def agent(question: AgentRequest): return question.input + '!'",
        "def agent(question: 'AgentRequest'): return question.input + '!'",
        "def agent(*question): return question[0].input + '!'",
    ],
)
async def test_the_parameter_says_what_it_receives(source: str) -> None:
    """A parameter of type str, or an untyped one named like a question, receives the text; others the request."""
    scope: dict[str, Any] = {"AgentRequest": AgentRequest}
    exec(source, scope)
    response = await outcome(scope["agent"])
    assert (response.text, response.error) == ("q!", None)


@pytest.mark.parametrize(
    ("agent", "hint"),
    [
        (lambda question: question.input, "name it `request` to receive the request, which has `input`"),
        (lambda request: {"q": "a"}[request], "whose text is `request.input`"),
        (lambda request: request.upper(), "whose text is `request.input`"),
        (lambda request: "You asked " + request, "name the parameter `question` to receive the text"),
        (lambda request: json.dumps(request), "whose text is `request.input`"),
    ],
    ids=["text", "key", "method", "sum", "json"],
)
async def test_taking_the_argument_for_something_else_says_what_to_change(agent: Callable[..., Any], hint: str) -> None:
    """An error caused by the kind of argument names the remedy."""
    response = await outcome(agent)
    assert response.error is not None
    assert hint in response.error.message


async def test_a_case_without_a_text_is_no_empty_question() -> None:
    """An agent that takes texts is not called for a case with variables alone."""
    caller = AgentCaller(lambda question: f"asked {question!r}")
    response = await caller.call(dataclasses.replace(asked(""), variables={"word": "a"}))
    await caller.aclose()
    assert response.error is not None
    assert "name the agent's parameter `request`" in response.error.message


async def test_other_errors_have_no_hint() -> None:
    """A TypeError of the agent's own gets no hint about requests."""
    response = await outcome(lambda request: len(3))  # type: ignore[arg-type]  # wrong on purpose
    assert response.error is not None
    assert response.error.message == "TypeError: object of type 'int' has no len()"


async def test_the_text_of_a_request_is_its_input() -> None:
    """`str` itself is an agent."""
    assert str(asked("one")) == "one"
    assert (await outcome(str)).text == "q"


@pytest.mark.parametrize(
    ("problem", "retryable"),
    [
        (TypeError("t"), False),
        (KeyError("k"), False),
        (IndexError("i"), False),
        (AttributeError("a"), False),
        (NameError("n"), False),
        (ModuleNotFoundError("m"), False),
        (NotImplementedError(), False),
        (AssertionError(), False),
        (ZeroDivisionError(), False),
        (RecursionError(), False),
        (SystemExit(1), False),
        (ValueError("a reply that is not JSON"), True),
        (OSError("connection"), True),
        (RuntimeError("busy"), True),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_errors_of_the_code_are_not_retried(problem: BaseException, retryable: bool) -> None:
    """An error that the same question raises again is not retried; a transient one is."""

    def raises(request: AgentRequest) -> str:
        raise problem

    response = await outcome(raises)
    assert response.error is not None
    assert response.error.retryable is retryable


class Guest:
    """What stands for the team's own agent in the guide."""

    sources = ("t",)
    usage = MappingProxyType({"total_tokens": 3})

    def ask(self, text: str, filters: object = None) -> str:
        """Answer."""
        return f"{text}!"

    async def stream(self, text: str) -> AsyncIterator[str]:
        """Answer in pieces."""
        yield text
        yield "!"

    def new_chat(self) -> Guest:
        """Begin a conversation."""
        return self

    def end(self) -> None:
        """End it."""


GUIDE = [
    source
    for block in blocks("docs/spec.md", "python")
    if "opentelemetry" not in block.text  # an agent of its own, which tests/frameworks runs
    and "asynccontextmanager" not in block.text  # which test_lifespan.py runs
    for source in block.text.split("\n\n\n")
]


@pytest.mark.parametrize("source", GUIDE)
async def test_the_agents_of_the_guide_answer(source: str) -> None:
    """The functions of docs/spec.md, of a text and of the request, its generator and its class, as printed there."""
    names: dict[str, Any] = {"my_agent": Guest()}
    exec(source, names)
    response = await outcome(names["Agent"] if "Agent" in names else names["answer"])
    assert (response.status, response.text) == (AgentStatus.SUCCESS, "q!")
    assert len(GUIDE) == 4
