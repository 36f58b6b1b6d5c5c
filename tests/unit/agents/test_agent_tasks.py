"""`sys.exit` in a task that an asynchronous agent starts: the event loop keeps running for the other calls."""

from __future__ import annotations

import asyncio
import inspect
import sys
from typing import Any

from assay.agent_host.caller import AgentCaller
from assay.agent_host.concurrency.tasks import guarded_tasks
from assay.model.answers.agent_response import AgentRequest, AgentResponse

QUESTION = AgentRequest("r", "run", "c", "q", timeout_s=5)


async def exits() -> None:
    await asyncio.sleep(0)
    sys.exit("enough")


async def asks(request: AgentRequest) -> str:
    await asyncio.gather(asyncio.create_task(exits()), asyncio.sleep(60))
    return "never"


async def test_an_exit_in_a_task_of_an_agent_is_the_error_of_its_call() -> None:
    """As an exit in the agent's own coroutine is; tasks that others start are tasks as ever."""
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
    """They return, raise, are cancelled before and after they begin, and start others, which are guarded too."""

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
