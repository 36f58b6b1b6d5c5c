"""The database protocol, and the choice of its implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from assay.errors import SetupError
from assay.local_stack.install_hint import install_hint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import sqlalchemy as sa

    from assay.storage.tables import ServiceTables

T = TypeVar("T")


class Transactions(Protocol):
    """Reads and writes, each in its own transaction."""

    async def read(self, query: Callable[[sa.Connection], T]) -> T:
        """Run a query off the event loop, on one snapshot, and return its result.

        Queries and changes may be repeated from the start if the connection breaks.

        Raises:
            StorageError: The database cannot be read.
        """

    async def write(self, change: Callable[[sa.Connection], T]) -> T:
        """Run a change in one transaction; when this returns, it is durable.

        Cancelling the caller does not undo the change: it completes, and a later change sees it.

        Raises:
            StorageError: The database cannot be written. Nothing of the change is stored, or all of it if the
                connection broke during the commit and did not come back.
        """


class Database(Transactions, Protocol):
    """The database of a service; the code that opened it closes it."""

    async def write(self, change: Callable[[sa.Connection], T], *, durable: bool = True) -> T:
        """Run a change in one transaction, as in `Transactions`.

        Args:
            change: What to do.
            durable: Whether the change survives a power failure. If not, SQLite does not wait for the disk; the change
                still survives the process.
        """

    async def forget_deleted(self) -> None:
        """Remove deleted data from the files too, as far as the database can do that in use."""

    def close(self) -> None:
        """Finish pending writes and release the database for other processes."""


def open_database(
    tables: ServiceTables, *, path: Path, url: str = "", patience_s: float = 60.0, migrates: bool = True
) -> Database:
    """Open the database at a URL, or else in a file, and update its tables.

    Args:
        tables: The tables of the service.
        path: The SQLite file.
        url: A PostgreSQL database to use instead; empty for the file.
        patience_s: How long to wait for an unreachable PostgreSQL, in seconds.
        migrates: Whether missing migrations of PostgreSQL are applied here; otherwise this waits for them, as long as
            for the server.

    Raises:
        StorageError: It cannot be opened, another process has the file, migrations are missing and not applied here, or
            a newer version wrote it.
        SetupError: The driver for PostgreSQL is not installed.
    """
    if url:
        try:
            from assay.storage.postgres import PostgresDatabase
        except ImportError as problem:
            raise SetupError(
                f"the driver for PostgreSQL cannot be used ({problem}): {install_hint('postgres')}"
            ) from problem
        return PostgresDatabase(url, tables, patience_s=patience_s, migrates=migrates)
    from assay.storage.sqlite import SqliteDatabase

    return SqliteDatabase(path, tables)
