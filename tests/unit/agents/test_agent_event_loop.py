"""The event loop of a command: the user's code neither ends it nor keeps it from its end."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from assay.agent_host.caller import AgentCaller
from assay.agent_host.concurrency.event_loop import UserExitError, run_event_loop, until_user_exit
from assay.agent_host.concurrency.tasks import guarded_tasks
from assay.client.api.loop_thread import run_to_end
from assay.errors import SpecError
from assay.model.answers.agent_response import AgentRequest

if TYPE_CHECKING:
    from collections.abc import Callable

QUESTION = AgentRequest("r", "run", "c", "q", timeout_s=30)


def interrupt() -> None:
    raise KeyboardInterrupt


def stop() -> None:
    asyncio.get_running_loop().stop()


@pytest.mark.parametrize(
    ("ends", "how"),
    [
        (lambda: sys.exit(), "sys.exit(None)"),
        (lambda: sys.exit(7), "sys.exit(7)"),
        (interrupt, "KeyboardInterrupt"),
        (stop, "loop.stop()"),
    ],
)
def test_an_exit_in_a_callback_is_an_error_and_the_loop_runs_on(ends: Callable[[], None], how: str) -> None:
    """An exit in a callback raises an error that explains it where it is awaited; other work in the loop continues."""

    async def answer(question: str) -> str:
        asyncio.get_running_loop().call_soon(ends)
        await asyncio.sleep(0)
        return question.upper()

    async def main() -> str:
        asked = asyncio.create_task(AgentCaller(answer).call(QUESTION))
        with pytest.raises(UserExitError) as raised:
            await until_user_exit("run-1")
        assert raised.value.message == (
            f"the code of the agent, or of a metric, asked this process to exit ({how}): run run-1 has not ended, and "
            "what is done is stored"
        )
        return (await asked).text

    assert run_event_loop(main()) == "Q"


def test_an_exit_that_no_run_waits_for_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """An exit that no run waits for is logged, and the result stands."""

    async def main() -> str:
        asyncio.get_running_loop().call_soon(sys.exit, 0)
        await asyncio.sleep(0)
        return "verdict"

    assert run_event_loop(main()) == "verdict"
    assert [record.getMessage() for record in caplog.records] == [
        "ignoring an exit that the agent or a metric asked for: sys.exit(0)"
    ]


def test_an_exit_of_the_coroutine_itself_passes() -> None:
    """Assay's own code may end the process."""

    async def main() -> None:
        sys.exit(5)

    with pytest.raises(SystemExit, match="5"):
        run_event_loop(main())


async def cancels_all() -> None:
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()


def test_an_agent_cancels_no_task_of_others() -> None:
    """An agent can cancel its own tasks and itself, but neither the run nor tasks of the run."""

    async def answer(question: str) -> str:
        child = asyncio.create_task(asyncio.Event().wait())
        await (asyncio.create_task(cancels_all()) if question == "itself" else cancels_all())
        assert child.cancelling()
        return "done"

    async def main() -> str:
        other = asyncio.create_task(asyncio.sleep(0, "result"))
        caller = AgentCaller(answer)
        first = await caller.call(QUESTION)
        second = await caller.call(AgentRequest("r", "run", "c", "itself", timeout_s=30))
        assert first.text == "done"
        assert second.error is not None
        assert second.error.message == "the agent cancelled itself"
        return await other

    assert run_event_loop(main()) == "result"


async def ignores_cancellation() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except BaseException:  # noqa: BLE001 - as agents do that retry whatever happens
            continue


@pytest.mark.parametrize("is_in_a_loop", [False, True])
def test_tasks_that_ignore_their_cancellation_are_left_behind(
    is_in_a_loop: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Tasks clean up before the result is returned; tasks that ignore their cancellation cause a warning."""
    cleaned: list[str] = []

    async def cleans_up() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    async def main() -> str:
        with guarded_tasks():
            tasks = [asyncio.create_task(work()) for work in (ignores_cancellation, ignores_cancellation, cleans_up)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        return "verdict"

    async def evaluate() -> str:
        return run_to_end(main())

    assert (asyncio.run(evaluate()) if is_in_a_loop else run_to_end(main())) == "verdict"
    assert cleaned == ["up"]
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "leaving behind tasks of the agent or of metrics that ignore their cancellation: count=2"
    ]


def test_ctrl_c_cancels_and_a_second_one_does_not_wait() -> None:
    """After the first Ctrl-C the coroutine cleans up, whatever was interrupted; then KeyboardInterrupt is raised."""
    seen: list[str] = []

    async def answer(question: str) -> str:
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()
        return question

    async def main(again: bool) -> None:
        try:
            await AgentCaller(answer).call(QUESTION)
        except asyncio.CancelledError:
            seen.append("cancelled")
            if again:
                signal.raise_signal(signal.SIGINT)
            raise

    for again in (False, True):
        with pytest.raises(KeyboardInterrupt):
            run_event_loop(main(again))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert seen == ["cancelled", "cancelled"]


@pytest.mark.parametrize("is_in_a_loop", [False, True])
def test_an_error_has_one_traceback(is_in_a_loop: bool) -> None:
    """The traceback of an error shows the error alone, not the search for a running loop."""

    async def fail() -> None:
        raise SpecError("no such metric")

    async def call() -> None:
        run_to_end(fail())

    with pytest.raises(SpecError) as caught:
        asyncio.run(call()) if is_in_a_loop else run_to_end(fail())
    assert caught.value.__context__ is None
