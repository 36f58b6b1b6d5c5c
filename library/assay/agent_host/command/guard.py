"""No process outlives its client: a small process notices the client's end, even by SIGKILL, and kills what is left."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

_PROGRAM = Path(__file__).with_name("guard_process.py")


class GroupGuard:
    """Kills process groups when this process dies. The guard's own process runs while there was one to watch."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        """Kill a process group should this process die from now on."""
        if self._process is None:
            # In a session of its own: a signal to the client's group is none to the guard.
            self._process = subprocess.Popen(  # noqa: S603 - a file of this package
                [sys.executable, "-I", "-S", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._tell(f"+{group}\n")

    def release(self, group: int) -> None:
        """Leave a process group alone, as it has ended."""
        self._tell(f"-{group}\n")

    async def aclose(self) -> None:
        """End the guard's process; a further group starts another one."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            await asyncio.to_thread(process.wait)

    def _tell(self, line: str) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):  # a guard that a person has killed is missed only where this process dies
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
