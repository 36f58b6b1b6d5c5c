"""Whatever the user's function does, calling it comes to an answer."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from assay.agent_host.caller import AgentCaller
from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, AgentStatus, Source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from assay.model.answers.agent_response import AgentRequest

    Question = Callable[..., AgentRequest]

SHORT_S = 0.05


async def outcome(agent: Callable[..., Any], request: AgentRequest, **options: Any) -> AgentResponse:
    """Call an agent once."""
    caller = AgentCaller(agent, **options)
    try:
        return await caller.call(request)
    finally:
        await caller.aclose()


def typed(request: AgentRequest) -> AgentResponse:
    return AgentResponse(text=f"answer to {request.input}", retrieved=(Source(title="a"),))


async def test_a_typed_answer_is_taken(question: Question) -> None:
    """An agent may return the object itself."""
    response = await outcome(typed, question(7))
    assert (response.status, response.text) == (AgentStatus.SUCCESS, "answer to q7")
    assert response.retrieved == (Source(title="a"),)


async def test_a_synchronous_function_runs_beside_the_loop(question: Question) -> None:
    """Two synchronous calls run at once, each in a thread: they meet at a barrier."""
    barrier = threading.Barrier(2, timeout=30)

    def agent(request: AgentRequest) -> str:
        barrier.wait()
        return request.input

    caller = AgentCaller(agent)
    answers = await asyncio.gather(*(caller.call(question(i)) for i in range(2)))
    await caller.aclose()
    assert [answer.text for answer in answers] == ["q0", "q1"]


async def test_the_first_piece_with_a_text_is_timed(question: Question) -> None:
    """Each piece is passed on as it comes; an agent that yields no text, or returns one, has no such time."""

    async def in_pieces(request: AgentRequest) -> AsyncIterator[str]:
        yield ""
        yield "a"
        yield "b"

    async def silent(request: AgentRequest) -> AsyncIterator[str]:
        yield ""

    seen: list[str] = []
    response = await AgentCaller(in_pieces).call(question(), seen.append)
    assert (response.text, seen) == ("ab", ["", "a", "b"])
    assert response.latency_ms is not None
    assert response.time_to_first_token_ms is not None
    assert 0 < response.time_to_first_token_ms <= response.latency_ms
    for agent in (silent, typed):
        assert (await outcome(agent, question())).time_to_first_token_ms is None


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a synchronous agent that raises."""

    def agent(request: AgentRequest) -> str:
        raise error

    return agent


async def test_a_long_message_is_cut(question: Question) -> None:
    """An error message is at most 4,000 characters."""
    response = await outcome(raising(ValueError("x" * 10_000)), question())
    assert response.error is not None
    assert len(response.error.message) == 4000


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
async def test_an_asynchronous_agent_that_hangs_times_out(agent: Callable[..., Any], question: Question) -> None:
    """No answer within the time limit is a timeout, however the agent takes its cancellation."""
    response = await outcome(agent, question(timeout_s=SHORT_S))
    assert response.error is not None
    assert (response.error.kind, response.error.retryable) == (AgentErrorKind.TIMEOUT, True)
    assert "0.05 s" in response.error.message


async def test_calls_that_are_cancelled_do_not_count_as_hanging(question: Question) -> None:
    """A lost connection cancels many slow calls at once: the agent is still called afterwards."""
    release, running = threading.Event(), threading.Semaphore(0)

    def agent(request: AgentRequest) -> str:
        if request.input != "q0":
            running.release()
            release.wait(60)
        return "answer"

    caller = AgentCaller(agent)
    calls = [asyncio.create_task(caller.call(question(i))) for i in range(1, 121)]
    await asyncio.to_thread(lambda: [running.acquire(timeout=60) for _ in calls])
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    response = await caller.call(question(0))
    release.set()
    await caller.aclose()
    assert response.text == "answer"


class Hostile(dict[str, Any]):
    """A mapping that raises when it is read."""

    def get(self, key: str, default: Any = None) -> Any:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("returned", "named"),
    [
        ({"text": ["a"]}, "text must be a string"),
        ({"text": "a", "status": "fine"}, "status must be"),
        ({"text": "a", "usage": {"input_tokens": -1}}, "usage.input_tokens"),
        ({"text": "a", "sources": [{"score": float("nan")}]}, "sources[0].score"),
        ({"text": "a", "output": {"when": object()}}, "output"),
        ({"text": "a", "output": {1, 2}}, "output"),
        ({"text": "a", "metadata": {("a", "b"): 1}}, "metadata"),
        ({"text": "a", "tool_calls": [{"arguments": {}}]}, "tool_calls[0].name"),
        (AgentResponse(text="a", output=object()), "output"),
        (AgentResponse(status="fine"), "AttributeError"),  # type: ignore[arg-type]  # wrong on purpose
        (Hostile(), "ZeroDivisionError"),
        ((piece for piece in (1, 2)), "it yielded a int"),
        (object(), "agent.map"),
    ],
)
async def test_what_is_no_answer_is_malformed(returned: object, named: str, question: Question) -> None:
    """A value that is not an answer is refused with the field's name, and not asked for again."""
    response = await outcome(lambda request: returned, question())
    assert response.error is not None
    assert (response.error.kind, response.error.retryable) == (AgentErrorKind.MALFORMED, False)
    assert named in response.error.message


DOUBLED: list[Any] = ["x" * 1000]
for _ in range(60):
    DOUBLED = [DOUBLED, DOUBLED]


async def test_a_value_that_unfolds_without_end_is_refused(question: Question) -> None:
    """A small value whose JSON would be endless is too large before it is written."""
    response = await outcome(lambda request: {"output": DOUBLED}, question())
    assert response.error is not None
    assert (response.error.kind, response.error.retryable) == (AgentErrorKind.TOO_LARGE, False)


async def test_the_limit_can_be_set(question: Question) -> None:
    """An answer of exactly the limit passes, one byte more does not."""
    fits = await outcome(lambda request: "ا" * 50, question(), max_answer_bytes=100)
    over = await outcome(lambda request: "ا" * 50 + "x", question(), max_answer_bytes=100)
    assert (fits.error, over.text) == (None, "")


async def test_a_hanging_thread_does_not_keep_the_process_alive() -> None:
    """A process whose agent hangs in a synchronous call ends."""
    program = (
        "import asyncio, threading\n"
        "from assay.model.answers.agent_response import AgentRequest\n"
        "from assay.agent_host.caller import AgentCaller\n"
        "caller = AgentCaller(lambda request: threading.Event().wait())\n"
        "response = asyncio.run(caller.call(AgentRequest('q#0', 'r', 'c', 'q', timeout_s=0.05)))\n"
        "print(response.error.kind)\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert (process.returncode, out.strip(), err) == (0, b"timeout", b"")
