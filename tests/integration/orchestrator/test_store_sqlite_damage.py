"""SQLite: files that are deleted or replaced under a running process, and what a kill leaves behind, damaged or not."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
import sqlalchemy as sa

from assay.errors import StorageError
from assay.storage import sqlite_check
from assay.storage.sqlite import SqliteDatabase
from assay_orchestrator.store import schema
from assay_orchestrator.store.revisions import TABLES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

COMMITS = 40
HEADER, FRAME_HEADER, PAGE = 32, 24, 16 * 1024


def add(connection: sa.Connection, number: int) -> None:
    """Store a dataset."""
    name = f"d{number}"
    connection.execute(
        schema.datasets.insert().values(
            team="local", dataset_id=name, upload_id=name, name="n" * 500, format="f", case_count=1, created_at="now"
        )
    )


def count(connection: sa.Connection) -> int:
    """Count the stored datasets."""
    return connection.execute(sa.select(sa.func.count()).select_from(schema.datasets)).scalar_one()


@pytest_asyncio.fixture
async def killed(tmp_path: Path) -> AsyncIterator[Path]:
    """Return a database file with its log as a kill leaves them, after many transactions."""
    database = SqliteDatabase(tmp_path / "own" / "assay.db", TABLES)
    try:
        for number in range(COMMITS):
            await database.write(lambda c, number=number: add(c, number))  # type: ignore[misc]
        copy = tmp_path / "killed"
        copy.mkdir()
        for name in ("assay.db", "assay.db-wal"):
            shutil.copy(tmp_path / "own" / name, copy / name)
    finally:
        database.close()
    yield copy / "assay.db"


def damage(path: Path, offset: int, data: bytes = b"\xff\x00damage") -> None:
    """Overwrite some bytes of a file."""
    with path.open("r+b") as file:
        file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        file.write(data)


def size_of(path: Path) -> int:
    """Return the size of a file."""
    return path.stat().st_size


async def found(path: Path) -> int:
    """Open a database and count what it holds."""
    database = SqliteDatabase(path, TABLES)
    try:
        return await database.read(count)
    finally:
        database.close()


def remove_folder(path: Path) -> None:
    """Delete the state directory."""
    shutil.rmtree(path.parent)


def replace_file(path: Path) -> None:
    """Put another file in the place of the database, as a restored backup is."""
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


@pytest.mark.parametrize("harm", [remove_folder, replace_file])
async def test_a_file_that_is_gone_is_noticed_at_the_next_write(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """Nothing is acknowledged that is stored nowhere; the error says what to do."""
    path = tmp_path / "state" / "assay.db"
    database = SqliteDatabase(path, TABLES)
    try:
        await database.write(lambda c: add(c, 0))
        harm(path)
        for _ in range(2):
            with pytest.raises(StorageError, match="deleted or replaced while it was in use"):
                await database.write(lambda c: add(c, 1))
    finally:
        database.close()


async def test_a_log_that_is_gone_is_noticed_at_the_next_write(tmp_path: Path) -> None:
    """That write is not stored; what was stored before is, and the next write has a log again."""
    path = tmp_path / "assay.db"
    database = SqliteDatabase(path, TABLES)
    try:
        await database.write(lambda c: add(c, 0))
        path.with_name("assay.db-wal").unlink()
        with pytest.raises(StorageError, match="deleted or replaced while it was in use"):
            await database.write(lambda c: add(c, 1))
        await database.write(lambda c: add(c, 2))
        assert await database.read(count) == 2
    finally:
        database.close()
    assert await found(path) == 2


async def test_a_write_without_a_query_is_no_alarm(tmp_path: Path) -> None:
    """The first change on a new connection may touch nothing: the log is not there yet."""
    database = SqliteDatabase(tmp_path / "assay.db", TABLES)
    try:
        await database.write(lambda _: None)
        with pytest.raises(ZeroDivisionError):
            await database.write(lambda _: 1 // 0)
        await database.write(lambda _: None)
    finally:
        database.close()


async def test_a_kill_loses_nothing_and_is_no_damage(killed: Path) -> None:
    """A database whose log a kill left behind opens, with every transaction that was committed."""
    assert await found(killed) == COMMITS


@pytest.mark.parametrize("cut", [1, PAGE, PAGE + FRAME_HEADER])
async def test_an_incomplete_last_transaction_is_no_damage(killed: Path, cut: int) -> None:
    """A transaction that was being written is not there; all before it is."""
    log = killed.with_name("assay.db-wal")
    os.truncate(log, log.stat().st_size - cut)
    assert await found(killed) == COMMITS - 1


async def test_a_power_failure_in_the_last_transaction_is_no_damage(killed: Path) -> None:
    """Some frames of what was not synced yet may be missing though later ones are there."""
    damage(killed.with_name("assay.db-wal"), -100)
    assert await found(killed) == COMMITS - 1


async def test_a_damaged_log_is_noticed(killed: Path) -> None:
    """SQLite would read it up to the damage and forget the transactions after it without a word."""
    log = killed.with_name("assay.db-wal")
    frames = (log.stat().st_size - HEADER) // (FRAME_HEADER + PAGE)
    for offset in (0, HEADER + 8, HEADER + FRAME_HEADER + 1, HEADER + (frames // 2) * (FRAME_HEADER + PAGE) + 100):
        original = log.read_bytes()
        damage(log, offset)
        with pytest.raises(StorageError, match=r"wal is damaged: \d+ stored .* move assay.db-wal away"):
            SqliteDatabase(killed, TABLES)
        log.write_bytes(original)
    assert await found(killed) == COMMITS


def test_a_damaged_file_is_noticed_after_a_kill(killed: Path) -> None:
    """The pages are checked once, before anything is stored beside damage."""
    # Checkpointed, but for a log of its own that says that the last process was killed.
    raw = sa.create_engine(f"sqlite:///{killed}", poolclass=sa.NullPool)
    with raw.connect() as connection:
        connection.exec_driver_sql("PRAGMA journal_mode=DELETE").all()
    raw.dispose()
    for page in range(1, size_of(killed) // PAGE):
        damage(killed, page * PAGE, b"\x0d\xff\xff\xff\xff" * 4)
    killed.with_name("assay.db-wal").write_bytes(b"\0" * (HEADER + FRAME_HEADER))
    with pytest.raises(StorageError, match="damaged"):
        SqliteDatabase(killed, TABLES)


async def test_a_log_whose_index_is_of_another_kind_is_left_to_sqlite(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later SQLite may keep its index in another way: what cannot be counted is not reported as lost."""
    damage(killed.with_name("assay.db-wal"), HEADER + 10 * (FRAME_HEADER + PAGE) + FRAME_HEADER)
    monkeypatch.setattr(sqlite_check, "_INDEX_VERSION", 1)
    assert await found(killed) < COMMITS


async def test_frames_of_an_earlier_turn_of_the_log_are_no_damage(tmp_path: Path) -> None:
    """A log that was written from its beginning again has older frames behind the new ones."""
    path = tmp_path / "own" / "assay.db"
    database = SqliteDatabase(path, TABLES)
    try:
        for number in range(COMMITS):
            await database.write(lambda c, number=number: add(c, number))  # type: ignore[misc]
        await database.write(lambda c: None)
        raw = sa.create_engine(f"sqlite:///{path}", poolclass=sa.NullPool)
        with raw.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(RESTART)").all()
        raw.dispose()
        await database.write(lambda c: add(c, COMMITS))
        copy = tmp_path / "killed"
        copy.mkdir()
        for name in ("assay.db", "assay.db-wal"):
            shutil.copy(path.with_name(name), copy / name)
        assert size_of(copy / "assay.db-wal") > 10 * PAGE
    finally:
        database.close()
    assert await found(copy / "assay.db") == COMMITS + 1
