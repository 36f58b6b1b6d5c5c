"""The tables of a judge's own SQLite file: numbered migrations, counted by `PRAGMA user_version`.

To change a table, append a migration with the next number; one that was released is never edited, because files exist
that have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import SetupError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

_RELEASE = (
    """CREATE TABLE verdicts (
    team TEXT NOT NULL, key TEXT NOT NULL, used_at REAL NOT NULL, record TEXT NOT NULL, PRIMARY KEY (team, key)
) WITHOUT ROWID""",
    "CREATE INDEX verdicts_used ON verdicts (used_at)",
    """CREATE TABLE spending (
    team TEXT NOT NULL, run_id TEXT NOT NULL, nano INTEGER NOT NULL, changed_at REAL NOT NULL,
    lost_calls TEXT NOT NULL DEFAULT '', PRIMARY KEY (team, run_id)
) WITHOUT ROWID""",
    """CREATE TABLE batches (
    batch_id TEXT PRIMARY KEY, line TEXT NOT NULL, provider_id TEXT NOT NULL, created_at REAL NOT NULL,
    requests INTEGER NOT NULL
) WITHOUT ROWID""",
    """CREATE TABLE orders (
    item_id TEXT PRIMARY KEY, batch_id TEXT NOT NULL, line TEXT NOT NULL, key TEXT NOT NULL, run_id TEXT NOT NULL,
    cap INTEGER, reserved INTEGER NOT NULL, request TEXT NOT NULL, outcome TEXT, changed_at REAL NOT NULL,
    team TEXT NOT NULL
) WITHOUT ROWID""",
    "CREATE INDEX orders_by_key ON orders (key)",
    "CREATE INDEX orders_by_batch ON orders (batch_id, line)",
)
MIGRATIONS: tuple[Sequence[str], ...] = (_RELEASE,)
"""Migration 1, 2, …: each the SQL statements of one transaction."""


def apply_migrations(
    connection: sqlite3.Connection, place: str, migrations: Sequence[Sequence[str]] = MIGRATIONS
) -> None:
    """Apply the migrations that a database lacks, each in a transaction of its own that counts it.

    Args:
        connection: The database, in autocommit mode, with no transaction open.
        place: The database as users know it.
        migrations: All migrations, in order.

    Raises:
        SetupError: A newer version of Assay wrote the database; it is unchanged.
        sqlite3.Error: A migration failed; the database has the version and the rows that it had before it.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(migrations):
        raise SetupError(
            f"{place} was written by a newer version of Assay (schema {version}, this version knows up to "
            f"{len(migrations)}): upgrade Assay, or give another folder with --state-dir",
            reason="STATE_TOO_NEW",
        )
    for number, statements in enumerate(migrations, start=1):
        if number > version:
            _apply(connection, number, statements)


def _apply(connection: sqlite3.Connection, number: int, statements: Sequence[str]) -> None:
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements:  # one by one: executescript would commit the transaction first
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number}")
