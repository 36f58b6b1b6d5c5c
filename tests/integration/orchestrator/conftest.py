"""An orchestrator in this process behind the real wire, over a real database."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from assay.client import Client
from assay.results import AgentSettings, MetricSettings, RunSettings
from assay.rpc.server import RpcServer
from assay.v1 import orchestrator_pb2_grpc
from assay_orchestrator.manager import RunManager
from assay_orchestrator.planning import Planner
from assay_orchestrator.service import RunService
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import Database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

EXACT = {"threshold": 0.85, "collapse_whitespace": False, "strip_punctuation": False, "arabic_fold": False}


@asynccontextmanager
async def _serve(folder: Path, **changes: Any) -> AsyncIterator[Client]:
    settings = Settings(
        listen=f"unix:{folder}/o.sock", database=folder / "assay.db", http_hosts=("127.0.0.1",), **changes
    )
    server = RpcServer()
    database = Database(settings.database)
    manager = RunManager(database, settings, Planner(settings, None))
    service = RunService(database, manager, settings, server.stopping)
    server.add(
        "assay.v1.RunService", lambda grpc: orchestrator_pb2_grpc.add_RunServiceServicer_to_server(service, grpc)
    )
    await server.start(settings.listen)
    await manager.recover()
    server.set_serving(True)
    try:
        async with Client(settings.listen, patience_s=2.0) as client:
            yield client
    finally:
        server.begin_stopping()
        await manager.aclose()
        await server.stop(0)
        database.close()


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Client]]:
    """Return a function that serves an orchestrator over the same database each time."""
    return lambda **changes: _serve(tmp_path, **changes)


@pytest.fixture
def settings_of() -> Callable[..., RunSettings]:
    """Return a function that makes settings of a run with exact match."""

    def make(adapter: str = "replay", target: str = "", **agent: Any) -> RunSettings:
        return RunSettings(
            name="test",
            agent=AgentSettings(adapter, target, **agent),
            metrics=(MetricSettings("exact_match", EXACT), MetricSettings("latency", {"threshold": None})),
            gates=("pass_rate >= 0.5",),
        )

    return make
