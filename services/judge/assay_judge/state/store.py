"""What a judge keeps on disk: valid verdicts by team and key, and what runs have spent.

SQLite, worked on by one thread. A verdict is a JSON object; nothing in it identifies the requester.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self, TypeVar

from assay.errors import SetupError, StorageError
from assay_judge.model import RunKey
from assay_judge.state.migrations import apply_migrations

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.model.scope import Scope

T = TypeVar("T")

_log = logging.getLogger(__name__)

_PRUNE_EVERY = 500
_LOG_EVERY_S = 60.0
_MOST_NANO = 2**63 - 1  # of SQLite's integers
_SPENDING_KEPT_S = 90 * 24 * 3600.0


class JudgeStore:
    """The database of one judge process; `open` it, `aclose` it.

    Args:
        connection: Used in the store's own thread alone.
        lock: Held by the one process that uses the folder; None in memory.
        max_verdicts: More are pruned, least recently used first.
    """

    def __init__(
        self, connection: sqlite3.Connection, thread: ThreadPoolExecutor, lock: int | None, max_verdicts: int
    ) -> None:
        self._connection = connection
        self._thread = thread
        self._lock = lock
        self._max_verdicts = max_verdicts
        self._puts = 0
        self._quiet_until_s = 0.0
        self.verdict_count = 0

    @classmethod
    async def open(cls, folder: Path | None, *, max_verdicts: int = 1_000_000) -> Self:
        """Open the database in a folder, which is made where it is missing; None keeps it in memory.

        Raises:
            SetupError: The folder cannot be used, another process uses it, or its file is no database of ours or one
                that a newer version of Assay wrote.
        """
        thread = ThreadPoolExecutor(1, thread_name_prefix="judge-store")
        try:
            lock, connection = await asyncio.get_running_loop().run_in_executor(thread, _opened, folder)
        except SetupError:
            thread.shutdown()
            raise
        except (OSError, sqlite3.Error) as error:
            thread.shutdown()
            raise SetupError(
                f"the judge cannot keep its verdicts in {folder} ({error}): give another folder with --state-dir, "
                "or move judge.db away from there",
                reason="STATE_UNUSABLE",
            ) from None
        store = cls(connection, thread, lock, max_verdicts)
        store.verdict_count = await store._run(store._count)
        return store

    async def aclose(self) -> None:
        """Close the database, in its own thread, once its transactions have ended; also where this is cancelled."""
        closing = self._thread.submit(self._connection.close)
        try:
            await asyncio.shield(asyncio.wrap_future(closing))
        finally:
            self._thread.shutdown()
            if self._lock is not None:
                os.close(self._lock)

    async def verdict(self, scope: Scope, key: str) -> dict[str, Any] | None:
        """Return the record of a verdict that a scope reaches; None where there is none that can be read."""
        return await self._run(lambda: self._verdict(scope, key))

    async def put_verdict(self, team: str, key: str, record: dict[str, Any]) -> None:
        """Keep a valid verdict of a team; the first one of a key stays."""
        text = json.dumps(record, ensure_ascii=False, allow_nan=False)
        await self._run(lambda: self._put_verdict(team, key, text))

    async def spending(self, run: RunKey) -> int:
        """Return what a run has spent or set aside, in billionths of a dollar."""
        return await self._run(lambda: self._spending(run))

    async def lost_calls(self, run: RunKey) -> str:
        """Return the calls of a run whose outcome is unknown, as `put_spending` got them; empty for none."""
        return await self._run(lambda: self._lost_calls(run))

    async def put_spending(self, run: RunKey, nano: int, lost_calls: str = "") -> None:
        """Keep what a run has spent or set aside; what a process that dies had set aside so counts as spent."""
        await self._run(lambda: self._put_spending(run, nano, lost_calls))

    async def delete_scope(self, scope: Scope) -> tuple[dict[str, int], dict[str, int]]:
        """Delete what the teams of a scope have here; return by table how much that was, and how much is left.

        Deleted bytes are overwritten in the file, and its log is emptied.
        """
        deleted, remaining = await self.run(lambda connection: _delete_scope(connection, scope), surely=True)
        await self._run(lambda: self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
        self.verdict_count = await self._run(self._count)
        return deleted, remaining

    async def run(self, work: Callable[[sqlite3.Connection], T], *, surely: bool = False) -> T:
        """Do something with the database, all or nothing.

        Args:
            work: Done in the store's thread.
            surely: Whether it must outlive a power cut too, before this returns.

        Raises:
            StorageError: The database cannot be read or written.
        """
        return await self._run(lambda: self._transacted(work, surely))

    def _transacted(self, work: Callable[[sqlite3.Connection], T], surely: bool) -> T:
        if surely:
            self._connection.execute("PRAGMA synchronous = FULL")
        try:
            with self._connection:
                self._connection.execute("BEGIN")
                return work(self._connection)
        finally:
            if surely:
                self._connection.execute("PRAGMA synchronous = NORMAL")

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (sqlite3.Error, OverflowError) as error:
            if time.monotonic() >= self._quiet_until_s:  # not for each of the requests that fail
                _log.warning("cannot read or write state: %s", error)
                self._quiet_until_s = time.monotonic() + _LOG_EVERY_S
            raise StorageError(f"the judge's state cannot be read or written: {error}") from error

    def _count(self) -> int:
        found: int = self._connection.execute("SELECT count(*) FROM verdicts").fetchone()[0]
        return found

    def _verdict(self, scope: Scope, key: str) -> dict[str, Any] | None:
        query = "SELECT record FROM verdicts WHERE team = ? AND key = ?"
        row = self._connection.execute(query, (scope.team, key)).fetchone()
        if row is None:
            return None
        used = "UPDATE verdicts SET used_at = ? WHERE team = ? AND key = ?"
        self._connection.execute(used, (time.time(), scope.team, key))
        try:
            record = json.loads(row[0])
        except ValueError:
            return None
        return record if isinstance(record, dict) else None

    def _put_verdict(self, team: str, key: str, text: str) -> None:
        done = self._connection.execute(
            "INSERT INTO verdicts (team, key, used_at, record) VALUES (?, ?, ?, ?) ON CONFLICT (team, key) DO NOTHING",
            (team, key, time.time(), text),
        )
        self.verdict_count += done.rowcount
        self._puts += 1
        if self._puts % _PRUNE_EVERY == 0 or self.verdict_count > self._max_verdicts + _PRUNE_EVERY:
            self._prune()

    def _prune(self) -> None:
        self.verdict_count = self._count()
        surplus = self.verdict_count - self._max_verdicts
        if surplus > 0:
            oldest = "SELECT team, key FROM verdicts ORDER BY used_at LIMIT ?"
            self._connection.execute(f"DELETE FROM verdicts WHERE (team, key) IN ({oldest})", (surplus,))  # noqa: S608 - ours
            self.verdict_count -= surplus
        self._connection.execute("DELETE FROM spending WHERE changed_at < ?", (time.time() - _SPENDING_KEPT_S,))

    def _spending(self, run: RunKey) -> int:
        query = "SELECT nano FROM spending WHERE team = ? AND run_id = ?"
        row = self._connection.execute(query, run).fetchone()
        return 0 if row is None else int(row[0])

    def _lost_calls(self, run: RunKey) -> str:
        query = "SELECT lost_calls FROM spending WHERE team = ? AND run_id = ?"
        row = self._connection.execute(query, run).fetchone()
        return "" if row is None else str(row[0])

    def _put_spending(self, run: RunKey, nano: int, lost_calls: str) -> None:
        self._connection.execute(
            "INSERT INTO spending (team, run_id, nano, changed_at, lost_calls) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (team, run_id) DO UPDATE SET nano = excluded.nano, changed_at = excluded.changed_at, "
            "lost_calls = excluded.lost_calls",
            (*run, min(nano, _MOST_NANO), time.time(), lost_calls),
        )


def _delete_scope(connection: sqlite3.Connection, scope: Scope) -> tuple[dict[str, int], dict[str, int]]:
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    counts: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for table in tables:
        if "team" in (column[1] for column in connection.execute(f"PRAGMA table_info({table})")):
            counts[0][table] = connection.execute(f"DELETE FROM {table} WHERE team = ?", (scope.team,)).rowcount  # noqa: S608 - ours
            left = connection.execute(f"SELECT count(*) FROM {table} WHERE team = ?", (scope.team,))  # noqa: S608
            counts[1][table] = left.fetchone()[0]
    return counts


def _opened(folder: Path | None) -> tuple[int | None, sqlite3.Connection]:
    lock = None if folder is None else _locked(folder)
    try:
        return lock, _connect(folder)
    except BaseException:
        if lock is not None:
            os.close(lock)
        raise


def _locked(folder: Path) -> int:
    """Return a lock on a folder: two processes would each keep books of their own about the same runs."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / "judge.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise SetupError(
            f"another judge process uses {folder}: give this one a folder of its own with --state-dir",
            reason="STATE_IN_USE",
        ) from None
    return lock


def _connect(folder: Path | None) -> sqlite3.Connection:
    name = ":memory:"
    if folder is not None:
        name = str(folder / "judge.db")
        # Made before SQLite makes it for everyone to read; its -wal and -shm take its mode.
        os.close(os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(name, isolation_level=None, timeout=10)
    try:
        apply_migrations(connection, name)  # before anything else is changed: a newer version's file stays as it is
        connection.execute("PRAGMA journal_mode = WAL").fetchall()  # it counts as a write until its answer is read
        # A process that is killed loses nothing; a power cut may lose the last verdicts, which only costs money.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")  # of a deleted team nothing stays in the file
    except BaseException:
        connection.close()
        raise
    return connection
