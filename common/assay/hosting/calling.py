"""Calling the user's agent once: whatever it does, the outcome is an answer."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from assay.answers import (
    AgentErrorKind,
    AgentRequest,
    AgentResponse,
    MalformedAnswerError,
    clean_text,
    error_response,
    response_from_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MAX_ANSWER_BYTES", "AgentCaller"]

MAX_ANSWER_BYTES = 2 * 1024 * 1024
_MAX_ABANDONED = 100
_MAX_NODES = 200_000


class AgentCaller:
    """Calls an agent function and turns whatever comes back, or does not, into an answer.

    A synchronous function runs in a daemon thread. One that hangs is left behind after the time limit and
    another thread takes its place; it cannot keep the process from ending.

    Args:
        agent: A function of one question; synchronous, asynchronous, or an asynchronous generator of texts.
        max_answer_bytes: Largest answer, in bytes of UTF-8.
    """

    def __init__(self, agent: Callable[..., Any], *, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._agent = agent
        self._max_answer_bytes = max_answer_bytes
        call = agent if inspect.isroutine(agent) else getattr(agent, "__call__", agent)  # noqa: B004
        self._is_async = inspect.iscoroutinefunction(call)
        self._is_stream = inspect.isasyncgenfunction(call)
        self._threads = _DaemonThreads()

    async def call(self, request: AgentRequest) -> AgentResponse:
        """Return the agent's answer, with the time it took; never raises but when cancelled."""
        start = time.perf_counter()
        try:
            async with asyncio.timeout(request.timeout_s) as limit:
                returned = await self._invoke(request)
            response = self._read(returned)
        except TimeoutError as problem:
            response = (
                error_response(AgentErrorKind.TIMEOUT, f"no answer within {request.timeout_s:g} s", retryable=True)
                if limit.expired()
                else _raised(problem)
            )
        except _HungThreadsError as problem:
            response = error_response(AgentErrorKind.TIMEOUT, str(problem))
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            response = error_response(AgentErrorKind.RAISED, "the agent cancelled itself", type="CancelledError")
        except BaseException as problem:  # noqa: BLE001 - the user's code may do anything
            response = _raised(problem)
        return dataclasses.replace(response, latency_ms=(time.perf_counter() - start) * 1000)

    def close(self) -> None:
        """Let idle threads end."""
        self._threads.close()

    async def _invoke(self, request: AgentRequest) -> object:
        if self._is_stream:
            return await self._joined(request)
        if self._is_async:
            return await self._agent(request)
        returned = await self._threads.run(self._agent, request)
        # A plain function may still return something to await, as a lambda or a partial does.
        return await returned if inspect.isawaitable(returned) else returned

    async def _joined(self, request: AgentRequest) -> object:
        pieces: list[str] = []
        size = 0
        async with contextlib.aclosing(self._agent(request)) as stream:
            async for piece in stream:
                if not isinstance(piece, str):
                    raise MalformedAnswerError(f"it yielded {type(piece).__name__} where texts are due")
                pieces.append(piece)
                size += len(piece)
                if size > self._max_answer_bytes:
                    break
        return "".join(pieces)

    def _read(self, returned: object) -> AgentResponse:
        try:
            size = _size(returned, self._max_answer_bytes)
            if size > self._max_answer_bytes:
                return error_response(
                    AgentErrorKind.TOO_LARGE,
                    f"the answer is larger than {self._max_answer_bytes / 1024 / 1024:g} MiB",
                )
            return response_from_json(returned)
        except (MalformedAnswerError, RecursionError) as problem:
            return error_response(AgentErrorKind.MALFORMED, f"the agent returned no answer: {problem}")


def _raised(problem: BaseException) -> AgentResponse:
    try:
        text = clean_text(str(problem))
    except Exception:  # noqa: BLE001 - even its __str__ is the user's code
        text = "(its message cannot be shown)"
    name = type(problem).__name__
    message = f"{name}: {text}" if text else name
    return error_response(AgentErrorKind.RAISED, message, type=name, retryable=isinstance(problem, Exception))


def _size(value: object, limit: int) -> int:
    """Return a lower bound of the size of a value in bytes, stopping once it is above the limit."""
    size = nodes = 0
    pending: list[object] = [value]
    while pending and size <= limit:
        item = pending.pop()
        nodes += 1
        if nodes > _MAX_NODES:
            return limit + 1
        if isinstance(item, str | bytes):
            size += len(item)
        elif isinstance(item, dict):
            pending += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple):
            pending += item
        else:
            size += 4
    return size


class _HungThreadsError(Exception):
    """Too many calls hang; the message says so."""


_Job = tuple["Callable[..., Any]", AgentRequest, "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class _DaemonThreads:
    """Threads for synchronous agents; they never keep the process alive."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = 0
        self._count = 0
        self._abandoned = 0

    async def run(self, function: Callable[..., Any], request: AgentRequest) -> object:
        if self._abandoned >= _MAX_ABANDONED:
            raise _HungThreadsError(f"{self._abandoned} earlier calls of the agent still hang: it was not called again")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        if self._idle == 0:
            self._count += 1
            threading.Thread(target=self._work, name=f"agent-{self._count}", daemon=True).start()
        else:
            self._idle -= 1
        self._jobs.put((function, request, done, loop))
        try:
            return await done
        except asyncio.CancelledError:
            if done.cancelled():  # else the answer came in the same moment, and no thread hangs
                self._abandoned += 1
            raise

    def close(self) -> None:
        for _ in range(self._idle):
            self._jobs.put(None)
        self._idle = 0

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not self._work_on(*job):
                return
            del job  # an idle thread must not keep a large answer alive

    def _work_on(
        self,
        function: Callable[..., Any],
        request: AgentRequest,
        done: asyncio.Future[Any],
        loop: asyncio.AbstractEventLoop,
    ) -> bool:
        result: Any = None
        error: BaseException | None = None
        try:
            result = function(request)
        except BaseException as problem:  # noqa: BLE001 - SystemExit of the user's code is the user's failure
            error = problem
        try:
            loop.call_soon_threadsafe(self._finish, done, result, error)
        except RuntimeError:
            return False  # the loop has been closed: nobody waits any more
        return True

    def _finish(self, done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._idle += 1
        if done.cancelled():
            self._abandoned -= 1
        elif error is None:
            done.set_result(result)
        elif isinstance(error, StopIteration):
            done.set_exception(RuntimeError(f"StopIteration: {error}"))  # a future takes no StopIteration
        elif isinstance(error, asyncio.CancelledError | SystemExit | KeyboardInterrupt):
            done.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
        else:
            done.set_exception(error)
