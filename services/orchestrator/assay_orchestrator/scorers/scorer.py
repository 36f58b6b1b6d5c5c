"""One scorer process as the orchestrator sees it: started, called, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from assay.process.logs import log_settings
from assay_orchestrator.scorers.jobs import HEADER, MAX_REPLY_BYTES, READY, result_of

if TYPE_CHECKING:
    from assay_orchestrator.settings import ScoringLimits

_START_TIMEOUT_S = 60.0
_EXIT_TIMEOUT_S = 5.0
_LEAST_WAIT_S = 60.0
_WAIT_FACTOR = 20
_THREADED_BYTES = 64 * 1024
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "PYTHONHOME",
                   "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")  # fmt: skip


class ScorerDiedError(Exception):
    """The process ended, or was ended, without a result; `failure` is a stable word for it."""

    def __init__(self, failure: str) -> None:
        super().__init__(failure)
        self.failure = failure


class Scorer:
    """A process that does one job at a time.

    Args:
        process: The process.
        reader: Its replies.
        writer: Its jobs.
        limits: The limits of a job.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limits: ScoringLimits,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self.is_last = False
        """Whether the process ends after its last result."""

    @classmethod
    async def start(cls, limits: ScoringLimits) -> Scorer:
        """Return a scorer that has imported its modules.

        Raises:
            ScorerDiedError: It cannot be started.
        """
        try:
            process, ours = _spawn(limits)
        except OSError:
            raise ScorerDiedError("scoring_unavailable") from None
        ours.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        scorer = cls(process, reader, writer, limits)
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                if await scorer._read() != READY:
                    raise ScorerDiedError("scoring_unavailable")
        except (TimeoutError, ScorerDiedError):
            await scorer.aclose()
            raise ScorerDiedError("scoring_unavailable") from None
        except BaseException:
            await asyncio.shield(scorer.aclose())
            raise
        return scorer

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def do(self, payload: bytes) -> tuple[Any, str]:
        """Return a job's result and an empty word, or None and a stable word for why there is no result.

        Raises:
            ScorerDiedError: The process ended and must be closed.
        """
        # The kernel limits a job's processor time. This timeout is for a process that hangs without using any.
        wait_s = max(_LEAST_WAIT_S, _WAIT_FACTOR * self._limits.timeout_s)
        try:
            async with asyncio.timeout(wait_s):
                self._writer.write(HEADER.pack(len(payload)))
                self._writer.write(payload)
                await self._writer.drain()
                reply = await self._read()
        except TimeoutError:
            raise ScorerDiedError("scoring_timeout") from None
        except OSError:
            raise await self._death() from None
        try:
            if len(reply) > _THREADED_BYTES:
                result, failure, self.is_last = await asyncio.to_thread(result_of, reply)
            else:
                result, failure, self.is_last = result_of(reply)
        except (ValueError, RecursionError):
            raise ScorerDiedError("scoring_crashed") from None
        return result, failure

    async def aclose(self) -> None:
        """End the process and wait until it has ended."""
        self._writer.close()
        if self._process.poll() is None:
            self._process.kill()
        await asyncio.to_thread(self._process.wait)
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _read(self) -> bytes:
        try:
            (size,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            if size > MAX_REPLY_BYTES:
                raise ScorerDiedError("scoring_crashed")
            return await self._reader.readexactly(size)
        except asyncio.IncompleteReadError:
            raise await self._death() from None

    async def _death(self) -> ScorerDiedError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, _EXIT_TIMEOUT_S)
        timed_out = self._process.returncode == -signal.SIGPROF
        return ScorerDiedError("scoring_timeout" if timed_out else "scoring_crashed")


def _spawn(limits: ScoringLimits) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the process, from the loop's own thread: a scorer dies with the thread that started it."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-P", "-m", "assay_orchestrator.scorers.worker"]
    command += [str(os.getpid()), repr(limits.timeout_s), str(limits.memory_mib), *astuple(log_settings())]
    with theirs:
        try:
            return subprocess.Popen(command, stdin=theirs.fileno(), env=_environment()), ours  # noqa: S603 - our own
        except OSError:
            ours.close()
            raise


def _environment() -> dict[str, str]:
    """Return the environment of a scorer: no key, no password, one thread for arithmetic."""
    variables = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**variables, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
