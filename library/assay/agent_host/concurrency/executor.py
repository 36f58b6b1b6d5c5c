"""The default executor of event loops that call agents: what frameworks run in threads of asyncio."""

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
    """Runs functions in daemon threads, as many at once as there are calls.

    The executor of asyncio has a few threads more than there are processors, and the process waits for them at its end:
    synchronous nodes and tools would wait for each other, and one that hangs would keep the process alive.
    Set it with `set_default_executor`, and only on an event loop of our own.

    Args:
        max_hung: How many calls of agents may hang after their caller stopped waiting before no further one is made.
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
        """Call a function in a thread; what an agent does is known by the context of the caller.

        Raises:
            TooManyHangError: `max_hung` earlier calls of agents still hang, and this is one of an agent.
            RuntimeError: The executor was shut down.
        """
        call = _Call(is_agents=is_agent())
        with self._lock:
            if self._is_closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            hung = sum(each.is_abandoned for each in self._running) if call.is_agents else 0
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
        """Take no further calls and let idle threads end; calls of agents are left behind, all others awaited.

        Args:
            wait: Whether to wait for calls that are not an agent's.
            cancel_futures: Without effect: each call has begun.
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
                os._exit(0)  # a process that the agent forked, and that returned: the answer is its parent's
            with self._lock:
                self._running.discard(work.call)
                is_last = self._is_closed
                self._idle += not is_last
            work.call.finish(value, error)
            if is_last:
                return
            del work, value, error  # an idle thread must not keep a result alive


class _Call(Future[Any]):
    """What a call comes to.

    Args:
        is_agents: Whether it is a call of an agent.

    Attributes:
        is_abandoned: Whether the caller has stopped waiting.
    """

    def __init__(self, *, is_agents: bool) -> None:
        super().__init__()
        self.is_agents = is_agents
        self.is_abandoned = False
        self.set_running_or_notify_cancel()

    def cancel(self) -> bool:
        self.is_abandoned = True
        return super().cancel()  # False: it runs

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
