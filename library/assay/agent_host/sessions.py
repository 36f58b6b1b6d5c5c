"""Objects of a conversation, such as an instance of the user's class, closed after its last question."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from assay.agent_host.concurrency.tasks import guarded_tasks
from assay.agent_host.entry_point import Entry, entry_method, is_asynchronous
from assay.agent_host.failures import SessionLostError
from assay.model.answers.agent_response import AgentErrorKind, AgentStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from assay.agent_host.concurrency.threads import CallThreads
    from assay.agent_host.failures import Failures
    from assay.model.answers.agent_response import AgentRequest, AgentResponse

MAX_IDLE = 1_000
"""Maximum number of objects kept between turns; clients that never state the number of turns leave some behind."""

CLOSE_S = 10.0
"""How long closing a conversation's object may take, in seconds."""
LEAVING_S = 1.0
"""How long a cancelled close may continue, in seconds, before it is abandoned."""

HeldT = TypeVar("HeldT")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Session:
    """An object of the class.

    Args:
        instance: The object.
        entry: The object's entry point.
        is_async: Whether it was created on the event loop.
    """

    instance: Any
    entry: Entry
    is_async: bool


class SessionBook(Generic[HeldT]):
    """Keeps an object per session of questions between its turns, and closes it after the last.

    Args:
        close: Closes an object.
        close_s: How long closing an object may take, in seconds.
    """

    def __init__(self, close: Callable[[HeldT], Coroutine[Any, Any, None]], *, close_s: float = CLOSE_S) -> None:
        self._close_one = close
        self._close_s = close_s
        self._idle: dict[str, HeldT] = {}
        self._busy: dict[str, HeldT] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def take(self, request: AgentRequest) -> HeldT | None:
        """Return the session's object from earlier turns; None at the beginning, or if it is gone."""
        held = self._idle.pop(_key(request), None)
        if held is not None and request.turn_index == 0:
            self._close(held)  # from a failed attempt
            return None
        return held

    def hold(self, request: AgentRequest, held: HeldT) -> None:
        """Remember the session's object until the question is settled."""
        self._busy[request.request_id] = held

    def settle(self, request: AgentRequest, response: AgentResponse | None) -> None:
        """Keep a session's object for its next turn, or close it after the last.

        Args:
            request: The question.
            response: The answer; None if the call was cancelled.
        """
        held = self._busy.pop(request.request_id, None)
        if held is None:
            return
        if response is None or _is_last(request, response):
            self._close(held)
            return
        self._idle[_key(request)] = held
        if len(self._idle) > MAX_IDLE:
            self._close(self._idle.pop(next(iter(self._idle))))

    async def aclose(self) -> None:
        """Close all objects; each has its time, and is abandoned if it then ignores cancellation."""
        while self._idle:
            self._close(self._idle.popitem()[1])
        if self._closing:
            await asyncio.wait(self._closing, timeout=self._close_s + LEAVING_S)

    def _close(self, held: HeldT) -> None:
        task = asyncio.create_task(self._close_one(held))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class AgentSessions:
    """Creates an object of a class for each session of questions, and closes it after the last.

    An object is closed by its context manager, else by `aclose` or `close`, if it has one of them.

    Args:
        agent: A class with one of `ENTRY_METHODS`; it is instantiated without arguments.
        threads: The threads for synchronous code of the objects.
        failures: Describes exceptions of closing without secrets.
        close_s: How long closing an object may take, in seconds.
    """

    def __init__(self, agent: type, threads: CallThreads, failures: Failures, *, close_s: float = CLOSE_S) -> None:
        self._agent = agent
        self._method = entry_method(agent)
        self._is_async = is_asynchronous(getattr(agent, self._method))
        self._threads = threads
        self._failures = failures
        self._close_s = close_s
        self._book: SessionBook[_Session] = SessionBook(self._closed, close_s=close_s)

    async def entry(self, request: AgentRequest, limit: asyncio.Timeout) -> Entry:
        """Return the entry point of the session's object, which the first turn creates.

        Raises:
            SessionLostError: The object is gone at a later turn.
            BaseException: Any exception of creating the object.
        """
        session = self._book.take(request)
        if request.turn_index == 0:
            session = await self._make(limit)
        if session is None:
            raise SessionLostError(
                f"the {self._agent.__name__} object that answered the earlier turns of this conversation is gone: its "
                "process ended, or another client had it; `assay runs resume "
                f"{request.run_id} --retry-errors --spec SPEC` asks from the first turn"
            )
        self._book.hold(request, session)
        return session.entry

    def settle(self, request: AgentRequest, response: AgentResponse | None) -> None:
        """Keep a session's object for its next turn, or close it after the last.

        Args:
            request: The question.
            response: The answer; None if the call was cancelled.
        """
        self._book.settle(request, response)

    async def aclose(self) -> None:
        """Close all objects; each has `close_s`, and is abandoned if it then ignores cancellation."""
        await self._book.aclose()

    async def _make(self, limit: asyncio.Timeout) -> _Session:
        # An asynchronous agent may need the loop during creation: clients and locks bind to it.
        instance = self._agent() if self._is_async else await self._in_thread(self._agent, limit)
        asked = instance
        if hasattr(type(instance), "__aenter__"):
            asked = await instance.__aenter__()
        elif hasattr(type(instance), "__enter__"):
            asked = instance.__enter__() if self._is_async else await self._in_thread(instance.__enter__, limit)
        method = getattr(asked if hasattr(asked, self._method) else instance, self._method)
        return _Session(instance, Entry.of(method), self._is_async)

    async def _in_thread(self, function: Callable[..., Any], limit: asyncio.Timeout) -> Any:
        return await self._threads.value(lambda _: function(), None, limit)

    async def _closed(self, session: _Session) -> None:
        close = _closer(session.instance)
        if close is None:
            return
        try:
            async with asyncio.timeout(self._close_s) as limit:
                with guarded_tasks():
                    is_async = session.is_async or inspect.iscoroutinefunction(close)
                    closing = close() if is_async else await self._in_thread(close, limit)
                    if inspect.isawaitable(closing):
                        await closing
        except (Exception, SystemExit) as problem:  # noqa: BLE001 - the boundary of a case, which is answered already
            error = self._failures.of(problem).error
            _log.warning("closing the agent failed: class=%s: %s", self._agent.__name__, error.message if error else "")


def _key(request: AgentRequest) -> str:
    return request.session_id or request.request_id


def _is_last(request: AgentRequest, response: AgentResponse) -> bool:
    """Return whether no further question of the session can use the object.

    A failed first turn is retried with a new object. An error that is not retried, or an agent that waits for a person,
    ends the session. After a timeout, the object may still be busy.
    """
    if response.status is AgentStatus.INTERRUPTED:
        return True
    if response.error is not None:
        late = response.error.kind is AgentErrorKind.TIMEOUT
        return request.turn_index == 0 or late or not response.error.retryable
    return not request.session_id or 0 < request.turn_count <= request.turn_index + 1


def _closer(instance: Any) -> Callable[[], Any] | None:
    """Return the function that closes an object; None if there is none."""
    kind = type(instance)
    if hasattr(kind, "__aenter__") and hasattr(kind, "__aexit__"):
        return functools.partial(_leave, instance)
    if hasattr(kind, "__enter__") and hasattr(kind, "__exit__"):
        return lambda: instance.__exit__(None, None, None)
    return next((close for name in ("aclose", "close") if callable(close := getattr(instance, name, None))), None)


async def _leave(instance: Any) -> None:
    await instance.__aexit__(None, None, None)
