"""Resources of an agent: opened once per run, case or question, and always closed."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from contextlib import (
    AbstractContextManager,
    _AsyncGeneratorContextManager,
    _GeneratorContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import TYPE_CHECKING, Any

from assay.agent_host.concurrency.tasks import as_agent
from assay.agent_host.failures import Failures
from assay.agent_host.loader import load_object
from assay.agent_host.sessions import CLOSE_S, LEAVING_S, SessionBook
from assay.errors import InvalidInputError, Problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from assay.model.answers.agent_request import AgentRequest
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.lifespan_settings import LifespanSettings

_log = logging.getLogger(__name__)


def load_lifespan(settings: LifespanSettings, folder: Path) -> Lifespan:
    """Return the lifespan in a spec, without opening it.

    Raises:
        AgentImportError: The user's module raised.
        InvalidInputError: The function does not exist or takes other arguments.
    """
    function = load_object(settings.target, folder, "function", "agent.lifespan")
    if not callable(function):
        message = f"{settings.target!r} is a {type(function).__name__}: name a function that opens something and yields"
        raise InvalidInputError([Problem(message, "agent.lifespan")], reason="AGENT_NOT_FOUND")
    if not accepts(function, 0) and not (settings.per == "case" and accepts(function, 1)):
        message = f"{settings.target!r} takes other arguments than none"
        if accepts(function, 1):
            message = f"{settings.target!r} takes an argument: a request is there with `lifespan_per: case` alone"
        elif settings.per == "case":
            message += ", or the request"
        raise InvalidInputError([Problem(message, "agent.lifespan")], reason="AGENT_NOT_FOUND")
    return Lifespan(function, is_per_case=settings.per == "case")


def accepts(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function accepts this number of positional arguments; True without a signature."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except ValueError:
        return True
    except TypeError:
        return False
    return True


class Lifespan:
    """A resource opened by a user's function, for all questions of a run or for those of a case.

    Args:
        function: Returns a context manager or a generator, synchronous or not; takes nothing or a request.
        is_per_case: Whether each case and repeat gets its own.
    """

    def __init__(self, function: Callable[..., Any], *, is_per_case: bool) -> None:
        self._function = function
        self._takes_request = is_per_case and not accepts(function, 0)
        self._for_run = None if is_per_case else Resource(function)
        self._for_cases: SessionBook[Resource] = SessionBook(lambda resource: resource.aclose())

    async def open(self, request: AgentRequest) -> Any:
        """Return the resource for a question; open it first if necessary.

        Raises:
            BaseException: Any exception of opening it.
        """
        if self._for_run is not None:
            return await self._for_run.value()
        resource = self._for_cases.take(request)
        if resource is None:
            function = self._function
            resource = Resource(lambda: function(request)) if self._takes_request else Resource(function)
        self._for_cases.hold(request, resource)
        return await resource.value()

    def settle(self, request: AgentRequest, response: AgentResponse | None) -> None:
        """Keep a case's resource for the next turn, or close it after the last; `response` is None if the call was
        cancelled.
        """
        self._for_cases.settle(request, response)

    async def aclose(self) -> None:
        """Close everything; a later question opens it again."""
        await self._for_cases.aclose()
        if self._for_run is not None:
            await self._for_run.aclose()


class Resource:
    """A context manager that its own task enters and leaves, as MCP clients require.

    Args:
        make: Returns the context manager or generator.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        # Belongs to no question, so that a question's spans and tasks do not include it.
        self._context = contextvars.copy_context()
        self._context.run(as_agent)
        self._task: asyncio.Task[None] | None = None
        self._value: asyncio.Future[Any] | None = None
        self._end = asyncio.Event()

    async def value(self) -> Any:
        """Return the entered value; the first call enters, and so does a call after a failure or closing.

        Raises:
            BaseException: Any exception of entering it.
        """
        if self._task is None or self._value is None or self._task.done():
            self._value = asyncio.get_running_loop().create_future()
            self._end = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(
                self._hold(self._value, self._end), context=self._context.copy()
            )
        # Several questions may wait for it: cancelling one of them must not cancel the value.
        return await asyncio.shield(self._value)

    async def aclose(self) -> None:
        """Leave it; abandon it if it neither ends in time nor accepts cancellation."""
        task, self._task = self._task, None
        if task is None or self._value is None:
            return
        if self._value.done():
            self._end.set()
        else:
            task.cancel()
        # `entered` cancels leaving after CLOSE_S; only a manager that ignores that is still there afterwards.
        done, _ = await asyncio.wait({task}, timeout=CLOSE_S + LEAVING_S)
        if not done:
            task.cancel()
            await asyncio.wait({task}, timeout=LEAVING_S)

    async def _hold(self, value: asyncio.Future[Any], end: asyncio.Event) -> None:
        try:
            async with entered(self._make(), any_manager=True) as opened:
                value.set_result(opened)
                await end.wait()
        except BaseException as problem:  # noqa: BLE001 - the boundary of a task: raised where the value is awaited
            if not value.done():
                value.set_exception(problem)
                value.exception()  # retrieved here: the question that waited for it may have ended


@asynccontextmanager
async def entered(resource: object, *, any_manager: bool = False) -> AsyncIterator[Any]:
    """Await and enter the result of a user's function; a plain value is yielded unchanged.

    An exception in the block is raised even if the manager suppresses it. An exception on leaving after success is
    logged.

    Args:
        resource: A generator, a context manager made from one, synchronous or not, or a coroutine that returns either.
        any_manager: Whether to enter every other context manager too, such as a client, which may be shared.
    """
    if inspect.iscoroutine(resource):
        resource = await resource
    manager = _manager(resource, any_manager=any_manager)
    if manager is None:
        yield resource
        return
    is_sync = isinstance(manager, AbstractContextManager) and not hasattr(type(manager), "__aenter__")
    value = manager.__enter__() if is_sync else await manager.__aenter__()
    problem: BaseException | None = None
    try:
        yield value
    except BaseException as raised:
        problem = raised
        raise
    finally:
        details = (None, None, None) if problem is None else (type(problem), problem, problem.__traceback__)
        try:
            async with asyncio.timeout(CLOSE_S):
                if is_sync:
                    manager.__exit__(*details)
                else:
                    await manager.__aexit__(*details)
        except Exception as raised:  # the boundary of a case, whose answer already exists
            if isinstance(problem, Exception):
                raise
            _log.warning("closing what the agent had open failed: %s", Failures().described(raised))


@asynccontextmanager
async def provided(option: object, request: AgentRequest, opened: Any) -> AsyncIterator[Any]:
    """Yield the value of an option such as `deps` for a question, and close it afterwards.

    Args:
        option: An object, or a function of the request, possibly a generator or context manager; None for none. A
            function of two arguments also receives `opened`.
        request: The question.
        opened: The resource that the agent's lifespan opened; it replaces a missing option.
    """
    if option is None:
        yield opened
        return
    if not inspect.isroutine(option):
        yield option
        return
    needs_opened = accepts(option, 2) and not accepts(option, 1)
    async with entered(option(request, opened) if needs_opened else option(request)) as value:
        yield value


def _manager(value: Any, *, any_manager: bool) -> Any:
    """Return the context manager in a value or for a generator; None for anything else."""
    if inspect.isasyncgen(value):
        return asynccontextmanager(lambda: value)()
    if inspect.isgenerator(value):
        return contextmanager(lambda: value)()
    if any_manager:
        return value if hasattr(type(value), "__aenter__") or hasattr(type(value), "__enter__") else None
    return value if isinstance(value, _AsyncGeneratorContextManager | _GeneratorContextManager) else None
