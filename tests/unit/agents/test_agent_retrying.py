"""Which failures are asked again, how long is waited, and what is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.model.answers.agent_response import AgentErrorKind, AgentRequest, AgentResponse, Attempt, error_response
from assay.model.case import Case, Turn
from assay_orchestrator.agents.protocol import NotAskedError
from assay_orchestrator.agents.retrying import RetryingAgent
from assay_orchestrator.store.shards.shards import FencedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

CASE = Case("c", (Turn("q"),))
REQUEST = AgentRequest(request_id="run/0/0#0", run_id="run", case_id="c", input="q", idempotency_key="run/0/0")


def failure(message: str = "no", *, retryable: bool = True, latency_ms: float | None = 5.0) -> AgentResponse:
    """Return a failed attempt."""
    error = error_response(AgentErrorKind.HTTP_STATUS, message, retryable=retryable)
    return AgentResponse(status=error.status, error=error.error, latency_ms=latency_ms)


class Script:
    """An agent that answers what is written, one attempt after the other."""

    def __init__(self, answers: Sequence[AgentResponse]) -> None:
        self.answers = list(answers)
        self.seen: list[AgentRequest] = []
        self.closed = False

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        self.seen.append(request)
        return self.answers[len(self.seen) - 1]

    async def aclose(self) -> None:
        self.closed = True


class Waiting(Script):
    """An agent whose questions wait before they go out."""

    async def answer_after_waiting(
        self, request: AgentRequest, case: Case, before: Callable[[], Awaitable[None]]
    ) -> AgentResponse:
        await before()
        return await self.answer(request, case)


async def ask(script: Script, retries: int, *, jitter: float = 1.0) -> tuple[AgentResponse, list[float]]:
    """Ask with a given jitter; return the answer and the waits in seconds."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    agent = RetryingAgent(script, retries, sleep=sleep, jitter=lambda: jitter)
    return await agent.answer(REQUEST, CASE), waits


@pytest.mark.parametrize("error", [FencedError("another worker has it"), NotAskedError()])
async def test_a_question_that_has_waited_is_checked_again(error: Exception) -> None:
    """A question that waited is dropped if another worker has its shard; that is no failure of the agent."""
    script, checks = Waiting([AgentResponse(text="yes")] * 2), list[int]()

    async def before() -> None:
        checks.append(len(script.seen))
        if len(checks) == 4:
            raise error

    agent = RetryingAgent(script, 3)
    assert (await agent.answer(REQUEST, CASE, before)).text == "yes"
    with pytest.raises(type(error)):
        await agent.answer(REQUEST, CASE, before)
    assert (checks, len(script.seen)) == ([0, 0, 1, 1], 1)


async def test_a_good_answer_is_asked_for_once() -> None:
    """A good answer is returned unchanged, without a wait."""
    script = Script([AgentResponse(text="yes", latency_ms=3.0)])
    assert await ask(script, 2) == (AgentResponse(text="yes", latency_ms=3.0), [])


async def test_thoughts_are_taken_out_of_the_text() -> None:
    """Thoughts are removed from any agent's text; an answer of thoughts alone is an error that is not retried."""
    response, _ = await ask(Script([AgentResponse(text="<think>Lima?</think>Quito")]), 2)
    assert (response.text, response.thoughts) == ("Quito", "Lima?")
    response, waits = await ask(Script([AgentResponse(text="<think>Lima?")]), 2)
    assert response.error is not None
    assert (response.error.type, waits) == ("empty", [])


async def test_a_failure_that_may_pass_is_asked_again_and_recorded() -> None:
    """The answer has its own latency and lists the earlier failures in order."""
    script = Script([failure("one"), failure("two", latency_ms=None), AgentResponse(text="yes", latency_ms=3.0)])
    response, _ = await ask(script, 2)
    assert (response.text, response.latency_ms) == ("yes", 3.0)
    first, second = script.answers[0].error, script.answers[1].error
    assert first is not None
    assert second is not None
    assert response.attempts == (Attempt(5.0, first), Attempt(0.0, second))


async def test_attempts_have_ids_of_their_own_and_one_idempotency_key() -> None:
    """Attempts share an idempotency key, so that an agent can do the work once; each attempt has its own id."""
    script = Script([failure(), failure(), AgentResponse(text="yes")])
    await ask(script, 5)
    assert [request.request_id for request in script.seen] == ["run/0/0#0", "run/0/0#1", "run/0/0#2"]
    assert {request.idempotency_key for request in script.seen} == {"run/0/0"}


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_the_last_failure_stands_once_the_retries_are_used_up(retries: int) -> None:
    """After `retries` further attempts the answer is the last failure and lists all earlier ones."""
    script = Script([failure(str(number)) for number in range(10)])
    response, waits = await ask(script, retries)
    assert response.error is not None
    assert response.error.message == str(retries)
    assert len(response.attempts) == len(waits) == retries


async def test_a_failure_that_cannot_pass_is_final() -> None:
    """A failure that is not retryable ends the attempts, whether it comes first or later."""
    assert (await ask(Script([failure(retryable=False)]), 5))[1] == []
    script = Script([failure(), failure("final", retryable=False)])
    response, _ = await ask(script, 5)
    assert response.error is not None
    assert (response.error.message, len(response.attempts)) == ("final", 1)


async def test_waits_double_up_to_a_cap_and_carry_full_jitter() -> None:
    """Waits are jitter times 0.25, 0.5, 1, 2, 4, 8, then 10 s."""
    answers = [failure() for _ in range(8)]
    assert (await ask(Script(answers), 7))[1] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0]
    assert (await ask(Script(answers), 7, jitter=0.25))[1] == [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 2.5]
    assert (await ask(Script(answers), 7, jitter=0.0))[1] == [0.0] * 7


async def test_whoever_asks_is_heard_before_each_attempt() -> None:
    """Before each attempt, retries included, the caller can refuse; its error ends the question."""
    script = Script([failure(), failure(), AgentResponse(text="yes")])
    heard: list[int] = []

    async def before() -> None:
        heard.append(len(script.seen))
        if len(heard) == 3:
            raise RuntimeError("it is somebody else's by now")

    async def sleep(seconds: float) -> None:
        pass

    with pytest.raises(RuntimeError, match="somebody else's"):
        await RetryingAgent(script, 5, sleep=sleep).answer(REQUEST, CASE, before)
    assert (heard, len(script.seen)) == ([0, 1, 2], 2)


async def test_closing_closes_the_agent() -> None:
    """Closing closes the wrapped agent's connections."""
    script = Script([])
    await RetryingAgent(script, 1).aclose()
    assert script.closed


async def test_a_defect_of_an_adapter_fails_its_own_case(caplog: pytest.LogCaptureFixture) -> None:
    """An exception in an adapter becomes an error that shows its type; its text is only logged."""

    class Broken(Script):
        async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
            raise LookupError("key sk-123")

    response, waits = await ask(Broken([]), 3)
    assert response.error is not None
    assert response.error.kind is AgentErrorKind.RAISED
    assert "LookupError" in response.error.message
    assert "sk-123" not in response.error.message
    assert "sk-123" in caplog.text
    assert waits == []


@pytest.mark.parametrize(
    ("asked_s", "waits"), [(None, [0.25]), (3.0, [3.25]), (0.0, [0.25]), (900.0, [60.25]), (-1.0, [0.25])]
)
async def test_a_server_that_names_a_time_is_left_alone_for_it(asked_s: float | None, waits: list[float]) -> None:
    """A server's Retry-After takes precedence over backoff, up to a minute."""
    error = error_response(AgentErrorKind.HTTP_STATUS, "busy", retryable=True, retry_after_s=asked_s)
    assert (await ask(Script([error, AgentResponse(text="yes")]), 1))[1] == waits
