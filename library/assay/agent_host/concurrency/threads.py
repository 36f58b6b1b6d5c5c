"""Threads for synchronous agents: they never keep the process alive, and a hanging thread is abandoned."""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# A hanging thread cannot be ended, so each further one stays until the process ends.
MAX_HUNG = 100


class TooManyHangError(Exception):
    """Too many calls hang past their time limit, so no further one is made; the message says so."""


class CallRaisedError(Exception):
    """A function raised an exception in its thread.

    Args:
        cause: The exception.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(type(cause)))
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call: a value or an exception."""

    value: Any = None
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class _Job:
    function: Callable[..., Any]
    argument: object
    done: asyncio.Future[Outcome]
    loop: asyncio.AbstractEventLoop
    has_returned: bool = False
    hangs: bool = False
    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    def execute(self) -> Outcome:
        try:
            return Outcome(value=self.context.run(self.function, self.argument))
        except BaseException as problem:  # noqa: BLE001 - the boundary of a case: even SystemExit is only this call's failure
            return Outcome(error=problem)


class CallThreads:
    """Runs functions in daemon threads, one per concurrent caller.

    If a caller stops waiting, its thread is abandoned and replaced. Use an object from a single event loop.

    Args:
        max_hung: How many calls may hang past their time limit before no further one is made.
    """

    def __init__(self, *, max_hung: int = MAX_HUNG) -> None:
        self._max_hung = max_hung
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = 0
        self._hung = 0
        self._closed = False

    async def run(self, function: Callable[..., Any], argument: object, limit: asyncio.Timeout) -> Outcome:
        """Call a function in a thread and return the outcome.

        Args:
            function: The function.
            argument: Its only argument.
            limit: The caller's time limit: a call that it interrupts counts as hanging until it returns.

        Raises:
            TooManyHangError: `max_hung` earlier calls have exceeded their time limit and still hang.
        """
        if self._hung >= self._max_hung:
            raise TooManyHangError(
                f"{self._hung} earlier calls of the agent still hang past their time limit: it was not called again"
            )
        loop = asyncio.get_running_loop()
        job = _Job(function, argument, loop.create_future(), loop)
        self._closed = False
        self._start(job)
        try:
            return await job.done
        except asyncio.CancelledError:
            if limit.expired() and not job.has_returned:
                job.hangs = True
                self._hung += 1
            raise

    async def value(self, function: Callable[..., Any], argument: object, limit: asyncio.Timeout) -> Any:
        """Return a function's result; the arguments are those of `run`.

        Raises:
            CallRaisedError: It raised; a coroutine cannot safely raise StopIteration or SystemExit itself.
            TooManyHangError: As for `run`.
        """
        outcome = await self.run(function, argument, limit)
        if outcome.error is not None:
            raise CallRaisedError(outcome.error)
        return outcome.value

    def close(self) -> None:
        """Let threads end as soon as they are idle."""
        self._closed = True
        for _ in range(self._idle):
            self._jobs.put(None)
        self._idle = 0

    def _start(self, job: _Job) -> None:
        if self._idle == 0:
            threading.Thread(target=self._work, name="agent call", daemon=True).start()
        else:
            self._idle -= 1
        self._jobs.put(job)

    def _work(self) -> None:
        owner = os.getpid()
        while (job := self._jobs.get()) is not None:
            outcome = job.execute()
            if os.getpid() != owner:
                os._exit(0)  # a process forked by the agent that returned: its parent answers
            try:
                job.loop.call_soon_threadsafe(self._finish, job, outcome)
            except RuntimeError:
                return  # the loop is closed: no caller waits
            del job, outcome  # an idle thread must not keep an answer alive

    def _finish(self, job: _Job, outcome: Outcome) -> None:
        job.has_returned = True
        if self._closed:
            self._jobs.put(None)
        else:
            self._idle += 1
        if job.hangs:
            self._hung -= 1
        if not job.done.done():
            job.done.set_result(outcome)
