"""The latency of a server's health check: `python -m benchmarks.health_probe ADDRESS SERVICE`.

A separate process, so that the event loop of a benchmark adds no delay. It prints "ready" after a first check, then
sends a check every 10 ms, without waiting for earlier ones, until its stdin is closed. Then it prints the latencies in
milliseconds as one JSON list. A check that fails, or a server that is not serving, ends it with a traceback.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import asynccontextmanager
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from assay.rpc.channel import open_channel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_INTERVAL_S = 0.01
_TIMEOUT_S = 60.0


def main() -> None:
    """Measure until stdin is closed, then print."""
    print(json.dumps(asyncio.run(_measure(*sys.argv[1:]))))


async def _measure(address: str, service: str) -> list[float]:
    latencies_ms: list[float] = []
    async with open_channel(address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)

        async def check() -> None:
            start = time.perf_counter()
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service), timeout=_TIMEOUT_S)
            latencies_ms.append((time.perf_counter() - start) * 1000)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING, "the server is serving"

        await check()
        latencies_ms.clear()
        print("ready", flush=True)
        ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        async with asyncio.TaskGroup() as checks:
            while not ended.done():
                checks.create_task(check())
                await asyncio.sleep(_INTERVAL_S)
    return latencies_ms


@asynccontextmanager
async def probing(address: str, service: str, latencies_ms: list[float]) -> AsyncIterator[None]:
    """Probe a server from another process inside the block; append the latencies to a list.

    Raises:
        RuntimeError: A check failed.
    """
    command = [sys.executable, "-m", "benchmarks.health_probe", address, service]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    try:
        if await process.stdout.readline():
            yield
        printed, _ = await process.communicate(b"")  # closes its stdin
        if process.returncode != 0:
            raise RuntimeError("a health check failed: see the traceback above")
        latencies_ms += json.loads(printed)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


if __name__ == "__main__":
    main()
