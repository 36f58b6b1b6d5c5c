"""The SQLite file: lock, durability, amounts of spending, and damage or deletion under a running process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
import sqlalchemy as sa

from assay.errors import StorageError
from assay.identity.quotas import MAX_AMOUNT, Quota
from assay.model.case import Case, Turn
from assay.model.run import DatasetRef
from assay.model.scope import Scope
from assay.storage import sqlite_check
from assay.storage.sqlite import SqliteDatabase
from assay.wire.admin import quotas_from_wire
from assay_orchestrator.identity.admin_pages import usage_of
from assay_orchestrator.store import schema
from assay_orchestrator.store.revisions import TABLES
from assay_orchestrator.store.runs import datasets, runs
from assay_orchestrator.store.runs.runs import RunRecord
from assay_orchestrator.store.teams import allotments, quotas, spending
from assay_orchestrator.store.teams.allotments import NOTHING, Amount, Holder, Shortage
from assay_orchestrator.store.teams.spending import Spent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from assay.storage.database import Database


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
                    team="local", dataset_id="d", upload_id="u", case_count=1, created_at="now"
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
    """Rows with a judge's reasons fit in a page beside others; a file that has others is used as it is."""
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


TEAM = "search"
RUNS = ("one", "two", "three")


@pytest_asyncio.fixture
async def store(open_store: Callable[[], Database]) -> AsyncIterator[Database]:
    """Return a database with some runs of a team."""
    database = open_store()

    def fill(connection: sa.Connection) -> None:
        datasets.add_cases(connection, "u", 0, [("c", datasets.case_text(Case("c", (Turn("q"),))))])
        datasets.finish_upload(connection, Scope(TEAM), "u", DatasetRef("d", "d", 1))
        for name in RUNS:
            record = RunRecord(name, name, name, {"repeats": 1}, "d", 1, "0", "2026-01-01", TEAM, concurrency=4)
            runs.create_run(connection, record)

    try:
        await database.write(fill)
        yield database
    finally:
        database.close()


async def spend(database: Database, run_id: str, spent: Spent) -> None:
    """Store what a run has spent."""
    await database.write(lambda c: spending.add_spent(c, run_id, spent))


async def used(database: Database) -> dict[Quota, int]:
    """Return what the team has used, as clients see it."""
    usage = await database.read(lambda c: usage_of(c, TEAM))
    return quotas_from_wire(usage.used)


async def test_sums_end_at_the_largest_amount(store: Database) -> None:
    """More is spent by several runs, and by each of them, than the integers of the database hold."""
    for run_id in RUNS:
        for _ in range(3):
            await spend(store, run_id, Spent(2**63 - 1, 10**30, 5))
    found = await used(store)
    assert (found[Quota.TOKENS_PER_DAY], found[Quota.MONEY_PER_MONTH]) == (MAX_AMOUNT, MAX_AMOUNT)
    assert found[Quota.STORED_BYTES] >= 45


async def test_nothing_spent_is_given_back(store: Database) -> None:
    """An amount below 0 takes nothing off what was spent, whatever reported it."""
    await spend(store, "one", Spent(10, 100))
    await spend(store, "one", Spent(-50, -500))
    await spend(store, "two", Spent(-50, -500))
    found = await used(store)
    assert (found[Quota.TOKENS_PER_DAY], found[Quota.MONEY_PER_MONTH]) == (10, 100)


async def test_an_allotment_of_more_than_fits_is_recorded(store: Database) -> None:
    """What calls have taken may be more than any amount: rows are stored all the same, and nothing is left to take."""
    holder, call = Holder(TEAM, "one", "h"), Amount(10, 10)
    await store.write(lambda c: quotas.set_quotas(c, TEAM, {Quota.MONEY_PER_MONTH: 1000}))
    await store.write(lambda c: allotments.take(c, holder, NOTHING, NOTHING, call))
    taken = Amount(10**30, 10**30)
    await store.write(lambda c: allotments.record(c, holder, taken))
    await spend(store, "one", Spent(taken.tokens, taken.nano_usd))
    found = await store.write(lambda c: allotments.take(c, holder, taken, taken, call))
    assert isinstance(found, Shortage)
    assert (found.quota, found.spent) == (Quota.MONEY_PER_MONTH, MAX_AMOUNT)


COMMITS = 40
HEADER, FRAME_HEADER, PAGE = 32, 24, 16 * 1024


def add(connection: sa.Connection, number: int) -> None:
    """Store a dataset."""
    name = f"d{number}"
    connection.execute(
        schema.datasets.insert().values(team="local", dataset_id=name, upload_id=name, case_count=1, created_at="now")
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
