"""SQLite: the file, its lock, the durability of what is written."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from assay.errors import StorageError
from assay.storage.sqlite import SqliteDatabase
from assay_orchestrator.store import schema
from assay_orchestrator.store.revisions import TABLES

if TYPE_CHECKING:
    from pathlib import Path


def test_nobody_else_may_read_the_file(tmp_path: Path) -> None:
    """The database holds a team's data: it and its log are for its owner alone, whatever the umask."""
    before = os.umask(0)
    try:
        database = SqliteDatabase(tmp_path / "assay.db", TABLES)
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        database.close()
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}
    assert "assay.db" in modes


def test_a_second_user_of_the_file_is_refused(tmp_path: Path) -> None:
    """Two databases on one file: the second is refused with the first one's process id; a closed one is not."""
    first = SqliteDatabase(tmp_path / "assay.db", TABLES)
    with pytest.raises(StorageError, match="in use by another orchestrator"):
        SqliteDatabase(tmp_path / "assay.db", TABLES)
    first.close()
    SqliteDatabase(tmp_path / "assay.db", TABLES).close()


def test_a_lock_that_names_no_process_is_said_to_be_of_an_unknown_one(tmp_path: Path) -> None:
    """The owner of the lock may not have written its process id yet."""
    with (tmp_path / "assay.db.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match=r"in use by another orchestrator \(process unknown\)"):
            SqliteDatabase(tmp_path / "assay.db", TABLES)


async def test_a_file_that_cannot_be_written_is_a_matter_of_permissions(tmp_path: Path) -> None:
    """The sentence says what to check."""

    def refused(connection: sa.Connection) -> None:
        connection.exec_driver_sql("PRAGMA query_only = ON")
        connection.execute(schema.datasets.delete())

    database = SqliteDatabase(tmp_path / "assay.db", TABLES)
    try:
        with pytest.raises(StorageError, match="check its permissions, or choose another folder with ASSAY_HOME"):
            await database.write(refused)
        await database.write(lambda c: c.execute(schema.datasets.delete()))
    finally:
        database.close()


async def test_writes_are_durable_and_atomic(tmp_path: Path) -> None:
    """A database is in WAL mode with full sync, and a change that raises leaves nothing behind."""
    database = SqliteDatabase(tmp_path / "assay.db", TABLES)
    try:
        mode = await database.write(lambda c: c.exec_driver_sql("PRAGMA journal_mode").scalar())
        sync = await database.write(lambda c: c.exec_driver_sql("PRAGMA synchronous").scalar())
        assert (mode, sync) == ("wal", 2)

        def half(connection: sa.Connection) -> None:
            connection.execute(
                schema.datasets.insert().values(
                    team="local", dataset_id="d", upload_id="u", name="n", format="f", case_count=1, created_at="now"
                )
            )
            raise KeyError("in the middle")

        with pytest.raises(KeyError):
            await database.write(half)
        count = await database.read(
            lambda c: c.execute(sa.select(sa.func.count()).select_from(schema.datasets)).scalar()
        )
        assert count == 0
    finally:
        database.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """A damaged or foreign file is a sentence that says what to do."""
    (tmp_path / "assay.db").write_text("this is not a database, it is a letter to my aunt. " * 40)
    with pytest.raises(StorageError, match="not an Assay database"):
        SqliteDatabase(tmp_path / "assay.db", TABLES)


async def test_new_files_have_large_pages_and_old_ones_keep_theirs(tmp_path: Path) -> None:
    """Rows with a judge's reasons fit in a page beside others; a file of an earlier version is used as it is."""
    old = tmp_path / "old.db"
    with contextlib.closing(sqlite3.connect(old)) as connection:
        connection.execute("PRAGMA page_size = 4096")
        connection.execute("PRAGMA user_version = 0")
        connection.execute("VACUUM")
    assert old.stat().st_size == 4096
    assert [await page_bytes(path) for path in (old, tmp_path / "new.db")] == [4096, 16 * 1024]


async def page_bytes(path: Path) -> int:
    """Return the page size of a file that is opened as a database, twice."""
    for _ in range(2):
        database = SqliteDatabase(path, TABLES)
        try:
            size: int = await database.read(
                lambda connection: connection.exec_driver_sql("PRAGMA page_size").scalar_one()
            )
        finally:
            database.close()
    return size
