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

# Files that were written before versions were counted have version 0 and some or all of these tables, with the same
# columns. That is why the first two migrations say IF NOT EXISTS; later ones must not.
_VERDICTS_AND_SPENDING = (
    """CREATE TABLE IF NOT EXISTS verdicts (
    key TEXT PRIMARY KEY, used_at REAL NOT NULL, record TEXT NOT NULL
) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS verdicts_used ON verdicts (used_at)",
    """CREATE TABLE IF NOT EXISTS spending (
    run_id TEXT PRIMARY KEY, nano INTEGER NOT NULL, changed_at REAL NOT NULL
) WITHOUT ROWID""",
)
_BATCHES_AND_ORDERS = (
    """CREATE TABLE IF NOT EXISTS batches (
    batch_id TEXT PRIMARY KEY, line TEXT NOT NULL, provider_id TEXT NOT NULL, created_at REAL NOT NULL,
    requests INTEGER NOT NULL
) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS orders (
    item_id TEXT PRIMARY KEY, batch_id TEXT NOT NULL, line TEXT NOT NULL, key TEXT NOT NULL, run_id TEXT NOT NULL,
    cap INTEGER, reserved INTEGER NOT NULL, request TEXT NOT NULL, outcome TEXT, changed_at REAL NOT NULL
) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS orders_by_key ON orders (key)",
    "CREATE INDEX IF NOT EXISTS orders_by_batch ON orders (batch_id, line)",
)
# What is stored belongs to a team; what was stored before belongs to the team "default".
_TEAMS = (
    """CREATE TABLE verdicts_of_teams (
    team TEXT NOT NULL, key TEXT NOT NULL, used_at REAL NOT NULL, record TEXT NOT NULL, PRIMARY KEY (team, key)
) WITHOUT ROWID""",
    "INSERT INTO verdicts_of_teams SELECT 'default', key, used_at, record FROM verdicts",
    "DROP TABLE verdicts",
    "ALTER TABLE verdicts_of_teams RENAME TO verdicts",
    "CREATE INDEX verdicts_used ON verdicts (used_at)",
    """CREATE TABLE spending_of_teams (
    team TEXT NOT NULL, run_id TEXT NOT NULL, nano INTEGER NOT NULL, changed_at REAL NOT NULL,
    PRIMARY KEY (team, run_id)
) WITHOUT ROWID""",
    "INSERT INTO spending_of_teams SELECT 'default', run_id, nano, changed_at FROM spending",
    "DROP TABLE spending",
    "ALTER TABLE spending_of_teams RENAME TO spending",
    "ALTER TABLE orders ADD COLUMN team TEXT NOT NULL DEFAULT 'default'",
)
_LOST_CALLS = ("ALTER TABLE spending ADD COLUMN lost_calls TEXT NOT NULL DEFAULT ''",)
MIGRATIONS: tuple[Sequence[str], ...] = (_VERDICTS_AND_SPENDING, _BATCHES_AND_ORDERS, _TEAMS, _LOST_CALLS)
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
