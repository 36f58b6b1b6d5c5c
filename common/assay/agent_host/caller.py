"""Calling the user's agent once: whatever it does, the outcome is an answer."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import os
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from assay.agent_host.argument import receives_text
from assay.agent_host.failures import Failures
from assay.agent_host.threads import MAX_HUNG, CallThreads
from assay.model.agent_response import (
    AgentErrorKind,
    AgentRequest,
    AgentResponse,
    MalformedAnswerError,
    error_response,
    response_from_json,
    response_to_json,
)
from assay.model.response_limits import MAX_ANSWER_BYTES, AnswerTooLargeError, check_bounds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable


class AgentCaller:
    """Calls an agent function and turns whatever comes back, or does not, into an answer.

    A synchronous function runs in a daemon thread. One that hangs is left behind after the time limit and
    another thread takes its place; it cannot keep the process from ending.

    Args:
        agent: A function of one request, or of its text; synchronous, asynchronous, or an asynchronous generator of
            texts.
        max_answer_bytes: Largest answer, in bytes of UTF-8.
        max_hung: How many calls may hang past their time limit before the agent is not called again.
    """

    def __init__(
        self, agent: Callable[..., Any], *, max_answer_bytes: int = MAX_ANSWER_BYTES, max_hung: int = MAX_HUNG
    ) -> None:
        self._agent = agent
        self._receives_text = receives_text(agent)
        self._max_answer_bytes = max_answer_bytes
        call = agent if inspect.isroutine(agent) else getattr(agent, "__call__", agent)  # noqa: B004
        # What inspection cannot decide, such as a partial or a lambda, is called in a thread, and what it
        # returns is awaited here.
        self._is_async = inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)
        self._threads = CallThreads(max_hung=max_hung)
        self._failures = Failures()

    async def call(self, request: AgentRequest, on_piece: Callable[[str], None] = lambda _: None) -> AgentResponse:
        """Return the agent's answer, with the time it took; never raises but when cancelled.

        Args:
            request: The question.
            on_piece: Called with each text that an asynchronous generator yields.
        """
        failure: AgentResponse | None = None
        returned: object = None
        pieces = _Pieces(on_piece, self._max_answer_bytes)
        owner = os.getpid()
        start = time.perf_counter()
        try:
            async with asyncio.timeout(request.timeout_s) as limit:
                returned = await self._invoke(request, limit, pieces)
        except GeneratorExit:
            raise
        except BaseException as problem:  # the boundary of a case: agents raise SystemExit and cancel themselves
            if isinstance(problem, asyncio.CancelledError) and _is_cancelled_from_outside():
                raise
            failure = self._failures.of(problem)
        if os.getpid() != owner:
            os._exit(0)  # a process that the agent forked, and that returned: the answer is its parent's
        latency_ms = (time.perf_counter() - start) * 1000
        if limit.expired():  # even if the agent took its cancellation for something else
            failure = error_response(
                AgentErrorKind.TIMEOUT, f"no answer within {request.timeout_s:g} s", retryable=True
            )
        response = dataclasses.replace(failure or self._read(returned), latency_ms=latency_ms)
        if failure is None and pieces.first_at is not None:
            response = dataclasses.replace(response, time_to_first_token_ms=(pieces.first_at - start) * 1000)
        return response

    async def aclose(self) -> None:
        """Let idle threads end; a further call starts new ones."""
        self._threads.close()

    async def _invoke(self, request: AgentRequest, limit: asyncio.Timeout, pieces: _Pieces) -> object:
        argument = _text_of(request) if self._receives_text else request
        if self._is_async:
            returned = self._agent(argument)
        else:
            outcome = await self._threads.run(self._agent, argument, limit)
            if outcome.error is not None:
                # Returned, not raised: a coroutine may raise neither StopIteration nor SystemExit unharmed.
                return self._failures.of(outcome.error)
            returned = outcome.value
        if inspect.isasyncgen(returned):
            return await pieces.join(returned)
        return await returned if inspect.isawaitable(returned) else returned

    def _read(self, returned: object) -> AgentResponse:
        try:
            if isinstance(returned, AgentResponse):
                returned = response_to_json(returned)
            check_bounds(returned, self._max_answer_bytes)
            return response_from_json(returned)
        except Exception as problem:  # noqa: BLE001 - the boundary of a case: reading the user's object may raise
            return self._failures.of_unreadable(problem)


def _text_of(request: AgentRequest) -> str:
    if not request.input and request.variables:
        raise TypeError("the case has variables and no text: name the agent's parameter `request` to receive both")
    return request.input


def _is_cancelled_from_outside() -> bool:
    """Tell a cancellation of this call from an agent that cancelled itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _Pieces:
    """The texts that one answer comes in.

    Args:
        on_piece: Called with each of them.
        max_bytes: Most characters of all of them; their bytes are counted once the answer is whole.
    """

    def __init__(self, on_piece: Callable[[str], None], max_bytes: int) -> None:
        self._on_piece = on_piece
        self._max_bytes = max_bytes
        self.first_at: float | None = None

    async def join(self, pieces: AsyncGenerator[object, Any]) -> str:
        texts: list[str] = []
        size = 0
        async with aclosing(pieces):
            async for piece in pieces:
                if not isinstance(piece, str):
                    raise MalformedAnswerError(
                        f"it yielded a {type(piece).__name__}, and pieces of an answer are texts"
                    )
                size += len(piece)
                if size > self._max_bytes:
                    raise AnswerTooLargeError(f"the answer is larger than {self._max_bytes / 1024 / 1024:g} MiB")
                if piece and self.first_at is None:
                    self.first_at = time.perf_counter()
                texts.append(piece)
                self._on_piece(piece)
        return "".join(texts)
