"""The database protocol, and the choice between its two implementations."""

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
    """Reads and writes, each in a transaction of its own."""

    async def read(self, query: Callable[[sa.Connection], T]) -> T:
        """Run a query off the event loop and return its result; it reads one snapshot.

        A query, as a change, may be run again from the start after its connection broke.

        Raises:
            StorageError: The database cannot be read.
        """

    async def write(self, change: Callable[[sa.Connection], T]) -> T:
        """Run a change in one transaction; when this returns, it is durable.

        A caller that is cancelled while it waits does not undo the change: it is finished regardless, and a
        change that is handed in later finds it done.

        Raises:
            StorageError: The database cannot be written; nothing of the change is stored, or, where the
                connection broke in the last moment and did not come back, all of it.
        """


class Database(Transactions, Protocol):
    """The database of a service; the code that opened it closes it."""

    async def write(self, change: Callable[[sa.Connection], T], *, durable: bool = True) -> T:
        """Run a change in one transaction, as in `Transactions`.

        Args:
            change: What to do.
            durable: Whether the change outlives a power cut. Without it, SQLite does not wait for the disk; the change
                still outlives the process.
        """

    async def forget_deleted(self) -> None:
        """Remove deleted data from the files as well, as far as the database can while it is in use."""

    def close(self) -> None:
        """Finish pending writes and release the database to other processes."""


def open_database(
    tables: ServiceTables, *, path: Path, url: str = "", patience_s: float = 60.0, migrates: bool = True
) -> Database:
    """Open the database at a URL, or else in a file, and bring its tables up to date.

    Args:
        tables: The tables of the service.
        path: The SQLite file.
        url: The PostgreSQL database that is used instead; empty for the file.
        patience_s: How long a PostgreSQL that went away is waited for, in seconds.
        migrates: Whether migrations that a PostgreSQL lacks are applied here, or waited for as long as for the server.

    Raises:
        StorageError: It cannot be opened, another process has the file, it lacks migrations that are not applied here,
            or a newer version wrote it.
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
