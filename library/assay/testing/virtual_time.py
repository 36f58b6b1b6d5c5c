"""An event loop whose clock jumps to the next timer, so that hours pass in a moment.

    assert run_in_virtual_time(lambda: asyncio.sleep(3600, "done")) == "done"

Only what waits by the loop's own timers may run in it: no sockets, no threads.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class _JumpingSelector(selectors.SelectSelector):
    """Never waits: every requested timeout has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("all tasks wait, and no timer will wake them")
        if not ready and timeout:
            self.now += timeout
        return ready


class _JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_in_virtual_time(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function to its end; `asyncio.get_running_loop().time()` begins at 0.

    Raises:
        RuntimeError: Every task waits, and no timer is due.
    """
    with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
        return runner.run(main())
