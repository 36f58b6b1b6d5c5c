"""Tables in PostgreSQL that running orchestrators of an older version use."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict
from tests.integration.orchestrator.jobs import Work
from tests.waiting import until

from assay.errors import StorageError
from assay.storage import revisions
from assay.storage.postgres import PostgresDatabase
from assay_orchestrator.engine.queue import QueueDispatcher
from assay_orchestrator.store.revisions import HEAD_REVISION, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDER = f"{int(HEAD_REVISION) - 1:04}"


@pytest.fixture
def engine(postgres_url: str) -> Iterator[sa.Engine]:
    """Return a plain engine for a database that the version before this one made."""
    made = sa.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(postgres_url), poolclass=sa.NullPool
    )
    with made.connect() as connection:
        revisions.upgrade(connection, TABLES, OLDER)
    yield made
    made.dispose()


def revision_of(engine: sa.Engine) -> str | None:
    """Return the revision of the tables."""
    with engine.connect() as connection:
        return revisions.read_revision(connection, TABLES)


@pytest.mark.parametrize("works", [True, False], ids=["worker", "api"])
async def test_tables_in_use_are_not_changed(engine: sa.Engine, postgres_url: str, works: bool) -> None:
    """While an orchestrator of an older version runs, this version changes nothing and names it; then it upgrades."""
    parameters = {**conninfo_to_dict(postgres_url), "application_name": "assay-orchestrator host-7 41 c0ffee"}
    queue = QueueDispatcher(parameters, works=works, concurrency=1, dead_after_s=1.0)
    queue.open(Work())
    try:
        await until(lambda: queue._locked)
        with pytest.raises(StorageError) as refusal:
            PostgresDatabase(postgres_url, TABLES)
        assert revision_of(engine) == OLDER
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
    with closing(PostgresDatabase(postgres_url, TABLES)):
        assert revision_of(engine) == HEAD_REVISION
