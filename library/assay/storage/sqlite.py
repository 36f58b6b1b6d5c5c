"""A SQLite file: locked against a second process, migrated, and used off the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from assay.errors import StorageError
from assay.process.failpoints import failpoint
from assay.storage import revisions
from assay.storage.failures import FailureLog, UnstorableValueError
from assay.storage.sqlite_check import check_after_a_kill, log_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from assay.storage.tables import ServiceTables

_READER_COUNT = 2
_MMAP_BYTES = 256 * 1024 * 1024
_PAGE_BYTES = 16 * 1024
"""Of new files. A row of more than a quarter of a page fills pages of its own: with 4 KiB, nearly every one does."""

T = TypeVar("T")


class _Dialect(SQLiteDialect_pysqlite):
    """SQLite with a BEGIN of each transaction; a listener of the engine would slow every statement down."""

    supports_statement_cache = True

    def do_begin(self, dbapi_connection: Any) -> None:
        dbapi_connection.execute("BEGIN").close()


registry.register("sqlite.assay", __name__, _Dialect.__name__)


class SqliteDatabase:
    """The embedded SQLite database of one process.

    One thread runs the writes one by one, each in a transaction that is durable (WAL, synchronous=FULL) when `write`
    returns. Other threads read at the same time.

    Args:
        path: The database file; a missing folder is created (0700).
        tables: The tables of the service.

    Raises:
        StorageError: The file cannot be opened, another process uses it, or a newer version wrote it.
    """

    def __init__(self, path: Path, tables: ServiceTables) -> None:
        self._path = path
        self._shown = f"the {tables.service}'s database"
        self._tables = tables
        self._failures = FailureLog()
        self._lock_fd = _lock(path, tables)
        self._file, self._log = str(path), str(log_of(path))
        self._identity = _identity(self._file)
        self._engine = sa.create_engine(
            f"sqlite+assay:///{path}",
            poolclass=sa.NullPool,
            connect_args={"check_same_thread": False, "factory": _Connection},
            hide_parameters=True,  # the log has no answers in it, whatever the statement that fails
        )
        sa.event.listen(self._engine, "connect", _configure)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="store-write")
        self._readers = ThreadPoolExecutor(_READER_COUNT, thread_name_prefix="store-read")
        self._connections: dict[int, sa.Connection] = {}
        try:
            with self._translated():
                check_after_a_kill(path)
                self._migrate()
        except BaseException:
            self.close()
            raise
        self._failures.is_open = True

    async def read(self, query: Callable[[sa.Connection], T]) -> T:
        """Run a query on a reading thread and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._run, query)

    async def write(self, change: Callable[[sa.Connection], T], *, durable: bool = True) -> T:
        """Run a change in one transaction; when this returns, it is durable.

        Cancelling the caller does not undo the change: it completes.

        Args:
            change: What to do.
            durable: Whether to wait for the disk; if not, a power failure may lose the change.
        """

        def checked(connection: sa.Connection) -> T:
            # The file is checked after the change and before its commit: a change in a deleted file must not count as
            # stored.
            result = change(connection)
            self._require_own_file()
            if not os.path.exists(self._log):  # noqa: PTH110 - a third of pathlib's time, with every write
                raise self._gone(self._log)
            return result

        return await asyncio.get_running_loop().run_in_executor(self._writer, self._run, checked, durable)

    async def forget_deleted(self) -> None:
        """Empty the log: deleted bytes are overwritten in the file, but the log still holds the old ones."""
        await asyncio.get_running_loop().run_in_executor(self._writer, self._empty_log)

    def close(self) -> None:
        """Finish pending writes, close the file and release it for other processes."""
        for pool in (self._writer, self._readers):
            pool.shutdown(wait=True)
        for connection in self._connections.values():
            connection.close()
        self._engine.dispose()
        lock_fd, self._lock_fd = self._lock_fd, -1
        if lock_fd >= 0:  # a second call must not close what has the number by then
            os.close(lock_fd)

    def _run(self, query: Callable[[sa.Connection], T], durable: bool = True) -> T:
        with self._translated():
            connection = self._connection()
            try:
                _wait_for_disk(connection, durable)
                with connection.begin():
                    try:
                        return query(connection)
                    finally:
                        _close_cursors(connection)
            except BaseException:
                # The failed connection may keep a snapshot or a lock; the next query opens another one.
                del self._connections[threading.get_ident()]
                connection.invalidate()  # closes the file too
                raise

    def _empty_log(self) -> None:
        with self._translated():
            raw = _raw(self._connection())
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # a reader may delay it to the next checkpoint

    def _connection(self) -> sa.Connection:
        # One connection per thread: opening a file and setting its pragmas costs more than a query.
        key = threading.get_ident()
        if key not in self._connections:
            self._require_own_file()
            self._connections[key] = self._engine.connect()
        return self._connections[key]

    def _require_own_file(self) -> None:
        """Raise if the file was deleted or replaced: whatever is stored in it would be lost silently."""
        if self._identity is not None and _identity(self._file) != self._identity:
            raise self._gone(str(self._path))

    def _gone(self, path: str) -> StorageError:
        says = (
            "was deleted or replaced while it was in use: nothing more can be stored in it. Put its folder back, or "
            "start again without it"
        )
        return self._failures.error(f"{self._shown} {says}", f"{path} {says}")

    def _migrate(self) -> None:
        with self._engine.connect() as connection:
            revision = revisions.read_revision(connection, self._tables)
            if not revisions.needs_upgrade(self._tables, revision, str(self._path), self._tables.other_folder):
                return
            if revision is None:
                _create(connection, self._tables)
            else:
                revisions.upgrade(connection, self._tables)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.DataError, sqlite3.DataError) as problem:
            raise UnstorableValueError(_sentence(str(self._path), problem, self._tables.other_folder)) from problem
        except (sa.exc.DatabaseError, sqlite3.DatabaseError) as problem:
            other = self._tables.other_folder
            shown, full = (_sentence(place, problem, other) for place in (self._shown, str(self._path)))
            raise self._failures.error(shown, full) from problem
        except OSError as problem:
            says = f"cannot be used: {problem.strerror or type(problem).__name__}"
            raise self._failures.error(f"{self._shown} {says}", f"{self._path} {says}") from problem


def _lock(path: Path, tables: ServiceTables) -> int:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise StorageError(f"{path.parent} cannot be written ({problem.strerror}): {tables.other_folder}") from problem
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise StorageError(
            f"{path} is in use by another {tables.service} (process {owner}): {tables.other_process}, "
            f"or {tables.other_folder}"
        ) from None
    with contextlib.suppress(OSError):  # what is wrong with the file itself is said when it is opened
        # Created before SQLite creates it, so that no other user of this machine can read it or its log.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


def _identity(path: str) -> tuple[int, int] | None:
    """Return the identity of the file at a path; None if it is missing or unreadable."""
    try:
        status = os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return None
    return status.st_dev, status.st_ino


class _Connection(sqlite3.Connection):
    """A connection that tracks its cursors."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.cursors = weakref.WeakSet[sqlite3.Cursor]()
        self.is_durable = True

    def cursor(self, factory: Callable[[sqlite3.Connection], Any] | None = None) -> Any:
        """Return a new cursor."""
        cursor = super().cursor(factory) if factory is not None else super().cursor()
        self.cursors.add(cursor)
        return cursor


def _raw(connection: sa.Connection) -> _Connection:
    raw = connection.connection.driver_connection
    assert isinstance(raw, _Connection), "the engine makes no others"
    return raw


def _wait_for_disk(connection: sa.Connection, durable: bool) -> None:
    """Set whether the next commit waits for the disk."""
    raw = _raw(connection)
    if raw.is_durable != durable:  # SQLite refuses the change inside a transaction
        raw.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}").close()
        raw.is_durable = durable


def _close_cursors(connection: sa.Connection) -> None:
    """Close every cursor: an open one, which an exception may hold, keeps the connection's snapshot."""
    for cursor in list(_raw(connection).cursors):
        cursor.close()


def _configure(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # transactions are begun by _Dialect, so that DDL is in them too
    for pragma in (
        f"page_size={_PAGE_BYTES}",  # before the log: it cannot be changed then
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "busy_timeout=10000",
        "secure_delete=ON",  # of a deleted team nothing stays in the file
        f"mmap_size={_MMAP_BYTES}",
    ):
        # Read to its end: a thread that looks at all objects may keep the cursor past the first commit, which an
        # unfinished "journal_mode" makes fail, since it counts as a write.
        connection.execute(f"PRAGMA {pragma}").fetchall()


def _create(connection: sa.Connection, tables: ServiceTables) -> None:
    """Create the tables of a new database; a test proves that the migrations give the same."""
    tables.create(connection)
    connection.exec_driver_sql(f"CREATE TABLE {tables.version_table} (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
    connection.exec_driver_sql(f"INSERT INTO {tables.version_table} VALUES (?)", (tables.head_revision,))  # noqa: S608
    failpoint("schema.before_commit")
    connection.commit()
    failpoint("schema.after_commit")


def _sentence(place: str, problem: sa.exc.DatabaseError | sqlite3.DatabaseError, other_folder: str) -> str:
    """Return what is wrong with the database and what to do, as a sentence.

    Args:
        place: The database as the reader knows it.
        problem: The driver's error; its words name no file.
        other_folder: How to choose another folder.
    """
    text = str(problem.orig if isinstance(problem, sa.exc.DatabaseError) else problem)
    if "disk is full" in text or "disk I/O" in text:
        return f"the disk that holds {place} is full or broken ({text}): free some space"
    if "locked" in text:
        return f"{place} is locked by another program: close it and try again"
    if "readonly" in text or "unable to open" in text:
        return f"{place} cannot be written ({text}): check its permissions, or {other_folder}"
    if "not a database" in text or "malformed" in text:
        return f"{place} is not an Assay database or is damaged ({text}): move it away, or {other_folder}"
    return f"{place} failed: {text}"
