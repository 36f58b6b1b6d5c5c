"""Kills the processes that a test process leaves behind, however it ended, even by SIGKILL.

Every process inherits a mark in its environment. An unmarked guard waits for the test process to end and then kills
every process with that mark. A worker of pytest-xdist sets a mark of its own and carries the mark of the controller,
so the end of the controller ends the workers too.
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
"""The environment variable that identifies the test process that started a process."""
_PROC = Path("/proc")
_ROUNDS = 20  # a process may start another one while it is being killed


def guard_processes() -> subprocess.Popen[bytes] | None:
    """Mark all processes started from now on; return their guard, or None if the system has no pidfd."""
    if not hasattr(os, "pidfd_open"):
        return None
    mark = uuid.uuid4().hex
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), mark]
    guard = subprocess.Popen(command, env=unmarked_environment(), start_new_session=True)
    os.environ[MARK] = mark
    return guard


def unmarked_environment() -> dict[str, str]:
    """Return the environment for a process that cleans up after this one and ends on its own."""
    return {name: value for name, value in os.environ.items() if name != MARK}


def marked_processes(mark: str) -> list[int]:
    """Return the ids of all processes with a mark."""
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
        pids = marked_processes(mark)
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    _kill_after(int(sys.argv[1]), sys.argv[2])
