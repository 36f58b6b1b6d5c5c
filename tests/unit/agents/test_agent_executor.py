"""The default executor of event loops that call agents."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from assay.agent_host.concurrency.executor import AgentExecutor
from assay.agent_host.concurrency.tasks import guarded_tasks
from assay.agent_host.concurrency.threads import TooManyHangError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Let calls that wait for it end with the test."""
    event = threading.Event()
    yield event
    event.set()


async def submit_as_agent(executor: AgentExecutor, call: threading.Event) -> Future[bool]:
    """Return a call of an agent that waits for an event."""
    with guarded_tasks():
        return executor.submit(call.wait)


def test_calls_run_all_at_once_and_idle_threads_run_the_next() -> None:
    """A hundred calls that wait for each other end; a call after another needs no further thread."""
    executor = AgentExecutor()
    meeting = threading.Barrier(100)
    calls = [executor.submit(meeting.wait, 60) for _ in range(100)]
    assert sorted(call.result(60) for call in calls) == list(range(100))
    count = threading.active_count()
    for _ in range(10):
        executor.submit(int).result(60)
    assert threading.active_count() == count
    executor.shutdown()


def test_a_call_returns_or_raises_what_the_function_does() -> None:
    """A value comes back, and so does an exception, even SystemExit."""
    executor = AgentExecutor()
    assert executor.submit(int, "12", base=8).result(60) == 10
    with pytest.raises(SystemExit, match="7"):
        executor.submit(sys.exit, 7).result(60)
    executor.shutdown()


async def test_the_end_waits_for_all_but_calls_of_agents(release: threading.Event) -> None:
    """What Assay itself writes in a thread is written when the event loop ends; a hanging call of an agent is not."""
    executor, ends = AgentExecutor(), threading.Event()
    hung = await submit_as_agent(executor, release)
    own = executor.submit(ends.wait)
    has_waited: list[bool] = []

    def close() -> None:
        executor.shutdown()
        has_waited.append(ends.is_set())

    closing = threading.Thread(target=close)
    closing.start()
    threading.Timer(0.05, ends.set).start()
    closing.join(60)
    assert (has_waited, own.done(), hung.done()) == ([True], True, False)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(int)


async def test_too_many_calls_that_hang_refuse_those_of_agents_alone(release: threading.Event) -> None:
    """No agent gets a thread while too many abandoned calls hang; Assay itself does, and agents again afterwards."""
    executor = AgentExecutor(max_hung=2)
    hung = [await submit_as_agent(executor, release) for _ in range(3)]
    for call in hung[:2]:
        assert not call.cancel()
    with pytest.raises(TooManyHangError, match=r"^2 earlier calls"):
        await submit_as_agent(executor, release)
    assert executor.submit(int).result(60) == 0
    release.set()
    assert [call.result(60) for call in hung] == [True] * 3
    assert await asyncio.wrap_future(await submit_as_agent(executor, release))
    executor.shutdown()
