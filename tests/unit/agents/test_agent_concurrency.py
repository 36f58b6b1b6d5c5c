"""Threads, tasks and suspensions of a process that calls agents."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from assay.agent_host.caller import AgentCaller
from assay.agent_host.concurrency.executor import AgentExecutor
from assay.agent_host.concurrency.suspension import Suspensions
from assay.agent_host.concurrency.tasks import guarded_tasks
from assay.agent_host.concurrency.threads import TooManyHangError
from assay.model.answers.agent_response import AgentRequest, AgentResponse

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
    """A hundred calls that wait for each other end; a later call reuses an idle thread."""
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
    """A call returns the function's value or raises its exception, SystemExit included."""
    executor = AgentExecutor()
    assert executor.submit(int, "12", base=8).result(60) == 10
    with pytest.raises(SystemExit, match="7"):
        executor.submit(sys.exit, 7).result(60)
    executor.shutdown()


async def test_the_end_waits_for_all_but_calls_of_agents(release: threading.Event) -> None:
    """Shutdown waits for Assay's own threads, but not for an agent's hanging call."""
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
    """While too many calls hang, agents get no thread; Assay does, and agents do again afterwards."""
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


QUESTION = AgentRequest("r", "run", "c", "q", timeout_s=5)


async def exits() -> None:
    await asyncio.sleep(0)
    sys.exit("enough")


async def asks(request: AgentRequest) -> str:
    await asyncio.gather(asyncio.create_task(exits()), asyncio.sleep(60))
    return "never"


async def test_an_exit_in_a_task_of_an_agent_is_the_error_of_its_call() -> None:
    """An exit in an agent's task is an error of its call; tasks outside agents are unchanged."""
    caller = AgentCaller(asks)
    answers: list[AgentResponse] = await asyncio.gather(*(caller.call(QUESTION) for _ in range(3)))
    for answer in answers:
        assert answer.error is not None
        assert (answer.error.type, answer.error.message) == ("SystemExit", "SystemExit: enough")
        assert not answer.error.retryable
        assert "in exits" in answer.error.traceback
    task = asyncio.create_task(asyncio.sleep(0, "result"))
    assert inspect.iscoroutine(task.get_coro())
    assert await task == "result"


async def test_guarded_tasks_are_tasks_as_ever() -> None:
    """Guarded tasks return, raise and can be cancelled like others, and guard the tasks that they start."""

    async def failing() -> None:
        raise LookupError("gone")

    async def nested() -> Any:
        return await asyncio.gather(asyncio.create_task(exits()), return_exceptions=True)

    with guarded_tasks():
        good, bad, early, late, outer = (
            asyncio.create_task(each)
            for each in (asyncio.sleep(0, 1), failing(), asyncio.sleep(60), asyncio.sleep(60), nested())
        )
    early.cancel()
    assert await good == 1
    late.cancel()
    results = await asyncio.gather(bad, early, late, return_exceptions=True)
    assert [type(each) for each in results] == [LookupError, asyncio.CancelledError, asyncio.CancelledError]
    assert [type(each).__name__ for each in await outer] == ["TaskExitError"]
    coroutine: Any = good.get_coro()
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


async def test_a_hanging_thread_does_not_keep_the_process_alive() -> None:
    """A process exits although its agent hangs in a synchronous call."""
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


def test_only_a_loop_that_did_not_run_for_longer_than_a_second_was_suspended() -> None:
    """A gap of over a second between checks counts as one suspension."""
    now = [100.0]
    suspensions = Suspensions(lambda: now[0])
    counts = []
    for step in (0.0, 0.25, 1.0, 1.01, 0.25, 3600.0, 0.0):
        now[0] += step
        counts.append(suspensions.check())
    assert counts == [0, 0, 0, 1, 1, 2, 2]
