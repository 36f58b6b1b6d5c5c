"""Calling the user's agent: every outcome becomes an answer."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import os
import time
from typing import TYPE_CHECKING, Any

from assay.agent_host.answers.plain_answers import AnswerMap, plain_value
from assay.agent_host.answers.streamed_text import Pieces, StreamedAnswer
from assay.agent_host.argument import receives_text
from assay.agent_host.concurrency.tasks import guarded_tasks, is_cancelled_from_outside
from assay.agent_host.concurrency.threads import MAX_HUNG, CallThreads
from assay.agent_host.entry_point import Entry, entry_method
from assay.agent_host.failures import Failures
from assay.agent_host.progress import Progress
from assay.agent_host.sessions import AgentSessions
from assay.agent_host.traces.process_tracing import spans_below
from assay.model.answers.agent_response import (
    AgentErrorKind,
    AgentRequest,
    AgentResponse,
    MalformedAnswerError,
    error_response,
    response_from_json,
)
from assay.model.answers.response_limits import MAX_ANSWER_BYTES, check_bounds
from assay.parsing.names import kind_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from assay.agent_host.lifespan import Lifespan


class AgentCaller:
    """Calls an agent and turns its result, or any failure, into an answer.

    A synchronous function runs in a daemon thread. If it hangs past the time limit, another thread replaces it; it
    cannot keep the process from ending.

    Args:
        agent: A function of a request or of its text, synchronous, asynchronous or a generator of texts; or a class
            with such a method, instantiated for each session.
        answer_map: JMESPath expressions by answer field, which locate the answer in the agent's return value; None if
            it returns an answer.
        max_answer_bytes: Maximum size of an answer, in bytes of UTF-8.
        max_hung: How many calls may hang past their time limit before the agent is no longer called.
        lifespan: The resource that is open while the agent is asked; None for none.
        hands_over: Whether the agent receives that resource as its second argument.
        open: Opens the agent's own resources if they are not open yet; None if it has none.
        close: Closes the agent's own resources; None if it has none.
    """

    def __init__(
        self,
        agent: Callable[..., Any],
        *,
        answer_map: Mapping[str, str] | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        max_hung: int = MAX_HUNG,
        lifespan: Lifespan | None = None,
        hands_over: bool = False,
        open: Callable[[], Awaitable[None]] | None = None,  # noqa: A002 - beside `close`
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._lifespan = lifespan
        self._hands_over = hands_over
        self._open = open
        self._close = close
        self._max_answer_bytes = max_answer_bytes
        self._map = AnswerMap(answer_map) if answer_map else None
        self._threads = CallThreads(max_hung=max_hung)
        self._failures = Failures()
        self._entry = Entry.of(agent)
        self._sessions: AgentSessions | None = None
        if isinstance(agent, type) and entry_method(agent):
            self._sessions = AgentSessions(agent, self._threads, self._failures)
        self._is_cold = True
        self.asks_with_text = _asks_with_text(agent)

    async def call(self, request: AgentRequest, on_piece: Callable[[str], None] | None = None) -> AgentResponse:
        """Return the agent's answer with its duration; raises only when cancelled.

        Args:
            request: The question.
            on_piece: Called with each text that a generator yields.
        """
        response: AgentResponse | None = None
        is_cold, self._is_cold = self._is_cold, False
        try:
            with spans_below(request.traceparent):
                response = await self._respond(request, on_piece)
        finally:
            if self._sessions is not None:
                self._sessions.settle(request, response)
            if self._lifespan is not None:
                self._lifespan.settle(request, response)
        return dataclasses.replace(response, cold=True) if is_cold else response

    async def aclose(self) -> None:
        """Close the agent's resources and let idle threads end; a later call starts new ones."""
        # In this order: sessions may need threads to close, and everything may use the lifespan's resource.
        if self._sessions is not None:
            await self._sessions.aclose()
        self._threads.close()
        try:
            if self._close is not None:
                await self._close()
        finally:
            if self._lifespan is not None:
                await self._lifespan.aclose()

    async def _respond(self, request: AgentRequest, on_piece: Callable[[str], None] | None) -> AgentResponse:
        response: AgentResponse | None = None
        pieces = Pieces(on_piece, self._max_answer_bytes, takes_any=self._map is not None)
        progress = Progress()
        owner = os.getpid()
        start = time.perf_counter()
        answered_at: float | None = None
        opened: tuple[Any, ...] | None = None
        try:
            async with asyncio.timeout(request.timeout_s) as limit:
                with guarded_tasks(), progress.recorded():
                    opened = await self._opened(request)
                    start = time.perf_counter()  # the time for opening is not part of the answer's
                    returned = await self._invoke(request, limit, pieces, opened)
                answered_at = time.perf_counter()
                if os.getpid() == owner:
                    response = await self._read(returned, limit, progress)
        except GeneratorExit:
            raise  # the coroutine is being destroyed and must not go on
        except BaseException as problem:  # the boundary of a case: agents raise SystemExit and cancel themselves
            if isinstance(problem, asyncio.CancelledError) and is_cancelled_from_outside():
                raise
            response = progress.completed(self._failures.of(problem), self._max_answer_bytes)
        finally:
            pieces.close()
        if os.getpid() != owner:
            os._exit(0)  # a process forked by the agent that returned: its parent answers
        if limit.expired() or response is None:  # even if the agent mistook its cancellation for something else
            late = "no answer" if opened is not None else "what the agent needs did not open"
            failure = error_response(AgentErrorKind.TIMEOUT, f"{late} within {request.timeout_s:g} s", retryable=True)
            response = progress.completed(failure, self._max_answer_bytes)
        latency_ms = ((answered_at or time.perf_counter()) - start) * 1000
        response = dataclasses.replace(self._failures.redacted_answer(response), latency_ms=latency_ms)
        if answered_at is not None and pieces.first_at is not None:
            response = dataclasses.replace(response, time_to_first_token_ms=(pieces.first_at - start) * 1000)
        return response

    async def _opened(self, request: AgentRequest) -> tuple[Any, ...]:
        """Open the agent's resource; return the further arguments of the agent."""
        opened = () if self._lifespan is None else (await self._lifespan.open(request),)
        if self._open is not None:
            await self._open()
        return opened if self._hands_over else ()

    async def _invoke(
        self, request: AgentRequest, limit: asyncio.Timeout, pieces: Pieces, opened: tuple[Any, ...]
    ) -> object:
        entry = self._entry if self._sessions is None else await self._sessions.entry(request, limit)
        argument = _text_of(request) if entry.receives_text else request

        def call(argument: object) -> object:
            returned = entry.function(argument, *opened)
            # Read in the thread that made it, because its contents may be bound to that thread.
            return pieces.join_generator(returned) if _is_generator(returned) else returned

        if entry.is_async:
            returned = entry.function(argument, *opened)
        else:
            returned = await self._threads.value(call, argument, limit)
        if inspect.isawaitable(returned):
            returned = await returned
        if inspect.isasyncgen(returned):
            return await pieces.join(returned)
        if _is_generator(returned):
            return await self._threads.value(pieces.join_generator, returned, limit)
        return returned

    async def _read(self, returned: object, limit: asyncio.Timeout, progress: Progress) -> AgentResponse:
        streamed = returned if isinstance(returned, StreamedAnswer) else None
        text, answer = ("", returned) if streamed is None else (streamed.text, streamed.answer)
        if self._map is not None and not isinstance(answer, str):
            mapped = self._map
            # In a thread: expressions and properties of the object may be slow.
            response: AgentResponse = await self._threads.value(lambda result: mapped.read(result, text), answer, limit)
            return response
        try:
            data = plain_value(answer)
            if not isinstance(data, str | dict):
                raise MalformedAnswerError(_no_answer(data))
            if text and isinstance(data, dict) and not data.get("text"):
                data = {**data, "text": text}
            check_bounds(data, self._max_answer_bytes)
            return response_from_json(data)
        except Exception as problem:  # noqa: BLE001 - the boundary of a case: reading the user's object may raise
            return progress.completed(self._failures.of_unreadable(problem), self._max_answer_bytes)


def _no_answer(returned: object) -> str:
    return (
        f"it is {kind_of(returned)}: return a text, a mapping with a 'text' field, a data class or a pydantic model, "
        "or say with agent.map where its parts are"
    )


def _is_generator(returned: object) -> bool:
    return inspect.isgenerator(returned) and not inspect.isawaitable(returned)


def _asks_with_text(agent: object) -> bool:
    """Return whether an agent is called with the question's text, so that it needs one."""
    if method := entry_method(agent):
        function = getattr(agent, method)
        # A plain function of a class takes the object first.
        bound = (
            functools.partial(function, None) if inspect.isfunction(inspect.getattr_static(agent, method)) else function
        )
        return receives_text(bound)
    owner = getattr(agent, "__self__", agent)
    return getattr(owner, "asks_with_text", False) is True or (callable(agent) and receives_text(agent))


def _text_of(request: AgentRequest) -> str:
    if not request.input and request.variables:
        raise TypeError("the case has variables and no text: name the agent's parameter `request` to receive both")
    return request.input
