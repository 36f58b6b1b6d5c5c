"""What clients learn of a database that fails, and what its operator does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from assay.errors import StorageError
from assay.storage.database import Database
from assay.storage.postgres import PostgresDatabase
from assay.storage.postgres_errors import client_sentence
from assay_orchestrator.store.revisions import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.processes.postgres_server import PostgresServer

PLACE = re.compile(r"127\.0\.0\.1|:\d{4,5}|/[\w-]+/|\.db|schema \"?test_")


async def test_clients_learn_neither_address_nor_file(
    open_store: Callable[[], Database], caplog: pytest.LogCaptureFixture
) -> None:
    """The error of a statement that fails is a sentence without the place; the log has place and statement, once."""
    store = open_store()
    try:
        for _ in range(3):
            with pytest.raises(StorageError) as caught:
                await store.read(lambda c: c.exec_driver_sql("SELECT * FROM nowhere"))
            assert str(caught.value).startswith("the orchestrator's database failed")
            assert not PLACE.search(str(caught.value))
    finally:
        store.close()
    lines = [record.getMessage() for record in caplog.records if record.name == "assay.storage.failures"]
    assert len(lines) == 1
    assert PLACE.search(lines[0])
    assert "nowhere" in lines[0]


async def test_clients_learn_no_address_of_a_server_that_went_away(
    killable_postgres: PostgresServer, tmp_path: Path, serve_at: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The error of a call names neither host nor port of the database; the log names both."""
    async with serve_at(tmp_path, database_url=killable_postgres.url, database_patience_s=0.0) as client:
        killable_postgres.kill()
        with pytest.raises(StorageError) as caught:
            await client.get_run("r")
    assert not PLACE.search(str(caught.value))
    assert f"127.0.0.1:{killable_postgres.port}" in caplog.text


def test_an_operator_learns_the_host_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A URL without a host dials what PGHOST and PGPORT say: the log names that place, not this machine."""
    monkeypatch.setenv("PGHOST", "127.0.0.1")
    monkeypatch.setenv("PGPORT", "1")  # where no server listens
    with pytest.raises(StorageError) as caught:
        PostgresDatabase("postgresql:///assay", TABLES, patience_s=0.0)
    assert "the PostgreSQL database assay at 127.0.0.1:1" in f"{caught.value}{caplog.text}"


@pytest.mark.parametrize("state", ["53100", "57014", "25006", "42501", "28P01", "3D000", "57P03", "08006", "22003"])
def test_a_client_learns_the_remedy_and_not_what_the_driver_said(state: str) -> None:
    """The sentence names the orchestrator's database and none of the address and user in the driver's words."""
    problem = psycopg.errors.lookup(state)('connection to server at "10.0.0.7", port 5432 failed: user "assay"')
    text = client_sentence("the orchestrator's database", problem)
    assert text.startswith("the orchestrator's database")
    assert "10.0.0.7" not in text
    assert 'user "assay"' not in text
