"""Running a coroutine to completion, even from code inside a running event loop, as in a notebook."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from assay.agent_host.concurrency.event_loop import run_event_loop

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

T = TypeVar("T")


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result, in this thread or, if a loop is running here, in another thread.

    Ctrl-C cancels the coroutine, waits for its clean-up, and raises; a second Ctrl-C stops waiting.

    Raises:
        KeyboardInterrupt: The coroutine was interrupted.
    """
    # Not called within an except block, since its errors would show that exception's traceback too.
    return _run_in_thread(work) if _loop_runs() else run_event_loop(work)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_in_thread(work: Coroutine[Any, Any, T]) -> T:
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()
    outcome: Future[T] = Future()

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None, "run_event_loop has created one"
        begun.set_result((asyncio.get_running_loop(), task))
        return await work

    def run() -> None:
        try:
            outcome.set_result(run_event_loop(main()))
        except BaseException as problem:  # noqa: BLE001 - the boundary of a task: raised in the waiting thread
            outcome.set_exception(problem)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="assay-evaluate", daemon=True)
    with _interruptible():
        try:
            thread.start()
            return outcome.result()
        except BaseException:
            if not outcome.done():
                loop, task = begun.result()
                loop.call_soon_threadsafe(task.cancel, context=contextvars.Context())
            thread.join()
            raise


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise in this thread: the event loop's handler would only cancel the task that waits here."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or handler in (signal.SIG_IGN, None):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
