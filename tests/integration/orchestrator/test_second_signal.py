"""A process that gets a second signal to stop: it gives up what it would have waited for."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.processes.waiting import until

from assay.client.client import Client
from assay.model.case import Case, Turn
from assay.rpc.channel import wait_for_ready

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.model.run import RunSpec

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def database_url() -> str:
    """Return no PostgreSQL: how a process ends depends on no database."""
    return ""


async def test_a_second_signal_does_not_wait_for_questions_in_flight(
    tmp_path: Path, settings_of: Callable[..., RunSpec]
) -> None:
    """The first lets a question have half of the grace period, an hour here; the second ends the process."""
    asked = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    agent = await asyncio.start_server(endless, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{agent.sockets[0].getsockname()[1]}/"
    settings = settings_of("http", url, options={"response": {"text": "text"}}, timeout_s=3_600.0, retries=0)
    address = f"unix:{tmp_path}/o.sock"
    place = [
        "--listen",
        address,
        "--database",
        str(tmp_path / "assay.db"),
        "--grace-s",
        "7200",
        "--http-hosts",
        "127.0.0.1",
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "assay_orchestrator", *place, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with Client(address) as client:
            await wait_for_ready(client._channel, "assay.v1.RunService", 60)
            dataset = await client.upload_dataset([Case("c", (Turn("q"),))], name="d")
            await client.create_run(settings, dataset.dataset_id)
            await asked.wait()
            health: Any = health_pb2_grpc.HealthStub(client._channel)
            process.send_signal(signal.SIGTERM)
            check = health_pb2.HealthCheckRequest(service="assay.v1.RunService")
            await until(lambda: health.Check(check), lambda found: found.status == NOT_SERVING)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
        agent.close()
