"""The default executor of event loops that call agents, for work that frameworks run in asyncio's threads."""

from __future__ import annotations

import os
import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.agent_host.concurrency.tasks import is_agent
from assay.agent_host.concurrency.threads import MAX_HUNG, TooManyHangError

if TYPE_CHECKING:
    from collections.abc import Callable


class AgentExecutor(ThreadPoolExecutor):
    """Runs functions in daemon threads, one thread per concurrent call.

    asyncio's executor has only a few more threads than processors, and the process waits for them at exit: synchronous
    nodes and tools would block each other, and a hanging one would keep the process alive. Set this one with
    `set_default_executor`, only on an event loop of our own.

    Args:
        max_hung: How many abandoned agent calls may hang before no further one is made.
    """

    def __init__(self, *, max_hung: int = MAX_HUNG) -> None:
        super().__init__(thread_name_prefix="agent work")  # it starts no thread before its own `submit`
        self._max_hung = max_hung
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._running: set[_Call] = set()
        self._idle = 0
        self._is_closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a function in a thread; the caller's context shows whether the call is an agent's.

        Raises:
            TooManyHangError: `max_hung` earlier agent calls still hang, and this is an agent's call.
            RuntimeError: The executor was shut down.
        """
        call = _Call(is_agents=is_agent())
        with self._lock:
            if self._is_closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            hung = sum(running.is_abandoned for running in self._running) if call.is_agents else 0
            if hung >= self._max_hung:
                raise TooManyHangError(
                    f"{hung} earlier calls of the agent still hang past their time limit: it was not called again"
                )
            if self._idle == 0:
                threading.Thread(target=self._work, name="agent work", daemon=True).start()
            else:
                self._idle -= 1
            self._running.add(call)
        self._queue.put(_Work(call, lambda: fn(*args, **kwargs)))
        return call

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuse further calls and let idle threads end; agents' calls are abandoned, all others awaited.

        Args:
            wait: Whether to wait for calls that are not agents'.
            cancel_futures: No effect, because every call has already started.
        """
        with self._lock:
            self._is_closed = True
            for _ in range(self._idle):
                self._queue.put(None)
            self._idle = 0
            awaited = [call for call in self._running if not call.is_agents]
        if wait:
            wait_for(awaited)

    def _work(self) -> None:
        owner = os.getpid()
        while (work := self._queue.get()) is not None:
            value, error = work.execute()
            if os.getpid() != owner:
                os._exit(0)  # a process forked by the agent that returned: its parent answers
            with self._lock:
                self._running.discard(work.call)
                is_last = self._is_closed
                self._idle += not is_last
            # Outside the lock: callbacks of the future may submit more work.
            work.call.finish(value, error)
            if is_last:
                return
            del work, value, error  # an idle thread must not keep a result alive


class _Call(Future[Any]):
    """A call and its outcome.

    Args:
        is_agents: Whether it is an agent's call.

    Attributes:
        is_abandoned: Whether its caller has stopped waiting.
    """

    def __init__(self, *, is_agents: bool) -> None:
        super().__init__()
        self.is_agents = is_agents
        self.is_abandoned = False
        self.set_running_or_notify_cancel()

    def cancel(self) -> bool:
        self.is_abandoned = True
        return super().cancel()  # False: it is running

    def finish(self, value: Any, error: BaseException | None) -> None:
        if error is None:
            self.set_result(value)
        else:
            self.set_exception(error)


@dataclass(frozen=True, slots=True)
class _Work:
    call: _Call
    function: Callable[[], Any]

    def execute(self) -> tuple[Any, BaseException | None]:
        try:
            return self.function(), None
        except BaseException as problem:  # noqa: BLE001 - the boundary of a case: raised where the result is awaited
            return None, problem
