"""A lease on the local stack: the kernel reports when the last user has ended, in whatever way.

Every user holds a shared lock on one file. A service waits in a thread for the exclusive lock, which it gets when no
user is left, even after a kill -9; then it stops. It keeps the lock until it has ended, so a new user waits and then
starts a fresh stack.
"""

from __future__ import annotations

import fcntl
import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path


class Lease:
    """A lock on a file, such as a user's share in the local stack, held until it is closed or the process ends.

    Processes that an agent forks do not inherit it, because they may outlive this process.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _open.add(self)

    def take(self) -> None:
        """Take the share; wait while an unused stack is stopping."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def take_alone(self) -> int:
        """Take the lock for this process alone, waiting for others; return its descriptor.

        A process started with the descriptor holds the lock too.
        """
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        return self._fd

    def is_only(self) -> bool:
        """Return whether no other process holds a share; this process's share must be held, and is held again
        afterwards."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_SH)
        return True

    @property
    def is_closed(self) -> bool:
        """Whether the share is released."""
        return self._fd < 0

    def close(self) -> None:
        """Release the share."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_open: weakref.WeakSet[Lease] = weakref.WeakSet()


def _close_in_child() -> None:
    for lease in list(_open):
        lease.close()


os.register_at_fork(after_in_child=_close_in_child)


def watch_lease(path: Path, loop: asyncio.AbstractEventLoop, on_released: Callable[[], None]) -> None:
    """Call `on_released` in the loop once no process holds a share of the lease.

    Args:
        path: The lease's file.
        loop: The event loop for the call.
        on_released: Called once; this process keeps the lease until it ends.
    """

    def wait() -> None:
        # Not closed on purpose: the next command waits until this process is gone.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            loop.call_soon_threadsafe(on_released)
        except RuntimeError:
            os.close(fd)  # the loop has ended before: the process is on its way out

    threading.Thread(target=wait, name="lease", daemon=True).start()
