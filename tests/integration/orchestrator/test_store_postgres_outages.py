"""A PostgreSQL that goes away: work in flight is done once, waiting can be given up, and errors say what to do."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict
from tests.support.processes.waiting import wait_until

from assay.errors import StorageError
from assay.model.scope import LOCAL
from assay.storage.database import Database
from assay.storage.postgres import PostgresDatabase
from assay.storage.postgres_errors import client_sentence
from assay_orchestrator.store.revisions import TABLES
from assay_orchestrator.store.runs import datasets, runs

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tests.support.processes.postgres_server import PostgresServer


FOR_EVER_S = 1e6
_COMMIT = b"COMMIT\0"


class CuttingProxy:
    """Stands between the store and its server; once armed, it cuts the connection of the next commit.

    Args:
        url: Of the server.
        swallow: "question" to cut before the server has got the commit, "answer" after it has answered.
    """

    def __init__(self, url: str, swallow: str) -> None:
        given = conninfo_to_dict(url)
        self._server = (str(given["host"]), int(given["port"] or 5432))
        self._swallow = swallow
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.armed = threading.Event()
        self.parameters = {**given, "host": "127.0.0.1", "port": self._listener.getsockname()[1]}
        self.url = psycopg.conninfo.make_conninfo("", **self.parameters, sslmode="disable", gssencmode="disable")

    def __enter__(self) -> CuttingProxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        cut = threading.Event()
        with client, socket.create_connection(self._server) as server:
            back = threading.Thread(target=self._back, args=(server, client, cut), daemon=True)
            back.start()
            with suppress(OSError):
                while sent := client.recv(65536):
                    if self.armed.is_set() and sent.endswith(_COMMIT):
                        self.armed.clear()
                        cut.set()
                        if self._swallow == "question":
                            break
                    server.sendall(sent)
            with suppress(OSError):
                server.shutdown(socket.SHUT_WR)
            back.join()

    def _back(self, server: socket.socket, client: socket.socket, cut: threading.Event) -> None:
        with suppress(OSError):
            while (got := server.recv(65536)) and not cut.is_set():
                client.sendall(got)
            client.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(("swallow", "times"), [("question", 2), ("answer", 1)])
async def test_a_commit_without_an_answer_is_looked_up(postgres_url: str, swallow: str, times: int) -> None:
    """The connection breaks in a commit: done again where it did not take place, left alone where it did."""
    tried = 0

    def change(connection: sa.Connection) -> str:
        nonlocal tried
        tried += 1
        connection.exec_driver_sql("INSERT INTO datasets VALUES ('d', 'u', 1, 't', 'local')")
        return f"of attempt {tried}"

    with CuttingProxy(postgres_url, swallow) as proxy, closing(PostgresDatabase(proxy.url, TABLES)) as database:
        proxy.armed.set()
        assert await database.write(change) == f"of attempt {times}"
        assert not proxy.armed.is_set()
        assert await database.read(lambda c: datasets.get_dataset(c, LOCAL.team, "d")) is not None
    assert tried == times


async def test_a_broken_connection_is_replaced(postgres_url: str) -> None:
    """What was under way on a connection that broke is done again, once; idle connections that end do not matter."""
    tried = 0

    def breaking(connection: sa.Connection) -> int | None:
        nonlocal tried
        tried += 1
        datasets.add_cases(connection, "u", 0, [("c", "{}")])
        if tried == 1:
            connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
        return connection.exec_driver_sql("SELECT count(*) FROM dataset_cases").scalar()

    with (
        closing(PostgresDatabase(postgres_url, TABLES)) as store,
        psycopg.connect(postgres_url, autocommit=True) as admin,
    ):
        assert await store.write(breaking) == 1
        name = await store.read(lambda c: c.exec_driver_sql("SHOW application_name").scalar())
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s", (name,)
        )
        assert await store.read(runs.list_unfinished) == []
        await store.write(datasets.discard_unfinished_uploads)
    assert tried == 2


async def test_an_outage_is_waited_out(killable_postgres: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Reads and writes that come while the server is away succeed when it is back; the log says both."""
    with closing(PostgresDatabase(killable_postgres.url, TABLES, patience_s=FOR_EVER_S)) as store:
        killable_postgres.kill()
        reading = asyncio.ensure_future(store.read(runs.list_unfinished))
        writing = asyncio.ensure_future(store.write(lambda c: datasets.add_cases(c, "u", 0, [("c", "{}")])))
        await asyncio.to_thread(_wait_for, caplog, "retrying for")
        assert not reading.done()
        assert not writing.done()
        killable_postgres.start()
        await reading
        await writing
    said = [record.getMessage().partition(": ")[0] for record in caplog.records]
    assert said[1:] == ["database reachable again"]


async def test_patience_ends(killable_postgres: Any) -> None:
    """When the server stays away, everything fails with a sentence, and works again as soon as it is back."""
    with closing(PostgresDatabase(killable_postgres.url, TABLES, patience_s=0)) as store:
        killable_postgres.kill()
        for _ in range(2):
            with pytest.raises(StorageError, match="cannot be reached: runs resume by themselves"):
                await store.write(datasets.discard_unfinished_uploads)
        killable_postgres.start()
        await store.write(datasets.discard_unfinished_uploads)


async def test_nobody_need_wait_for_an_outage_to_end(killable_postgres: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A caller that is cancelled and a store that is closed do not wait for a server that is away."""
    store = PostgresDatabase(killable_postgres.url, TABLES, patience_s=FOR_EVER_S)
    killable_postgres.kill()
    with caplog.at_level(logging.WARNING):
        writing = [asyncio.ensure_future(store.write(datasets.discard_unfinished_uploads)) for _ in range(2)]
        reading = asyncio.ensure_future(store.read(runs.list_unfinished))
        await asyncio.to_thread(_wait_for, caplog, "retrying for")
    writing[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing[0]
    await asyncio.to_thread(store.close)
    for left in (writing[1], reading):
        with pytest.raises(StorageError):
            await left


def _wait_for(caplog: pytest.LogCaptureFixture, words: str) -> None:
    wait_until(lambda: caplog.text, lambda text: words in text)


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
