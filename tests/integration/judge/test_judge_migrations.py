"""A judge's own SQLite file: brought up to date with its rows, refused, or left as it was."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from assay.errors import SetupError
from assay_judge.state.migrations import MIGRATIONS, apply_migrations
from assay_judge.state.store import JudgeStore

if TYPE_CHECKING:
    from pathlib import Path

NEXT = ("DELETE FROM orders", "ALTER TABLE verdicts ADD COLUMN note TEXT")
"""A migration of a later version."""


async def write_file(folder: Path) -> None:
    """Write a judge.db of this version, with a row of a table that `NEXT` empties."""
    await (await JudgeStore.open(folder)).aclose()
    with closing(sqlite3.connect(folder / "judge.db", isolation_level=None)) as database:
        values = ("item", "batch", "[]", "key", "run", None, 70, "{}", None, 1.0, "local")
        database.execute(f"INSERT INTO orders VALUES ({', '.join('?' * len(values))})", values)


def contents(folder: Path) -> list[str]:
    """Return a judge.db as SQL, and its version."""
    with closing(sqlite3.connect(folder / "judge.db")) as database:
        return [*database.iterdump(), str(version_of(database))]


def version_of(database: sqlite3.Connection) -> int:
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    return version


async def test_a_database_of_a_newer_version_is_refused_and_unchanged(tmp_path: Path) -> None:
    """The sentence names the file and the remedies; the folder is free again afterwards."""
    await (await JudgeStore.open(tmp_path)).aclose()
    newer = len(MIGRATIONS) + 1
    with closing(sqlite3.connect(tmp_path / "judge.db")) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute(f"PRAGMA user_version = {newer}")
    before = (tmp_path / "judge.db").read_bytes()
    for _ in range(2):
        with pytest.raises(SetupError, match="upgrade Assay, or give another folder with --state-dir") as refused:
            await JudgeStore.open(tmp_path)
        assert refused.value.reason == "STATE_TOO_NEW"
        assert f"{tmp_path / 'judge.db'} was written by a newer version of Assay (schema {newer}" in str(refused.value)
    assert (tmp_path / "judge.db").read_bytes() == before


async def test_a_migration_that_fails_leaves_the_version_before_it(tmp_path: Path) -> None:
    """Rows and tables that it changed before it failed are as they were; applied again, it succeeds."""
    await write_file(tmp_path)
    before = contents(tmp_path)
    with closing(sqlite3.connect(tmp_path / "judge.db", isolation_level=None)) as database:
        with pytest.raises(sqlite3.OperationalError, match="syntax error"):
            apply_migrations(database, "judge.db", (*MIGRATIONS, (*NEXT, "DROP TABLE spending", "no SQL")))
        assert not database.in_transaction
        assert contents(tmp_path) == before
        apply_migrations(database, "judge.db", (*MIGRATIONS, NEXT))
        assert version_of(database) == len(MIGRATIONS) + 1


async def test_a_kill_in_the_middle_of_a_migration_leaves_the_version_before_it(tmp_path: Path) -> None:
    """As above, by SIGKILL, after which another process opens the file."""
    await write_file(tmp_path)
    before = contents(tmp_path)
    code = (
        "import os, signal, sqlite3, sys\n"
        "from assay_judge.state.migrations import MIGRATIONS, apply_migrations\n"
        "database = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "database.execute('PRAGMA cache_size = 1')\n"
        "database.create_function('die', 0, lambda: os.kill(os.getpid(), signal.SIGKILL))\n"
        "apply_migrations(database, 'judge.db', (*MIGRATIONS, ('DELETE FROM orders', 'SELECT die()')))\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, tmp_path / "judge.db")
    assert await process.wait() == -signal.SIGKILL
    assert contents(tmp_path) == before


async def test_an_opened_database_is_not_migrated_again(tmp_path: Path) -> None:
    """The second opening writes no schema: SQLite counts each change of it."""
    versions = []
    for _ in range(2):
        await (await JudgeStore.open(tmp_path)).aclose()
        with closing(sqlite3.connect(tmp_path / "judge.db")) as database:
            versions.append(database.execute("PRAGMA schema_version").fetchone())
    assert versions[0] == versions[1]


def test_a_judge_with_a_file_of_its_own_imports_no_sqlalchemy() -> None:
    """A laptop's judge needs neither SQLAlchemy nor alembic, which are extras of the services with PostgreSQL."""
    code = (
        "import asyncio, sys, assay_judge.__main__, assay_judge.resources\n"
        "from assay_judge.state.store import JudgeStore\n"
        "async def main():\n    await (await JudgeStore.open(None)).aclose()\n"
        "asyncio.run(main())\n"
        "print(sorted({'sqlalchemy', 'alembic', 'assay.storage'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
