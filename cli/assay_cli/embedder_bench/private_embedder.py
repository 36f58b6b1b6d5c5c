"""An embedder process that serves a single measurement."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import SetupError
from assay.rpc.channel import open_channel, wait_for_ready

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import grpc.aio

_SERVICE = "assay.embedder.v1.EmbedderService"
_LOAD_TIMEOUT_S = 3600.0
_STOP_TIMEOUT_S = 15.0
_LOOK_S = 0.01
_NOT_PASSED_ON = {
    "PYTHONDONTWRITEBYTECODE",
    *(f"ASSAY_EMBEDDER_{name}" for name in ("ALLOW_MODELS", "CACHE_DIR", "EXIT_WITH_LOCK", "HEALTH_LISTEN", "MODEL")),
    *(f"ASSAY_EMBEDDER_TLS_{name}" for name in ("CERT", "KEY", "CLIENT_CA")),
}


@dataclass(frozen=True, slots=True)
class PrivateEmbedder:
    """A running embedder.

    Args:
        channel: Channel to the process.
        ready_s: Seconds from the start of the process until it was ready.
        pid: Process id.
    """

    channel: grpc.aio.Channel
    ready_s: float
    pid: int

    @property
    def memory_mib(self) -> float | None:
        """Resident memory of the process in MiB; None where the system does not report it."""
        try:
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
            kib = next(line.split()[1] for line in lines if line.startswith("VmRSS:"))
        except (OSError, StopIteration):
            command = ["ps", "-o", "rss=", "-p", str(self.pid)]
            try:
                kib = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - as written
            except (OSError, subprocess.CalledProcessError):
                return None
        return int(kib) / 1024


@asynccontextmanager
async def private_embedder(model: str, precision: str) -> AsyncIterator[PrivateEmbedder]:
    """Start an embedder with one model, and stop it on exit.

    Args:
        model: A name or a folder.
        precision: Empty for the embedder's own default.

    Raises:
        SetupError: The embedder cannot be started or cannot load the model; the message quotes its output.
    """
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as name:
        address, log = f"unix:{name}/embedder.sock", Path(name, "log")
        command = [sys.executable, "-P", "-m", "assay_embedder", "--listen", address, "--model", model]
        command += ["--precision", precision] if precision else []
        start = time.perf_counter()
        process = _spawn(command, log)
        try:
            async with open_channel(address) as channel:
                await _until_ready(channel, process, Path(name, "embedder.sock"), log)
                yield PrivateEmbedder(channel, time.perf_counter() - start, process.pid)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _spawn(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    # As on users' machines, modules are compiled. Settings come from the command alone, and the disk cache is empty.
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
    with log.open("wb") as output:
        return subprocess.Popen(  # noqa: S603 - our own module, no shell
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )


async def _until_ready(channel: grpc.aio.Channel, process: subprocess.Popen[bytes], socket: Path, log: Path) -> None:
    async def ready() -> None:
        # gRPC retries a refused connection only after a growing backoff, so connect once the socket exists.
        while not socket.exists():  # noqa: ASYNC110, ASYNC240 - another process creates it, and the check is quick
            await asyncio.sleep(_LOOK_S)
        await wait_for_ready(channel, _SERVICE, _LOAD_TIMEOUT_S)

    waiting = asyncio.ensure_future(ready())
    try:
        while not waiting.done():
            if process.poll() is not None:
                raise SetupError(_said(log), reason="SERVICE_ENDED")
            await asyncio.wait({waiting}, timeout=_LOOK_S)
        await waiting
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


def _said(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    own = [line.removeprefix("assay embedder: ") for line in lines if line.startswith("assay embedder: ")]
    return "the embedder did not start: " + (" ".join(own) or "\n".join(lines[-12:]))
