"""SQLite connections are closed once no thread runs a statement on them: closing one earlier crashes CPython."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from assay.storage.sqlite import SqliteDatabase
from assay_embedder.caches.disk_cache import DiskCache
from assay_judge.state.store import JudgeStore
from assay_orchestrator.store.revisions import TABLES

if TYPE_CHECKING:
    from pathlib import Path

    import sqlalchemy as sa

ROWS = 200_000


class Statement:
    """A statement that has begun when the store is closed, ends long after, and is followed by another one."""

    def __init__(self) -> None:
        self._begun, self._closing = threading.Event(), threading.Event()

    def run(self, connection: sqlite3.Connection) -> int:
        """Run both in this thread; return how many rows the first counted."""
        connection.create_function("first", 0, self._first)
        query = (
            "WITH RECURSIVE n(i) AS (SELECT first() UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT count(*) FROM n"
        )
        (count,) = connection.execute(query, (ROWS,)).fetchone()
        (same,) = connection.execute("SELECT ?", (count,)).fetchone()
        return int(same)

    def _first(self) -> int:
        self._begun.set()
        assert self._closing.wait(30)
        return 1

    async def begun(self) -> None:
        """Wait until it has begun, and let it continue."""
        assert await asyncio.to_thread(self._begun.wait, 30)
        self._closing.set()


def run_on(statement: Statement, connection: sa.Connection) -> int:
    """Run a statement on the connection of the driver."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return statement.run(raw)


async def test_a_database_closes_after_its_last_statement(tmp_path: Path) -> None:
    """The statement of a reading thread ends first, and its caller gets what it returns."""
    database, statement = SqliteDatabase(tmp_path / "assay.db", TABLES), Statement()
    reading = asyncio.ensure_future(database.read(partial(run_on, statement)))
    await statement.begun()
    database.close()
    assert await reading == ROWS


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_the_store_of_a_judge_closes_after_its_last_statement(tmp_path: Path, is_cancelled: bool) -> None:
    """Also where the caller of the statement, or of the closing, is cancelled: their threads are not.

    The folder is free for the next store once the closing has returned.
    """
    store, statement = await JudgeStore.open(tmp_path), Statement()
    running = asyncio.ensure_future(store.database.read(partial(run_on, statement)))
    closing = asyncio.ensure_future(store.aclose())
    await statement.begun()
    if is_cancelled:
        running.cancel()
        closing.cancel()
    found, _ = await asyncio.gather(running, closing, return_exceptions=True)
    assert isinstance(found, asyncio.CancelledError) if is_cancelled else found == ROWS
    await (await JudgeStore.open(tmp_path)).aclose()


async def test_the_cache_of_vectors_closes_after_its_last_statement(tmp_path: Path) -> None:
    """Statements of other threads hold its lock."""
    cache, statement = DiskCache(tmp_path, 1 << 20), Statement()
    connection = cache._connection
    assert connection is not None

    def find() -> int:
        with cache._lock:
            return statement.run(connection)

    running = asyncio.ensure_future(asyncio.to_thread(find))
    await statement.begun()
    await asyncio.to_thread(cache.close)
    assert await running == ROWS
