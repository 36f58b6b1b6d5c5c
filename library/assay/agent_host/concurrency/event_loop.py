"""Event loops for the user's code, which can neither end the loop or the process nor keep the process alive."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import logging
import signal
import threading
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from assay.agent_host.concurrency.executor import AgentExecutor
from assay.agent_host.concurrency.tasks import OwnTask, not_as_agent, own_task
from assay.errors import AssayError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from types import FrameType

T = TypeVar("T")

_LEAVING_S = 1.0
_user_exit: contextvars.ContextVar[asyncio.Future[str] | None] = contextvars.ContextVar("assay_user_exit", default=None)

_log = logging.getLogger(__name__)


class UserExitError(AssayError):
    """The user's code asked the process to exit, or stopped its event loop."""

    reason = "USER_EXIT"


def run_event_loop(main: Coroutine[Any, Any, T]) -> T:
    """Return a coroutine's result, as `asyncio.run` does, in an event loop that may call agents and metrics.

    If a callback of theirs raises SystemExit or KeyboardInterrupt, or stops the loop, the loop continues and
    `until_user_exit` raises. Tasks of theirs that ignore cancellation are abandoned at the end.

    Raises:
        KeyboardInterrupt: Ctrl-C cancelled the coroutine.
    """
    return _Loop().run(main)


async def until_user_exit(run_id: str) -> NoReturn:
    """Wait until the user's code asks the process to exit, which only `run_event_loop` detects.

    Args:
        run_id: The run, which this does not end, for the message.

    Raises:
        UserExitError: The user's code asked to exit.
    """
    asked = _user_exit.get() or asyncio.get_running_loop().create_future()
    how = await asyncio.shield(asked)
    raise UserExitError(
        f"the code of the agent, or of a metric, asked this process to exit ({how}): run {run_id} has not ended, and "
        "what is done is stored"
    )


class _Loop:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(AgentExecutor())
        self._loop.set_task_factory(own_task)
        self._exit: asyncio.Future[str] = self._loop.create_future()
        self._interrupt_count = 0
        self._main: asyncio.Task[Any] | None = None

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        try:
            asyncio.set_event_loop(self._loop)
            self._main = self._task(main)
            self._take_interrupts()
            try:
                result: T = self._complete(self._main)
            except asyncio.CancelledError:
                if self._interrupt_count:
                    raise KeyboardInterrupt from None
                raise
            finally:
                # Given back first, so that one more Ctrl-C ends the waits below at once.
                self._give_interrupts_back()
                self._complete(self._task(self._leave(self._main)))
            if self._exit.done():
                _log.warning("ignoring an exit that the agent or a metric asked for: %s", self._exit.result())
            return result
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()

    def _task(self, work: Coroutine[Any, Any, Any]) -> OwnTask:
        context = contextvars.copy_context()
        context.run(not_as_agent)
        context.run(_user_exit.set, self._exit)
        return OwnTask(work, loop=self._loop, context=context)

    def _complete(self, task: asyncio.Task[Any]) -> Any:
        """Run the loop until a task is done, whatever exceptions the user's code raises in it."""
        is_over = False

        # If the loop ends by an exception, the callback comes in the loop's next run, which it must not stop.
        def stop(_: asyncio.Task[Any]) -> None:
            if not is_over:
                self._loop.stop()

        task.add_done_callback(stop)
        try:
            while not task.done():
                how = "loop.stop()"
                try:
                    self._loop.run_forever()
                except SystemExit as problem:
                    how = f"sys.exit({problem.code!r})"
                except KeyboardInterrupt:
                    if self._is_interrupt():
                        if task.done() and not task.cancelled():
                            task.exception()  # retrieved here: asyncio logs exceptions that are never retrieved
                        raise
                    how = "KeyboardInterrupt"
                if not task.done() and not self._exit.done():
                    self._exit.set_result(how)
        finally:
            is_over = True
        return task.result()

    def _take_interrupts(self) -> None:
        """Let Ctrl-C cancel the coroutine in the cases where `asyncio.run` would."""
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)

    def _give_interrupts_back(self) -> None:
        if self._takes_interrupts():
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _takes_interrupts(self) -> bool:
        is_main = threading.current_thread() is threading.main_thread()
        return is_main and signal.getsignal(signal.SIGINT) == self._interrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._interrupt_count += 1
        if self._interrupt_count > 1 or self._main is None or self._main.done():
            raise KeyboardInterrupt
        # In a separate context: the current one may be an agent's, which must not cancel this task.
        self._loop.call_soon_threadsafe(self._main.cancel, context=contextvars.Context())

    def _is_interrupt(self) -> bool:
        """Return whether a KeyboardInterrupt came from Ctrl-C and not from the user's code."""
        if threading.current_thread() is not threading.main_thread():
            return False
        return self._interrupt_count > 1 or not self._takes_interrupts()

    async def _leave(self, main: asyncio.Task[Any]) -> None:
        """End the running tasks: the coroutine itself without a time limit, all others within a second."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait({main})
        if tasks:
            await asyncio.wait(tasks, timeout=_LEAVING_S)
        for task in tasks - {main}:
            self._show_failure(task)
        await asyncio.wait({asyncio.create_task(self._loop.shutdown_asyncgens())}, timeout=_LEAVING_S)
        _leave_behind(asyncio.all_tasks() - {asyncio.current_task()})
        await self._loop.shutdown_default_executor()

    def _show_failure(self, task: asyncio.Task[Any]) -> None:
        if task.done() and not task.cancelled() and (problem := task.exception()) is not None:
            message = "a task raised when it was cancelled at the end"
            self._loop.call_exception_handler({"message": message, "exception": problem, "task": task})


def _leave_behind(tasks: Iterable[asyncio.Task[Any]]) -> None:
    count = 0
    for task in tasks:
        # Never destroyed: destruction throws GeneratorExit into the coroutine. If it catches that too and awaits
        # `asyncio.sleep` again, which raises without a running loop, destruction would never return.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))
        count += not isinstance(task, OwnTask) or task.runs_agent
    if count:
        _log.warning(
            "leaving behind tasks of the agent or of metrics that ignore their cancellation: count=%d",
            count,
        )
