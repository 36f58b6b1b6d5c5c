"""Tables in PostgreSQL that are upgraded: not while an older version uses them, and by one process alone."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict
from tests.integration.orchestrator.jobs import Work
from tests.integration.orchestrator.later_tables import NEXT_REVISION, later_tables
from tests.support.processes.waiting import until

from assay.errors import StorageError
from assay.storage import revisions
from assay.storage.postgres import PostgresDatabase
from assay_orchestrator.engine.queue import QueueDispatcher
from assay_orchestrator.store import database, migrate
from assay_orchestrator.store.revisions import HEAD_REVISION, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from assay.storage.tables import ServiceTables


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServiceTables:
    """Return the tables of a later version, which `assay admin migrate` takes for its own."""
    tables = later_tables(tmp_path)
    monkeypatch.setattr(database, "TABLES", tables)
    monkeypatch.setattr(migrate, "TABLES", tables)
    return tables


@pytest.fixture
def engine(postgres_url: str) -> Iterator[sa.Engine]:
    """Return a plain engine for a database that this version made."""
    made = sa.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(postgres_url), poolclass=sa.NullPool
    )
    with made.connect() as connection:
        revisions.upgrade(connection, TABLES)
    yield made
    made.dispose()


def revision_of(engine: sa.Engine) -> str | None:
    """Return the revision of the tables."""
    with engine.connect() as connection:
        return revisions.read_revision(connection, TABLES)


@pytest.mark.parametrize("works", [True, False], ids=["worker", "api"])
async def test_tables_in_use_are_not_changed(
    engine: sa.Engine, postgres_url: str, later: ServiceTables, works: bool
) -> None:
    """While an orchestrator of an older version runs, this version changes nothing and names it; then it upgrades."""
    parameters = {**conninfo_to_dict(postgres_url), "application_name": "assay-orchestrator host-7 41 c0ffee"}
    queue = QueueDispatcher(parameters, works=works, concurrency=1, dead_after_s=1.0)
    queue.open(Work())
    try:
        await until(lambda: queue._locked)
        with pytest.raises(StorageError) as refusal:
            PostgresDatabase(postgres_url, later)
        assert revision_of(engine) == HEAD_REVISION
    finally:
        await queue.aclose()
    assert refusal.value.message.endswith(
        "is used by processes of an older version (assay-orchestrator host-7 41 c0ffee): stop them, then start this "
        "version, which changes the tables"
    )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # Connections that are closed are the server's for a moment longer.
        left = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '%%c0ffee'"
        await until(lambda: not connection.exec_driver_sql(left).scalar())
    with closing(PostgresDatabase(postgres_url, later)):
        assert revision_of(engine) == NEXT_REVISION


async def test_a_process_that_must_not_migrate_waits_for_the_one_that_does(
    engine: sa.Engine, postgres_url: str, later: ServiceTables
) -> None:
    """`--migrations wait` opens the tables once `assay admin migrate` has changed them, and changes nothing itself."""
    opening = asyncio.create_task(asyncio.to_thread(PostgresDatabase, postgres_url, later, migrates=False))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        # It has looked at the tables: its connection is there, and idle.
        seen = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'assay-orchestrator%%'"
        await until(lambda: connection.exec_driver_sql(seen).scalar())
    assert revision_of(engine) == HEAD_REVISION
    assert await asyncio.to_thread(migrate.main, [], {"ASSAY_DATABASE_URL": postgres_url}) == 0
    with closing(await opening):
        assert revision_of(engine) == NEXT_REVISION


def test_migrations_that_never_come_are_a_sentence(engine: sa.Engine, postgres_url: str, later: ServiceTables) -> None:
    """It names both schemas and the command that helps."""
    with pytest.raises(StorageError) as refusal:
        PostgresDatabase(postgres_url, later, patience_s=0.0, migrates=False)
    lacks = f"lacks migrations (schema {HEAD_REVISION}, this version needs {NEXT_REVISION})"
    assert refusal.value.message.endswith(f"{lacks}: run `assay admin migrate` of this version")
    assert revision_of(engine) == HEAD_REVISION


def test_migrations_are_checked_and_applied_by_a_command(
    engine: sa.Engine, postgres_url: str, later: ServiceTables, capsys: pytest.CaptureFixture[str]
) -> None:
    """--check says what is missing and changes nothing; afterwards there is nothing to do, however often it is asked.

    What the environment says of the orchestrators does not matter to it.
    """
    environment = {"ASSAY_DATABASE_URL": postgres_url, "ASSAY_ORCHESTRATOR_MIGRATIONS": "wait"}
    environment |= {"ASSAY_ORCHESTRATOR_LISTEN": "0.0.0.0:7070"}
    assert migrate.main(["--check"], environment) == 1
    assert f"schema {HEAD_REVISION}, this version needs {NEXT_REVISION}" in capsys.readouterr().err
    assert revision_of(engine) == HEAD_REVISION
    assert [migrate.main(options, environment) for options in ([], [], ["--check"])] == [0, 0, 0]
    assert capsys.readouterr().out == f"the tables are up to date: schema {NEXT_REVISION}\n" * 3
    assert revision_of(engine) == NEXT_REVISION


def test_a_check_that_cannot_be_made_is_told_from_missing_migrations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file has no check, and an unreachable server is no lack of migrations: exit statuses 2 and 3."""
    assert migrate.main(["--check", "--database", str(tmp_path / "a.db")], {}) == 2
    assert "--check: needs PostgreSQL" in capsys.readouterr().err
    assert migrate.main(["--check", "--database-url", "postgresql://u@127.0.0.1:1/assay"], {}) == 3
    assert "cannot be reached" in capsys.readouterr().err
