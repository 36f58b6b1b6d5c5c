"""Ensures that no process outlives its client: a guard process detects the client's end, even by SIGKILL, and kills
them."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

_PROGRAM = Path(__file__).with_name("guard_process.py")


class GroupGuard:
    """Kills process groups when this process dies. The guard's own process runs while there is a group to watch."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        """Kill a process group if this process dies from now on."""
        if self._process is None:
            # In a session of its own, so that a signal to the client's group does not reach the guard.
            self._process = subprocess.Popen(  # noqa: S603 - a file of this package
                [sys.executable, "-I", "-S", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._tell(f"+{group}\n")

    def release(self, group: int) -> None:
        """Stop watching a process group, which has ended."""
        self._tell(f"-{group}\n")

    async def aclose(self) -> None:
        """End the guard's process; watching another group starts a new one."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            await asyncio.to_thread(process.wait)

    def _tell(self, line: str) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):  # a guard killed by a person is missed only if this process dies
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
