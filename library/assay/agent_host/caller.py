"""Calling the user's agent once: whatever it does, the outcome is an answer."""

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
    """Calls an agent and turns whatever comes back, or does not, into an answer.

    A synchronous function runs in a daemon thread. One that hangs is left behind after the time limit and
    another thread takes its place; it cannot keep the process from ending.

    Args:
        agent: A function of one request, or of its text; synchronous or asynchronous, or a generator of texts; or a
            class with a method of that kind, of which each session gets an object of its own.
        answer_map: JMESPath expressions by answer field, which find the answer in what the agent returns; None where it
            returns an answer.
        max_answer_bytes: Largest answer, in bytes of UTF-8.
        max_hung: How many calls may hang past their time limit before the agent is not called again.
        lifespan: What is open while the agent is asked; None where nothing is.
        hands_over: Whether the agent is called with what that is, too, as its second argument.
        open: Opens what the agent needs by itself, where it is not open yet; None where it needs nothing.
        close: Lets go of what the agent holds open; None where it holds nothing.
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
        """Return the agent's answer, with the time it took; never raises but when cancelled.

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
        """Close what the agent holds open, and let idle threads end; a further call starts anew."""
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
                    start = time.perf_counter()  # opening is no part of the answer
                    returned = await self._invoke(request, limit, pieces, opened)
                answered_at = time.perf_counter()
                if os.getpid() == owner:
                    response = await self._read(returned, limit, progress)
        except GeneratorExit:
            raise
        except BaseException as problem:  # the boundary of a case: agents raise SystemExit and cancel themselves
            if isinstance(problem, asyncio.CancelledError) and is_cancelled_from_outside():
                raise
            response = progress.completed(self._failures.of(problem), self._max_answer_bytes)
        finally:
            pieces.close()
        if os.getpid() != owner:
            os._exit(0)  # a process that the agent forked, and that returned: the answer is its parent's
        if limit.expired() or response is None:  # even if the agent took its cancellation for something else
            late = "no answer" if opened is not None else "what the agent needs did not open"
            failure = error_response(AgentErrorKind.TIMEOUT, f"{late} within {request.timeout_s:g} s", retryable=True)
            response = progress.completed(failure, self._max_answer_bytes)
        latency_ms = ((answered_at or time.perf_counter()) - start) * 1000
        response = dataclasses.replace(self._failures.redacted_answer(response), latency_ms=latency_ms)
        if answered_at is not None and pieces.first_at is not None:
            response = dataclasses.replace(response, time_to_first_token_ms=(pieces.first_at - start) * 1000)
        return response

    async def _opened(self, request: AgentRequest) -> tuple[Any, ...]:
        """Open what the agent needs, and return what it is called with beside the question."""
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
            found = entry.function(argument, *opened)
            # Read where it was made: what it holds may belong to this thread.
            return pieces.join_generator(found) if _is_generator(found) else found

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
            # In a thread: expressions, and properties of the object, may take their time.
            response: AgentResponse = await self._threads.value(lambda found: mapped.read(found, text), answer, limit)
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


def _no_answer(found: object) -> str:
    return (
        f"it is {kind_of(found)}: return a text, a mapping with a 'text' field, a data class or a pydantic model, or "
        "say with agent.map where its parts are"
    )


def _is_generator(found: object) -> bool:
    return inspect.isgenerator(found) and not inspect.isawaitable(found)


def _asks_with_text(agent: object) -> bool:
    """Return whether an agent is asked with the text of the question, and so not without one."""
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
