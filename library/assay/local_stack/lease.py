"""A lease on the local stack: the kernel reports when the last user has ended, in whatever way.

Every user holds a shared lock on one file. A service waits in a thread for the exclusive lock, which it gets when no
user is left, even after a kill -9; then it stops, or waits idle for the next user first. Once it stops, it keeps the
lock until it has ended, so a new user waits and then starts a fresh stack.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import SetupError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_IDLE_CHECK_S = 1.0
_MEMORY = Path("/proc/meminfo")
_LEAST_FREE_MEMORY = 0.1
"""An idle service stops while less of the machine's memory is available, as a share."""


class Lease:
    """A lock on a file, such as a user's share in the local stack, held until it is closed or the process ends.

    Processes that an agent forks do not inherit it, because they may outlive this process.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:  # such as a state directory that another command has just removed
            raise SetupError(f"{path} cannot be opened ({error.strerror}): call this again") from None
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
        """Release the share; services that wait idle count from now."""
        if self._fd >= 0:
            os.utime(self._fd)
            os.close(self._fd)
            self._fd = -1


_open: weakref.WeakSet[Lease] = weakref.WeakSet()


def _close_in_child() -> None:
    for lease in list(_open):
        lease.close()


os.register_at_fork(after_in_child=_close_in_child)


def is_locked(path: Path, kind: int) -> bool:
    """Return whether another process's lock conflicts with a lock of this kind."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def is_leased(path: Path) -> bool:
    """Return whether another process holds a share; a service that stops holds the lock alone."""
    return not is_locked(path, fcntl.LOCK_SH) and is_locked(path, fcntl.LOCK_EX)


def watch_lease(
    path: Path,
    loop: asyncio.AbstractEventLoop,
    on_released: Callable[[], None],
    *,
    idle_s: float = 0.0,
    may_idle: Callable[[], bool] = lambda: True,
) -> None:
    """Call `on_released` in the loop once no process holds a share of the lease, and none has for a while.

    Args:
        path: The lease's file.
        loop: The event loop for the call.
        on_released: Called once; this process keeps the lease until it ends.
        idle_s: How long the lease may be unused before the call, in seconds. While the machine is short of memory, it
            is not waited for.
        may_idle: Whether the time may be waited for, asked in another thread when the last share is released.
    """

    def wait() -> None:
        # Not closed on purpose: the next command waits until this process is gone.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        while idle_s > 0 and may_idle() and not _is_unused(fd, idle_s):
            fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            loop.call_soon_threadsafe(on_released)
        except RuntimeError:
            os.close(fd)  # the loop has ended before: the process is on its way out

    threading.Thread(target=wait, name="lease", daemon=True).start()


def _is_unused(fd: int, idle_s: float) -> bool:
    """Release the lock for a while; return whether it was taken again because no user came in the meantime."""
    end = time.time() + idle_s
    fcntl.flock(fd, fcntl.LOCK_UN)
    while (left := end - time.time()) > 0 and not _is_memory_short():
        time.sleep(min(left, _IDLE_CHECK_S))
        status = os.fstat(fd)
        if not status.st_nlink:  # the state directory is gone
            break
        end = min(max(end, status.st_mtime + idle_s), time.time() + idle_s)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_memory_short() -> bool:
    """Return whether little of the machine's memory is available; False where that is not known."""
    try:
        with _MEMORY.open("rb") as file:
            amounts = {name: int(rest.split()[0]) for name, _, rest in (line.partition(b":") for line in file)}
        return amounts[b"MemAvailable"] < _LEAST_FREE_MEMORY * amounts[b"MemTotal"]
    except (OSError, ValueError, KeyError, IndexError):
        return False
