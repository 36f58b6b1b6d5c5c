"""Ends what a test process has started once that process is gone, however it ended: by SIGKILL, say.

Every process inherits a mark in its environment. A guard, which has none, waits for the end of the test process and
then kills whatever still carries the mark. A worker of pytest-xdist marks its own processes anew and carries the mark
of the process that started it, whose end thus ends the worker, too.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path

MARK = "ASSAY_TESTS"
"""The variable of the environment that names the test process by which a process was started."""
_PROC = Path("/proc")
_ROUNDS = 20  # a process may start another one while it is being killed


def guard_processes() -> subprocess.Popen[bytes] | None:
    """Mark everything that this process starts from now on; return its guard, None where the system has no pidfd."""
    if not hasattr(os, "pidfd_open"):
        return None
    mark = uuid.uuid4().hex
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), mark]
    guard = subprocess.Popen(command, env=unmarked_environment(), start_new_session=True)
    os.environ[MARK] = mark
    return guard


def unmarked_environment() -> dict[str, str]:
    """Return the environment of a process that tidies up after this one and ends by itself."""
    return {name: value for name, value in os.environ.items() if name != MARK}


def marked_processes(mark: str) -> list[int]:
    """Return the ids of the processes that were started with a mark."""
    return [int(folder.name) for folder in _PROC.iterdir() if folder.name.isdigit() and _carries(folder, mark)]


def _carries(folder: Path, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0")
    except OSError:
        return False  # it has ended, or belongs to another user


def _kill_after(guarded: int, mark: str) -> None:
    with suppress(ProcessLookupError):  # it ended before this process had begun
        ended = os.pidfd_open(guarded)
        select.select([ended], [], [])
    for _ in range(_ROUNDS):
        left = marked_processes(mark)
        if not left:
            return
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _kill_after(int(sys.argv[1]), sys.argv[2])
