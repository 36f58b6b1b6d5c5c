"""An orchestrator in this process behind the real wire, over a real database."""

from __future__ import annotations

import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import psycopg
import pytest
import sqlalchemy as sa

from assay.client.client import Client
from assay.model.run import AgentSpec, MetricSpec, RunSpec
from assay.model.scope import LOCAL
from assay.rpc.server import RpcServer
from assay.storage import revisions
from assay_orchestrator.engine.dispatcher_factory import open_dispatcher
from assay_orchestrator.pipeline.storage_pauses import STORAGE_BACKOFF, Backoff
from assay_orchestrator.runs.manager import RunManager
from assay_orchestrator.runs.planner import Planner
from assay_orchestrator.service.registration import registrations
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import open_database
from assay_orchestrator.store.revisions import TABLES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.storage.database import Database

EXACT = {"threshold": 0.85} | dict.fromkeys(
    ("collapse_whitespace", "strip_punctuation", "numbers", "arabic_fold"), False
)


PAUSE_WAIT_S = 60.0


@asynccontextmanager
async def _serve(
    folder: Path,
    *,
    storage_backoff: Backoff = STORAGE_BACKOFF,
    embedder: Any = None,
    before_start: Callable[[str], Awaitable[None]] | None = None,
    **changes: Any,
) -> AsyncIterator[Client]:
    own: dict[str, Any] = {"listen": f"unix:{folder}/o.sock", "database": folder / "assay.db"}
    # Runs without a host end with the grace period; the default one would cost each such test five seconds.
    settings = Settings(**{**own, "http_hosts": ("127.0.0.1",), "grace_s": 1.0, **changes})
    server = RpcServer(settings.server_options)
    database = open_database(settings)
    planner, dispatcher = Planner(settings, embedder), open_dispatcher(settings, database)
    # On a busy machine, questions in flight may take longer to end than a pause waits by default.
    manager = RunManager(
        database, settings, planner, dispatcher, storage_backoff=storage_backoff, pause_wait_s=PAUSE_WAIT_S
    )
    # As in the real process, calls wait until the manager has started.
    for name, register in registrations(database, manager, settings, server.stopping, LOCAL).items():
        server.add(name)
        server.complete(name, register)
    address = await server.start(settings.listen)
    if before_start is not None:
        await before_start(address)
    await manager.start()
    server.set_serving(True)
    try:
        async with Client(address, patience_s=60.0) as client:
            yield client
    finally:
        server.begin_stopping()
        await manager.aclose()
        await server.stop(0)
        database.close()


def _of_database(server: str, name: str) -> str:
    parts = urlsplit(server)._replace(path=f"/{name}").geturl()
    return f"{parts}{'&' if '?' in parts else '?'}options={quote('-c search_path=public')}"


@pytest.fixture(scope="session")
def migrated_database(postgres_server: str) -> Iterator[str]:
    """Return the name of a PostgreSQL database with empty tables; a copy is cheaper than a migration."""
    name = f"migrated_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0".encode())
        url = _of_database(postgres_server, name)
        made = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=sa.NullPool)
        with made.connect() as connection:
            revisions.upgrade(connection, TABLES)
        yield name
        admin.execute(f"DROP DATABASE {name}".encode())


@pytest.fixture
def migrated_postgres_url(postgres_server: str, migrated_database: str) -> Iterator[str]:
    """Return the URL of a PostgreSQL database with empty tables that is dropped after the test."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        # Copied as files, half the time: the other strategy writes them to the log, too.
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {migrated_database} STRATEGY file_copy".encode())
        yield _of_database(postgres_server, name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty database, or an empty text for a file; tests that use it run on both.

    A test whose database must have no tables parametrizes this with "sqlite" and "new postgres".
    """
    urls = {"sqlite": None, "postgres": "migrated_postgres_url", "new postgres": "postgres_url"}
    name = urls[request.param]
    return str(request.getfixturevalue(name)) if name else ""


@pytest.fixture
def serve_at() -> Callable[..., AbstractAsyncContextManager[Client]]:
    """Return a function that serves an orchestrator in a folder, with the settings of a test."""
    return _serve


@pytest.fixture
def serve(tmp_path: Path, database_url: str) -> Callable[..., AbstractAsyncContextManager[Client]]:
    """Return a function that serves an orchestrator over the same database each time."""
    return lambda **changes: _serve(tmp_path, **{"database_url": database_url, **changes})


@pytest.fixture
def open_store(tmp_path: Path, database_url: str) -> Callable[[], Database]:
    """Return a function that opens the database of the test; the caller closes it."""
    return lambda: open_database(Settings(database=tmp_path / "assay.db", database_url=database_url))


@pytest.fixture
def engine(tmp_path: Path, database_url: str) -> Iterator[sa.Engine]:
    """Return an engine for the database of the test that bypasses the store."""
    if database_url:
        made = sa.create_engine(
            "postgresql+psycopg://", creator=lambda: psycopg.connect(database_url), poolclass=sa.NullPool
        )
    else:
        made = sa.create_engine(f"sqlite:///{tmp_path}/assay.db", poolclass=sa.NullPool)
    yield made
    made.dispose()


@pytest.fixture
def settings_of() -> Callable[..., RunSpec]:
    """Return a function that builds the settings of a run with exact_match."""

    def make(adapter: str = "replay", target: str = "", **agent: Any) -> RunSpec:
        return RunSpec(
            name="test",
            agent=AgentSpec(adapter, target, **agent),
            metrics=(
                MetricSpec("exact_match", EXACT),
                MetricSpec("latency", {"threshold": None, "exclude_cold": False}),
            ),
            gates=("pass_rate >= 0.5",),
        )

    return make
