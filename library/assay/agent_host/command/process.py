"""A process of a command and its children: a process group that ends as a whole."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import TYPE_CHECKING, Protocol, cast

from assay.text.unsafe_text import clean

if TYPE_CHECKING:
    from assay.agent_host.command.guard import GroupGuard

_GRACE_S = 1.0
_KILL_S = 5.0
_PIPES_S = 1.0
STOP_S = _GRACE_S + _KILL_S + _PIPES_S
"""How long stopping a process takes at most, in seconds."""
_STDERR_BYTES = 16 * 1024
_STDERR_LINES = 20
_NAMES = {0: "stdin", 1: "stdout"}


class ProcessListener(Protocol):
    """Receives a process's output, then its end, then nothing more."""

    def take_output(self, data: bytes) -> None:
        """Receive bytes of its standard output."""

    def take_closed(self, name: str) -> None:
        """Called when the process has closed "stdin" or "stdout" while it keeps running."""

    def take_end(self) -> None:
        """Receive that the process has ended, with all its output delivered."""


class AgentProcess(asyncio.SubprocessProtocol):
    """A process that leads its own group; its standard error is always read, and the last part kept.

    Args:
        listener: Receives its output and its end.
        guard: Kills the group if this process dies first.
    """

    def __init__(self, listener: ProcessListener, guard: GroupGuard) -> None:
        self._listener = listener
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.SubprocessTransport | None = None
        self._pid = 0
        self._stderr = bytearray()
        self._is_cut = False
        self._is_stopping = False
        self._timers: list[asyncio.TimerHandle] = []
        self._has_ended = asyncio.Event()
        self.status: int | None = None

    def write(self, data: bytes) -> None:
        """Write to its standard input; unread data waits in memory."""
        if (pipe := self._stdin()) is not None:
            pipe.write(data)

    def close_stdin(self) -> None:
        """Close its input after the written data: a program that reads to the end then finishes."""
        self._is_stopping = True
        if (pipe := self._stdin()) is not None:
            pipe.close()

    async def wait(self, timeout_s: float) -> bool:
        """Wait until it has ended; return whether it did within the time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._has_ended.wait()
        return self._has_ended.is_set()

    async def stop(self) -> None:
        """Send SIGTERM to the whole group; kill what still runs a second later."""
        self._is_stopping = True
        for number, time_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _KILL_S)):
            if self._has_ended.is_set():
                return
            self._signal_group(number)
            await self.wait(time_s)
        self._finish()

    @property
    def last_lines(self) -> str:
        """The last lines of its standard error, without control characters; at most 20 lines and 16 KiB."""
        text = clean(self._stderr.decode("utf-8", "replace").replace("\r\n", "\n"), keep_lines=True)
        lines = text.rstrip().split("\n")
        return "\n".join(lines[1 if self._is_cut and len(lines) > 1 else 0 :][-_STDERR_LINES:])

    @property
    def ending(self) -> str:
        """How the process ended: "with exit status 3", "by SIGSEGV"."""
        if self.status is not None and self.status < 0:
            with contextlib.suppress(ValueError):
                return f"by {signal.Signals(-self.status).name}"
        return f"with exit status {self.status}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Record the transport; called by the event loop once the process runs."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._pid = self._transport.get_pid()
        self._guard.watch(self._pid)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Pass on output; called by the event loop."""
        if fd == 1:
            if not self._has_ended.is_set():
                self._listener.take_output(data)
            return
        self._stderr += data
        if len(self._stderr) > _STDERR_BYTES:
            self._is_cut = True
            del self._stderr[:-_STDERR_BYTES]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note a closed pipe; called by the event loop."""
        if fd in _NAMES and self.status is None and not self._is_stopping:
            # The pipes of an ending process are closed before its end is known.
            self._timers.append(self._loop.call_later(_PIPES_S, self._closed, _NAMES[fd]))

    def process_exited(self) -> None:
        """End the rest of the group; called by the event loop."""
        assert self._transport is not None, "a process runs before it ends"
        self.status = self._transport.get_returncode()
        self._signal_group(signal.SIGKILL)  # its child processes end with it
        self._guard.release(self._pid)
        # A process that has left the group may hold the pipes.
        self._timers.append(self._loop.call_later(_PIPES_S, self._finish))

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end; called by the event loop once the process has ended and its pipes are closed."""
        self._finish()

    def _closed(self, name: str) -> None:
        if self.status is None and not self._is_stopping:
            self._listener.take_closed(name)

    def _finish(self) -> None:
        if self._has_ended.is_set():
            return
        for timer in self._timers:
            timer.cancel()
        self._listener.take_end()
        self._has_ended.set()
        if self._transport is not None:
            self._transport.close()

    def _signal_group(self, number: int) -> None:
        if self._pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)

    def _stdin(self) -> asyncio.WriteTransport | None:
        if self._transport is None or self._has_ended.is_set():
            return None
        return cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))
