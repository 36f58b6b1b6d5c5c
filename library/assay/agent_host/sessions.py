"""What each conversation has of its own, closed after its last question: such as an object of the user's class."""

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
"""Conversations between two turns whose objects are kept; of callers that never say how many turns there are, too."""

CLOSE_S = 10.0
"""How long closing what a conversation had may take, in seconds."""
LEAVING_S = 1.0
"""What is cancelled gets so long, in seconds, before it is left behind."""

HeldT = TypeVar("HeldT")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Session:
    """One object of the class.

    Args:
        made: The object.
        entry: How it is asked.
        is_async: Whether it was made on the event loop.
    """

    made: Any
    entry: Entry
    is_async: bool


class SessionBook(Generic[HeldT]):
    """Keeps something for each session of questions between its turns, and closes it after the last.

    Args:
        close: Closes one of them.
        close_s: How long closing one may take, in seconds.
    """

    def __init__(self, close: Callable[[HeldT], Coroutine[Any, Any, None]], *, close_s: float = CLOSE_S) -> None:
        self._close_one = close
        self._close_s = close_s
        self._idle: dict[str, HeldT] = {}
        self._busy: dict[str, HeldT] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def take(self, request: AgentRequest) -> HeldT | None:
        """Return what the session of a question has from earlier turns; None at its beginning, or where it is gone."""
        held = self._idle.pop(_key(request), None)
        if held is not None and request.turn_index == 0:
            self._close(held)  # of an attempt that failed
            return None
        return held

    def hold(self, request: AgentRequest, held: HeldT) -> None:
        """Remember what the session of a question has, until the question is settled."""
        self._busy[request.request_id] = held

    def settle(self, request: AgentRequest, response: AgentResponse | None) -> None:
        """Keep what a session has for its next turn, or close it after the last.

        Args:
            request: The question.
            response: The answer; None where the call was cancelled.
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
        """Close everything; each gets its time, and one that ignores its cancellation then is left behind."""
        while self._idle:
            self._close(self._idle.popitem()[1])
        if self._closing:
            await asyncio.wait(self._closing, timeout=self._close_s + LEAVING_S)

    def _close(self, held: HeldT) -> None:
        task = asyncio.create_task(self._close_one(held))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


class AgentSessions:
    """Makes an object of a class for each session of questions, and closes it after the last.

    The object is closed by the context manager that it is, else by `aclose` or `close`, where it has one of them.

    Args:
        agent: A class with one of `ENTRY_METHODS`; its objects are made without arguments.
        threads: Where synchronous code of theirs runs.
        failures: Shows what closing raises without secrets.
        close_s: How long closing one may take, in seconds.
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
        """Return how the object of a question's session is asked; it is made with the first turn.

        Raises:
            SessionLostError: A later turn comes, and its object is gone.
            BaseException: Whatever making it raises.
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
        """Keep the object of a session for its next turn, or close it after the last.

        Args:
            request: The question.
            response: The answer; None where the call was cancelled.
        """
        self._book.settle(request, response)

    async def aclose(self) -> None:
        """Close every object; each gets `close_s`, and one that ignores its cancellation then is left behind."""
        await self._book.aclose()

    async def _make(self, limit: asyncio.Timeout) -> _Session:
        # An asynchronous agent may need the loop when it is made: clients and locks bind to it.
        made = self._agent() if self._is_async else await self._in_thread(self._agent, limit)
        asked = made
        if hasattr(type(made), "__aenter__"):
            asked = await made.__aenter__()
        elif hasattr(type(made), "__enter__"):
            asked = made.__enter__() if self._is_async else await self._in_thread(made.__enter__, limit)
        method = getattr(asked if hasattr(asked, self._method) else made, self._method)
        return _Session(made, Entry.of(method), self._is_async)

    async def _in_thread(self, function: Callable[..., Any], limit: asyncio.Timeout) -> Any:
        return await self._threads.value(lambda _: function(), None, limit)

    async def _closed(self, session: _Session) -> None:
        close = _closer(session.made)
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
            said = self._failures.of(problem).error
            _log.warning("closing the agent failed: class=%s: %s", self._agent.__name__, said.message if said else "")


def _key(request: AgentRequest) -> str:
    return request.session_id or request.request_id


def _is_last(request: AgentRequest, response: AgentResponse) -> bool:
    """Return whether no further question of the session can use the object.

    A first turn that failed is asked again of a new one, and so is nothing after an error that is not retried, or after
    an agent that waits for a person. What ran out of time may still be at work in the object.
    """
    if response.status is AgentStatus.INTERRUPTED:
        return True
    if response.error is not None:
        late = response.error.kind is AgentErrorKind.TIMEOUT
        return request.turn_index == 0 or late or not response.error.retryable
    return not request.session_id or 0 < request.turn_count <= request.turn_index + 1


def _closer(made: Any) -> Callable[[], Any] | None:
    """Return what closes an object; None where nothing does."""
    kind = type(made)
    if hasattr(kind, "__aenter__") and hasattr(kind, "__aexit__"):
        return functools.partial(_leave, made)
    if hasattr(kind, "__enter__") and hasattr(kind, "__exit__"):
        return lambda: made.__exit__(None, None, None)
    return next((close for name in ("aclose", "close") if callable(close := getattr(made, name, None))), None)


async def _leave(made: Any) -> None:
    await made.__aexit__(None, None, None)
