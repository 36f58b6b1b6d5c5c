"""The first commit after a SQLite file is opened, while another thread keeps what opening it asked for.

A thread that looks at all objects (a profiler of memory, a count in a test) keeps each cursor a little longer than
its owner does. Those of the pragmas that count as writes must have come to their end by then.
"""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import sqlalchemy as sa

from assay.model.scope import LOCAL
from assay.storage import sqlite
from assay.storage.sqlite import SqliteDatabase
from assay_embedder.caches.disk_cache import DiskCache
from assay_embedder.queues.jobs import Computed
from assay_judge.state.store import JudgeStore
from assay_orchestrator.store.revisions import TABLES

if TYPE_CHECKING:
    from pathlib import Path

kept: list[sqlite3.Cursor] = []


def execute(connection: sqlite3.Connection, *args: Any) -> sqlite3.Cursor:
    """Execute a statement on a new cursor, and keep that."""
    kept.append(sqlite3.Connection.execute(connection, *args))
    return kept[-1]


class Keeping(sqlite3.Connection):
    """A connection whose cursors are kept."""

    execute = execute


@pytest.fixture(autouse=True)
def keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the cursors that connections make on their own."""
    kept.clear()
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Keeping))
    monkeypatch.setattr(sqlite._Connection, "execute", execute)


async def test_orchestrator(tmp_path: Path) -> None:
    """A write and a read are carried out by threads that each open the file first."""
    database = SqliteDatabase(tmp_path / "assay.db", TABLES)
    try:
        await database.write(lambda c: c.execute(sa.text("DELETE FROM runs")).close())
        assert await database.read(lambda c: c.execute(sa.text("SELECT count(*) FROM runs")).scalar()) == 0
    finally:
        database.close()
    assert kept


async def test_judge(tmp_path: Path) -> None:
    """A judge's first transaction is committed."""
    store = await JudgeStore.open(tmp_path)
    try:
        assert not any((await store.delete_scope(LOCAL))[0].values())
    finally:
        await store.aclose()
    assert kept


def test_embedder(tmp_path: Path) -> None:
    """The first vector is kept."""
    computed = Computed(np.ones(3, np.float32), token_count=1, window_count=1, truncated=False)
    for entries in ([(b"key", computed)], []):
        cache = DiskCache(tmp_path, 64 * 1024 * 1024)
        try:
            assert len(cache.find([b"key"])) == (not entries)
            cache.store(entries)
        finally:
            cache.close()
    assert kept
