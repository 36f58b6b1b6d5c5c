"""Agents that are classes: an object for each conversation, made, asked and closed as the class says."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes.waiting import until

from assay.agent_host.caller import AgentCaller
from assay.agent_host.concurrency.threads import CallThreads
from assay.agent_host.failures import Failures
from assay.agent_host.sessions import MAX_IDLE, AgentSessions
from assay.model.answers.agent_response import AgentErrorKind, AgentRequest, AgentResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def turn(index: int = 0, count: int = 3, *, session: str = "s", attempt: int = 0, **changes: Any) -> AgentRequest:
    """Return a question of a conversation."""
    fields = {"input": f"q{index}", "turn_index": index, "turn_count": count, "session_id": session, **changes}
    return AgentRequest(request_id=f"{session}/{index}#{attempt}", run_id="run", case_id="c", **fields)


class Recorder:
    """An agent that writes down what happens to its objects."""

    made: list[Recorder]
    log: list[str]

    def __init__(self) -> None:
        self.said: list[str] = []
        self.thread = threading.get_ident()
        type(self).made.append(self)

    def answer(self, question: str) -> str | dict[str, str]:
        """Return everything that this object was asked."""
        if question.startswith("fail"):
            raise {"fail": OSError, "fail for good": KeyError}[question]
        if question == "wait":
            return {"status": "interrupted", "text": "May I?"}
        self.said.append(question)
        return " ".join(self.said)

    def close(self) -> None:
        """Note it."""
        type(self).log.append(f"closed {' '.join(self.said)}")


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    Recorder.made, Recorder.log = [], []


async def test_the_turns_of_a_session_share_an_object() -> None:
    """Concurrent conversations have one object each, which is closed after the last turn."""
    caller = AgentCaller(Recorder)
    for index in range(3):
        answers = await asyncio.gather(*(caller.call(turn(index, session=name)) for name in "ab"))
        assert [answer.text for answer in answers] == [" ".join(f"q{i}" for i in range(index + 1))] * 2
    await until(lambda: len(Recorder.log), lambda count: count == 2)
    assert Recorder.log == ["closed q0 q1 q2"] * 2
    assert len(Recorder.made) == 2
    assert all(one.thread != threading.get_ident() for one in Recorder.made), "made beside the event loop"
    await caller.aclose()
    assert len(Recorder.log) == 2, "closed once"


async def test_cases_and_repeats_have_fresh_objects() -> None:
    """Each single question has an object of its own, also when the caller names neither session nor turns."""
    caller = AgentCaller(Recorder)
    for request in (turn(count=1, session="a"), turn(count=1, session="b"), turn(count=0, session="")):
        assert (await caller.call(request)).text == "q0"
    await caller.aclose()
    assert (len(Recorder.made), Recorder.log) == (3, ["closed q0"] * 3)


async def test_a_first_turn_that_failed_is_asked_again_of_a_fresh_object() -> None:
    """Retried later turns keep their object; an error that is not retryable ends the conversation."""
    caller = AgentCaller(Recorder)
    assert (await caller.call(turn(input="fail"))).error is not None
    assert (await caller.call(turn(attempt=1))).text == "q0"
    assert len(Recorder.made) == 2
    assert (await caller.call(turn(1, input="fail"))).error is not None
    assert (await caller.call(turn(1, attempt=1))).text == "q0 q1"
    assert (await caller.call(turn(2, input="fail for good"))).error is not None
    await until(lambda: len(Recorder.log), lambda count: count == 2)
    assert Recorder.log == ["closed ", "closed q0 q1"]
    await caller.aclose()


async def test_an_agent_that_waits_for_a_person_ends_the_conversation() -> None:
    """An interrupted conversation closes its object at once, because no further turn is asked."""
    caller = AgentCaller(Recorder)
    assert (await caller.call(turn())).text == "q0"
    assert (await caller.call(turn(1, input="wait"))).is_failed
    await until(lambda: len(Recorder.log), lambda count: count == 1)
    await caller.aclose()


async def test_a_later_turn_whose_object_is_gone_is_an_error_with_a_remedy() -> None:
    """After a restart, a fresh object must not answer a later turn."""
    caller = AgentCaller(Recorder)
    response = await caller.call(turn(2))
    await caller.aclose()
    assert response.error is not None
    assert (response.error.kind, response.error.retryable) == (AgentErrorKind.RAISED, False)
    assert "the Recorder object" in response.error.message
    assert "--retry-errors" in response.error.message
    assert Recorder.made == []


async def test_idle_objects_are_bounded() -> None:
    """The oldest objects are closed if callers never end their conversations."""
    caller = AgentCaller(Recorder)
    for number in range(MAX_IDLE + 2):
        await caller.call(turn(count=0, session=str(number), input=str(number)))
    await until(lambda: len(Recorder.log), lambda count: count == 2)
    assert sorted(Recorder.log) == ["closed 0", "closed 1"]
    await caller.aclose()
    assert len(Recorder.log) == MAX_IDLE + 2


class Called(Recorder):
    def run(self, question: str) -> str:
        raise AssertionError("__call__ comes first")

    def __call__(self, question: str) -> str | dict[str, str]:
        return self.answer(question)


class Run:
    async def run(self, request: AgentRequest) -> AsyncIterator[str]:
        yield request.input


class ByLoop:
    """An asynchronous agent, which needs the loop where it is made."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    async def answer(self, question: str) -> dict[str, str]:
        return {"answer": question}

    async def aclose(self) -> None:
        Recorder.log.append("aclosed")


class Context:
    """A context manager; what it enters is asked, and `close` is its own affair."""

    def __enter__(self) -> Recorder:
        return Recorder()

    def __exit__(self, *problem: object) -> None:
        Recorder.log.append(f"left {problem}")

    def answer(self, question: str) -> str:
        raise AssertionError("what was entered is asked")

    def close(self) -> None:
        raise AssertionError("the context manager closes")


class AsyncContext:
    async def __aenter__(self) -> None:
        Recorder.log.append("entered")

    async def __aexit__(self, *problem: object) -> None:
        Recorder.log.append("left")

    def answer(self, question: str) -> str:
        return question


@pytest.mark.parametrize(
    ("agent", "log"),
    [
        (Called, ["closed q0"]),
        (Run, []),
        (ByLoop, ["aclosed"]),
        (Context, ["left (None, None, None)"]),
        (AsyncContext, ["entered", "left"]),
    ],
)
async def test_objects_are_asked_and_closed_as_their_class_says(agent: type, log: list[str]) -> None:
    """`__call__`, `answer` or `run` is called; a context manager, `aclose` or `close` ends the object."""
    caller = AgentCaller(agent)
    response = await caller.call(turn(count=1))
    await caller.aclose()
    assert (response.text, response.error) == ("q0", None)
    assert Recorder.log == log


class Unmade(Recorder):
    def __init__(self) -> None:
        raise SystemExit("no model")


class Unclosed(Recorder):
    def close(self) -> None:
        raise SystemExit("cannot close")


async def test_making_and_closing_that_fail_harm_no_other_case(caplog: pytest.LogCaptureFixture) -> None:
    """A constructor that raises is an error of its question; a close that raises is logged, and the answer stays."""
    unmade, unclosed = AgentCaller(Unmade), AgentCaller(Unclosed)
    failed: AgentResponse = await unmade.call(turn(count=1))
    with caplog.at_level(logging.WARNING):
        answered = await unclosed.call(turn(count=1))
        await unclosed.aclose()
    await unmade.aclose()
    assert failed.error is not None
    assert failed.error.message == "SystemExit: no model"
    assert (answered.text, answered.error) == ("q0", None)
    assert "closing the agent failed: class=Unclosed: SystemExit: cannot close" in caplog.text


async def test_a_call_that_is_cancelled_closes_its_object() -> None:
    """Cancelling a question closes its object."""
    running = asyncio.Event()

    class Waiting(Recorder):
        async def __call__(self, question: str) -> str:
            running.set()
            await asyncio.Event().wait()
            return ""

    caller = AgentCaller(Waiting)
    call = asyncio.create_task(caller.call(turn()))
    await running.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await caller.aclose()
    assert Waiting.log == ["closed "]


async def test_an_object_whose_closing_ignores_its_cancellation_is_left_behind() -> None:
    """Closing the other objects does not wait for it."""
    release = asyncio.Event()

    class Deaf(Recorder):
        async def __call__(self, question: str) -> str:
            return question

        async def aclose(self) -> None:
            while not release.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await release.wait()
            self.log.append("closed")

    sessions = AgentSessions(Deaf, CallThreads(), Failures(), close_s=0.01)
    async with asyncio.timeout(60) as limit:
        await sessions.entry(turn(), limit)
    sessions.settle(turn(), None)
    await sessions.aclose()
    assert Deaf.log == []
    release.set()
    await sessions.aclose()
    assert Deaf.log == ["closed"]
