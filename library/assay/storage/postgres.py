"""PostgreSQL: connections and transactions that survive the loss of the server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict

from assay.errors import StorageError
from assay.storage import revisions
from assay.storage.changes import Change, introduce
from assay.storage.failures import FailureLog, UnstorableValueError
from assay.storage.outages import Outages
from assay.storage.postgres_errors import client_sentence, is_data_exception, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from assay.storage.tables import ServiceTables

_OLDEST_VERSION = 15
_READER_COUNT = 4
_WRITER_COUNT = 4
_STATEMENT_TIMEOUT_S = 120
UPGRADE_LOCK = 0x4153535A
_MIGRATION_POLL_S = 0.25
# A read blocks no other transaction, and its rows are aggregated before it ends.
_READING = "-c idle_in_transaction_session_timeout=10min"
# Notice a host that is gone within half a minute, on either side: the server then gives up the locks of its rows.
_KEEPALIVE: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
_SESSION = {
    "statement_timeout": f"{_STATEMENT_TIMEOUT_S}s",
    # A process that is suspended during a change must not keep its rows locked forever.
    "idle_in_transaction_session_timeout": "10s",
    "synchronous_commit": "on",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}

# Later settings win: a snapshot that is older than a lock that was waited for would hide what the lock's holder did.
_ISOLATION = r"-c default_transaction_isolation=read\ committed"

T = TypeVar("T")

_log = logging.getLogger(__name__)


class PostgresDatabase:
    """A PostgreSQL database, used by any number of processes.

    Reads and writes run on threads, each with its own connection. A write is one transaction at READ COMMITTED that is
    durable (synchronous_commit=on) when `write` returns. Writes run concurrently; row locks order those that must not
    overlap. A read is one transaction at REPEATABLE READ: a commit between two of its queries could make a watcher miss
    events.

    Both are retried if the connection breaks, so callers do not notice a short outage. If it breaks during a commit,
    `changes` finds out whether the commit took place.

    Args:
        url: "postgresql://...", with any option of libpq's URLs.
        tables: The tables of the service.
        patience_s: How long to wait for a database that was reachable before, in seconds.
        migrates: Whether missing migrations are applied here; otherwise this waits for them, equally long.

    Raises:
        StorageError: The database cannot be used, migrations are missing and not applied here, or a newer version wrote
            it.
    """

    def __init__(self, url: str, tables: ServiceTables, *, patience_s: float = 60.0, migrates: bool = True) -> None:
        self._tables = tables
        self._parameters = _parse(url, tables.service)
        self._place = _place(self._parameters)
        self._shown = f"the {tables.service}'s database"
        self._failures = FailureLog()
        self._engine = sa.create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            pool_size=_WRITER_COUNT,
            max_overflow=0,
            hide_parameters=True,  # the log has no answers in it, whatever the statement that fails
        )
        self._reading = sa.create_engine(
            "postgresql+psycopg://",
            creator=self._connect_reader,
            pool_size=_READER_COUNT,
            max_overflow=0,
            hide_parameters=True,
        ).execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._outages = Outages(patience_s, self._sentence)
        self._readers = ThreadPoolExecutor(_READER_COUNT, thread_name_prefix="store-read")
        self._writers = ThreadPoolExecutor(_WRITER_COUNT, thread_name_prefix="store-write")
        self._free_names = SimpleQueue[str]()
        with self._translated():
            self._check_server()
        try:
            with self._translated():
                if migrates:
                    self._migrate()
                else:
                    self._wait_for_migrations(patience_s)
                with self._engine.begin() as connection:
                    for name in introduce(connection, tables.write_marks, _WRITER_COUNT):
                        self._free_names.put(name)
        except BaseException:
            self.close()
            raise
        self._failures.is_open = True

    @property
    def parameters(self) -> dict[str, Any]:
        """libpq's parameters, including the password, for further connections to the same database."""
        return dict(self._parameters)

    async def read(self, query: Callable[[sa.Connection], T]) -> T:
        """Run a query on a reading thread, on one snapshot, and return its result."""
        gave_up = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, query, gave_up)
        finally:
            gave_up.set()

    async def write(self, change: Callable[[sa.Connection], T], *, durable: bool = True) -> T:
        """Run a change in one transaction; it is durable when this returns, whatever the argument is.

        Cancelling the caller does not undo the change. The caller waits for it and is cancelled afterwards, so that its
        cleanup is stored after this change, not beside it.
        """
        gave_up = threading.Event()
        work = asyncio.wrap_future(self._writers.submit(self._write, change, gave_up))
        cancelled: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError as problem:
                cancelled = problem
                gave_up.set()
        if cancelled is not None:
            work.exception()  # retrieved: no caller is left
            raise cancelled
        return work.result()

    async def forget_deleted(self) -> None:
        """Do nothing: the server's vacuum does it, as its operator configures."""

    def close(self) -> None:
        """Finish pending writes and close the connections."""
        self._outages.close()
        for pool in (self._writers, self._readers):
            pool.shutdown(wait=True)
        for engine in (self._engine, self._reading):
            engine.dispose()

    def _read(self, query: Callable[[sa.Connection], T], gave_up: threading.Event) -> T:
        def attempt() -> T:
            with self._reading.connect() as connection, connection.begin():
                return query(connection)

        with self._translated():
            return self._outages.outlast(attempt, gave_up)

    def _write(self, change: Callable[[sa.Connection], T], gave_up: threading.Event) -> T:
        # One mark per change in progress: with a shared mark, none could tell its own commit.
        name = self._free_names.get()
        once = Change(change, self._tables.write_marks, name)

        def attempt() -> T:
            return once.carry_out(self._engine)

        try:
            with self._translated():
                return self._outages.outlast(attempt, gave_up)
        finally:
            self._free_names.put(name)

    def _connect(self, *, autocommit: bool = False) -> psycopg.Connection[Any]:
        return psycopg.connect(**self._parameters, autocommit=autocommit)

    def _connect_reader(self) -> psycopg.Connection[Any]:
        return psycopg.connect(**{**self._parameters, "options": f"{self._parameters['options']} {_READING}"})

    def _check_server(self) -> None:
        with contextlib.closing(self._connect(autocommit=True)) as connection:
            version = connection.info.server_version // 10_000
            if version < _OLDEST_VERSION:
                raise StorageError(f"{self._place} is PostgreSQL {version}: {_OLDEST_VERSION} or later is needed")
            row = connection.execute("SELECT current_setting('server_encoding'), current_schema()").fetchone()
        assert row is not None, "a query without FROM has one row"
        if row[0] != "UTF8":
            raise StorageError(
                f"{self._place} stores text as {row[0]}, which cannot hold every language: create the database with "
                "ENCODING 'UTF8'"
            )
        if row[1] is None:
            raise StorageError(f"{self._place} has none of the schemas of its search_path: create one")

    def _migrate(self) -> None:
        with self._engine.connect() as connection:
            if not self._needs_upgrade(connection):
                return
            # For the length of this transaction: another process that starts now waits, and finds the tables there.
            connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(%s, hashtext(current_schema()))", (UPGRADE_LOCK,))
            # Checked again under the lock: another process may have applied the migrations meanwhile.
            if self._needs_upgrade(connection):
                self._check_unused(connection)
                revisions.upgrade(connection, self._tables)

    def _wait_for_migrations(self, patience_s: float) -> None:
        """Wait until another process has updated the tables; this one may lack the right."""
        deadline = time.monotonic() + patience_s
        is_waiting = False
        while True:
            with self._engine.connect() as connection:
                if not self._needs_upgrade(connection):
                    return
                revision = revisions.read_revision(connection, self._tables)
            lacks = f"lacks migrations (schema {revision or 'none'}, this version needs {self._tables.head_revision})"
            if time.monotonic() >= deadline:
                remedy = "run `assay admin migrate` of this version"
                raise StorageError(f"{self._place} {lacks}: {remedy}", reason="MIGRATIONS_MISSING")
            if not is_waiting:
                _log.info("waiting for migrations: %s %s: timeout_s=%g", self._place, lacks, patience_s)
                is_waiting = True
            time.sleep(_MIGRATION_POLL_S)

    def _check_unused(self, connection: sa.Connection) -> None:
        """Raise if processes of an older version use the tables: their rows would not fit the new tables."""
        if names := self._tables.running_processes(connection):
            raise StorageError(
                f"{self._place} is used by processes of an older version ({', '.join(names)}): stop them, then start "
                "this version, which changes the tables"
            )

    def _needs_upgrade(self, connection: sa.Connection) -> bool:
        revision = revisions.read_revision(connection, self._tables)
        remedy = "choose another database with --database-url"
        return revisions.needs_upgrade(self._tables, revision, self._place, remedy)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sa.exc.DBAPIError, psycopg.Error) as problem:
            if is_data_exception(_original(problem)):
                raise UnstorableValueError(self._sentence(problem)) from problem
            shown = client_sentence(self._shown, _original(problem))
            raise self._failures.error(shown, self._sentence(problem)) from problem
        except sa.exc.TimeoutError as problem:
            says = "has no free connection: try again"
            raise self._failures.error(f"{self._shown} {says}", f"{self._place} {says}") from problem

    def _sentence(self, problem: BaseException) -> str:
        return sentence(self._place, _original(problem), str(self._parameters.get("password") or ""))


def _original(problem: BaseException) -> BaseException | None:
    return problem.orig if isinstance(problem, sa.exc.DBAPIError) else problem


def _parse(url: str, service: str) -> dict[str, Any]:
    """Return the parameters of connections; the URL's own settings override ours, except the isolation."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # its text may quote the password
        raise StorageError(
            "--database-url is not a URL that PostgreSQL understands: write postgresql://user:password@host:5432/name, "
            "with special characters of the password as %XX"
        ) from None
    ours = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
    given["options"] = f"{ours} {given.get('options') or ''} {_ISOLATION}"
    # No other process has this name, by which the sessions of one that stands still are found. PostgreSQL cuts it off
    # after 63 bytes.
    name = given.get("application_name") or f"assay-{service} {socket.gethostname()[:24]} {os.getpid()}"
    given["application_name"] = f"{str(name).encode('ascii', 'replace').decode()[:54]} {secrets.token_hex(4)}"
    return {**_KEEPALIVE, **given}


def _place(parameters: dict[str, Any]) -> str:
    host = parameters.get("host") or parameters.get("hostaddr") or os.environ.get("PGHOST") or "this machine"
    port = parameters.get("port") or os.environ.get("PGPORT") or "5432"
    name = parameters.get("dbname") or parameters.get("user") or "of the user's name"
    return f"the PostgreSQL database {name} at {host}:{port}"
