"""Guarding an agent's tasks: an exit in a task fails the agent's call, not the hosting process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

_is_agent: ContextVar[bool] = ContextVar("assay_is_agent", default=False)
_EXITS = (SystemExit, KeyboardInterrupt)


class TaskExitError(Exception):
    """A task of an agent raised SystemExit or KeyboardInterrupt, the cause of this exception."""


@contextmanager
def guarded_tasks() -> Iterator[None]:
    """Make tasks started in the block, or by those tasks, raise TaskExitError instead of an exit.

    asyncio ends its event loop when a task raises SystemExit or KeyboardInterrupt, whatever awaits the task: every
    other call would end too, and the process would seem to exit normally.
    """
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if not isinstance(factory, _TaskFactory):
        loop.set_task_factory(_TaskFactory(factory))
    if isinstance(task := asyncio.current_task(), OwnTask):
        task.runs_agent = True
    token = _is_agent.set(True)
    try:
        yield
    finally:
        _is_agent.reset(token)


def is_agent() -> bool:
    """Return whether the calling code is an agent's, or was called by one."""
    return _is_agent.get()


def as_agent() -> None:
    """Mark calls from the current context as an agent's."""
    _is_agent.set(True)


def not_as_agent() -> None:
    """Mark calls from the current context as not an agent's."""
    _is_agent.set(False)


class OwnTask(asyncio.Task[Any]):
    """A task of Assay in its own event loop; it survives an agent that cancels all tasks of the loop.

    Attributes:
        runs_agent: Whether it calls an agent, whose code may cancel it, as the agent's own time limits do.
        agent_cancels: The number of cancel requests that came from that code.
    """

    runs_agent = False
    agent_cancels = 0

    def cancel(self, msg: Any | None = None) -> bool:
        if is_agent():
            if not self.runs_agent:
                return False
            self.agent_cancels += 1
        return super().cancel(msg)

    def uncancel(self) -> int:
        count = super().uncancel()
        self.agent_cancels = min(self.agent_cancels, count)
        return count


def own_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """Create an OwnTask; the task factory of Assay's event loops."""
    return (asyncio.Task if is_agent() else OwnTask)(coroutine, loop=loop, **options)


def is_cancelled_from_outside() -> bool:
    """Return whether the current task was cancelled by someone other than the agent's code in it."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > (task.agent_cancels if isinstance(task, OwnTask) else 0)


class _TaskFactory:
    def __init__(self, inner: Callable[..., Any] | None) -> None:
        self._inner: Callable[..., Any] = inner or _new_task

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        return self._inner(loop, _Guarded(coroutine) if _is_agent.get() else coroutine, **options)


def _new_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    return asyncio.Task(coroutine, loop=loop, **options)


class _Guarded(Coroutine[Any, Any, Any]):
    """A coroutine that raises TaskExitError instead of an exit, and otherwise behaves the same."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def send(self, value: Any) -> Any:
        try:
            return self._inner.send(value)
        except _EXITS as problem:
            raise TaskExitError(str(problem)) from problem

    def throw(self, *problem: Any) -> Any:
        try:
            return self._inner.throw(*problem)
        except _EXITS as raised:
            raise TaskExitError(str(raised)) from raised

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()  # type: ignore[no-any-return]  # of a coroutine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # attributes that debuggers and other libraries read
