"""What holds for PostgreSQL alone: one orchestrator at a time, sessions, refusals in sentences."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg
import pytest
import sqlalchemy as sa
from tests.support.processes.waiting import wait_until

from assay.errors import SetupError, StorageError
from assay.model.scope import LOCAL
from assay.storage import revisions
from assay.storage.postgres import UPGRADE_LOCK, PostgresDatabase
from assay.storage.postgres_errors import sentence
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import open_database
from assay_orchestrator.store.revisions import HEAD_REVISION, TABLES
from assay_orchestrator.store.runs import dataset_versions, datasets, runs
from assay_orchestrator.store.runs.runs import RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name LIKE %s"


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresDatabase]:
    """Return an open store."""
    with closing(PostgresDatabase(postgres_url, TABLES)) as database:
        yield database


@pytest.fixture
def admin(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """Return a plain connection to the same schema, in autocommit mode."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def wait_until_blocked(admin: psycopg.Connection[Any], name: str = "assay-orchestrator%") -> None:
    """Return when a connection of that name waits for a lock."""
    wait_until(lambda: admin.execute(_WAITING, (name,)).fetchone(), lambda seen: seen != (0,))


async def test_several_orchestrators_share_a_database(store: PostgresDatabase, postgres_url: str) -> None:
    """One that comes later finds the tables there, and what either writes the other reads."""
    with closing(PostgresDatabase(postgres_url, TABLES)) as other:
        await store.write(lambda c: c.execute(sa.text("INSERT INTO datasets VALUES ('d', 'u', 1, 't', 'local')")))
        await store.write(
            lambda c: c.execute(sa.text("INSERT INTO dataset_names VALUES ('local', 'n', 'd', 't', 't', 'f')"))
        )
        found = await other.read(lambda c: datasets.get_dataset(c, LOCAL.team, "d"))
        assert found is not None
        await other.write(datasets.discard_unfinished_uploads)
        await store.write(datasets.discard_unfinished_uploads)


async def test_four_writes_are_made_at_once(store: PostgresDatabase) -> None:
    """An administrator sizes max_connections by docs/database.md: further writes wait for one of four sessions."""
    together = threading.Barrier(4)

    def write(connection: sa.Connection) -> object:
        together.wait(60)  # only four writes at once get through
        return connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()

    sessions = await asyncio.gather(*(store.write(write) for _ in range(20)))
    assert len(set(sessions)) == 4


async def test_every_connection_is_durable_bounded_and_named(store: PostgresDatabase) -> None:
    """Commits wait for the disk, statements end, and an administrator sees whose a connection is."""

    def read(connection: sa.Connection) -> list[object]:
        limits = ("statement_timeout", "idle_in_transaction_session_timeout")
        names = ("synchronous_commit", *limits, "default_transaction_isolation", "transaction_isolation")
        return [connection.exec_driver_sql(f"SHOW {name}").scalar() for name in (*names, "application_name")]

    *written, name = await store.write(read)
    assert written == ["on", "2min", "10s", "read committed", "read committed"]
    assert str(name).startswith("assay-orchestrator ")
    assert (await store.read(read))[2:5] == ["10min", "read committed", "repeatable read"]
    with pytest.raises(StorageError, match="may only be read"):
        await store.read(datasets.discard_unfinished_uploads)


async def test_a_request_that_is_being_stored_by_somebody_else_is_waited_for(
    store: PostgresDatabase, admin: psycopg.Connection[Any], postgres_url: str
) -> None:
    """Two transactions that make the same request's run at once end with one run, which both return."""
    admin.execute("INSERT INTO datasets VALUES ('d', 'u', 1, 't', 'local')")
    mine = RunRecord("mine", "q", "h", {}, "d", 1, "0.1.0", "t", "local")
    with psycopg.connect(postgres_url) as other:
        other.execute(
            "INSERT INTO runs (run_id, request_id, request_hash, spec_json, dataset_id, state, total_count, "
            "assay_version, created_at, team) VALUES ('theirs', 'q', 'h', '{}', 'd', 'pending', 1, '0', 't', 'local')"
        )
        writing = asyncio.ensure_future(store.write(lambda c: runs.create_run(c, mine)))
        await asyncio.to_thread(wait_until_blocked, admin)
        other.commit()
        run, is_new = await writing
    assert (run.run_id, is_new) == ("theirs", False)


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_two_that_upgrade_at_once_do_it_once(postgres_url: str, admin: psycopg.Connection[Any], isolation: str) -> None:
    """A process that finds another one upgrading waits and then finds the tables, whatever isolation is the default."""
    setting = "-c default_transaction_isolation=" + isolation.replace(" ", "\\ ")
    url = postgres_url.replace("options=", f"options={quote(setting)}%20")
    engine = sa.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(postgres_url), poolclass=sa.NullPool
    )
    opened: list[PostgresDatabase] = []
    opening = threading.Thread(target=lambda: opened.append(PostgresDatabase(url, TABLES)))
    with engine.connect() as first:
        first.exec_driver_sql(f"SELECT pg_advisory_xact_lock({UPGRADE_LOCK}, hashtext(current_schema()))")
        opening.start()
        wait_until_blocked(admin)
        revisions.upgrade(first, TABLES)
    opening.join()
    with closing(opened[0]):
        assert admin.execute("SELECT version_num FROM alembic_version").fetchall() == [(HEAD_REVISION,)]


async def test_one_that_stands_still_in_a_change_keeps_nobody_out(postgres_url: str) -> None:
    """The server ends its transaction after a while and others go on; what it was about to change it changes then."""
    url = postgres_url.replace("options=", "options=-c%20idle_in_transaction_session_timeout%3D50%20")
    is_standing, others_are_done, tries = threading.Event(), threading.Event(), 0

    def change(connection: sa.Connection) -> None:
        nonlocal tries
        connection.execute(sa.text("UPDATE dataset_names SET name = name || '+mine'"))
        tries += 1
        is_standing.set()
        assert others_are_done.wait(60)
        connection.execute(sa.text("UPDATE dataset_names SET note = note || '+mine'"))

    with closing(PostgresDatabase(url, TABLES)) as store, closing(PostgresDatabase(postgres_url, TABLES)) as other:
        await store.write(lambda c: c.execute(sa.text("INSERT INTO datasets VALUES ('d', 'u', 1, 't', 'local')")))
        await store.write(
            lambda c: c.execute(sa.text("INSERT INTO dataset_names VALUES ('local', 'n', 'd', 't', 't', 'f')"))
        )
        standing = asyncio.ensure_future(store.write(change))
        await asyncio.to_thread(is_standing.wait)
        theirs = asyncio.ensure_future(
            other.write(lambda c: c.execute(sa.text("UPDATE dataset_names SET name = name || '+theirs'")))
        )
        theirs.add_done_callback(lambda _: others_are_done.set())
        await asyncio.gather(theirs, standing)
        found = await store.read(lambda c: dataset_versions.get_stored(c, LOCAL, "d"))
    assert (found.name, found.note, tries) == ("n+theirs+mine", "f+mine", 2)


async def test_a_statement_that_takes_too_long_is_stopped(postgres_url: str) -> None:
    """A statement ends after its time, which the URL may set, with a sentence; the store works on."""
    url = postgres_url.replace("options=", "options=-c%20statement_timeout%3D50%20")
    with closing(PostgresDatabase(url, TABLES)) as database:
        with pytest.raises(StorageError, match="ran into statement_timeout"):
            await database.read(lambda c: c.exec_driver_sql("SELECT pg_sleep(30)"))
        assert await database.read(runs.list_unfinished) == []


@pytest.mark.parametrize(
    ("pattern", "replacement", "words"),
    [
        ("//[^@]*@", "//nobody:s3cret@", "refuses this user or password"),
        (r"/\w+\?", "/missing?", "no such database: create it"),
        ("//[^@]*@", "//tests:s3%zzcret@", "not a URL"),
        ("search_path%3Dtest_", "search_path%3Dnone_", "none of the schemas"),
    ],
)
def test_what_cannot_be_used_is_a_sentence_without_the_password(
    pattern: str, replacement: str, words: str, postgres_url: str
) -> None:
    """A wrong URL, user, database or schema is named with its remedy."""
    url = re.sub(pattern, replacement, postgres_url, count=1)
    assert url != postgres_url
    with pytest.raises(StorageError, match=words) as caught:
        PostgresDatabase(url, TABLES)
    assert "s3" not in str(caught.value)


def test_several_hosts_are_tried_in_turn(postgres_url: str) -> None:
    """A URL may name every server of a cluster; the first that answers is used."""
    PostgresDatabase(postgres_url.replace("@", "@127.0.0.1:1,", 1), TABLES).close()


def test_a_server_that_is_not_there_is_a_sentence() -> None:
    """Nothing listens: the sentence names host, port and what to check, and shows no password."""
    with pytest.raises(StorageError, match=r"assay at 127\.0\.0\.1:1 cannot be reached: check") as caught:
        PostgresDatabase("postgresql://u:s3cret@127.0.0.1:1/assay", TABLES)
    assert "s3cret" not in str(caught.value)


def test_a_database_that_cannot_hold_every_language_is_refused(
    postgres_url: str, admin: psycopg.Connection[Any]
) -> None:
    """A database whose encoding is not UTF-8 is refused before anything is stored in it."""
    admin.execute("CREATE DATABASE assay_latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(StorageError, match=r"as LATIN1.*ENCODING 'UTF8'"):
            PostgresDatabase(re.sub(r"/\w+\?", "/assay_latin1?", postgres_url), TABLES)
    finally:
        admin.execute("DROP DATABASE assay_latin1")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("53100", "disk is full: free some space"),
        ("53300", "no connection left: raise its max_connections"),
        ("25006", "may only be read"),
        ("42501", "lacks the right"),
        ("57P01", "stopping, starting or was restarted"),
        ("08006", "connection broke"),
        ("55P03", "another session holds a lock for longer than lock_timeout"),
        ("57014", "a statement was cancelled or ran into statement_timeout"),
        ("58030", "its disk or operating system failed"),
        ("XX000", "is damaged or has a defect"),
        ("P0001", "the database failed"),
    ],
)
def test_every_kind_of_failure_has_a_remedy(state: str, words: str) -> None:
    """What PostgreSQL calls by a code becomes a sentence with what to do, and quotes no password."""
    problem = psycopg.errors.lookup(state)("the server said\n  s3cret")
    text = sentence("the database", problem, "s3cret")
    assert words in text
    assert "the server said ***" in text


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psycopg, the sentence says what to install."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in ("postgres", "postgres_errors"):
        monkeypatch.delitem(sys.modules, f"assay.storage.{name}")
    with pytest.raises(SetupError, match=r"pip install -e \S*\[postgres\]"):
        open_database(Settings(database=Path("none"), database_url="postgresql://h/n"))
