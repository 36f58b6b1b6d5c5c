"""A judge's own SQLite file of any version: brought up to date with its rows, refused, or left as it was."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from assay.errors import SetupError
from assay.judging.rubric import Criterion, Rubric
from assay.model.scope import LOCAL
from assay_judge.batches.store import BatchRecord, BatchStore
from assay_judge.model import Asker, RunKey
from assay_judge.state.migrations import MIGRATIONS, apply_migrations
from assay_judge.state.store import JudgeStore

if TYPE_CHECKING:
    from pathlib import Path

NOW = 1_800_000_000.0
LINE = '["openai", "gpt-4o-mini", "", ""]'
RUBRIC = Rubric("ours", "How good it is.", (Criterion("score", "Is it right?"),), 1, 5, whole=True)

# What the judge ran before its versions were counted, statement by statement and each committed by itself: the first
# three since its first version, the other four since it has batches. No release had other tables.
UNCOUNTED = """
CREATE TABLE IF NOT EXISTS verdicts (
    key TEXT PRIMARY KEY, used_at REAL NOT NULL, record TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS verdicts_used ON verdicts (used_at);
CREATE TABLE IF NOT EXISTS spending (
    run_id TEXT PRIMARY KEY, nano INTEGER NOT NULL, changed_at REAL NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS batches (
    batch_id TEXT PRIMARY KEY, line TEXT NOT NULL, provider_id TEXT NOT NULL, created_at REAL NOT NULL,
    requests INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS orders (
    item_id TEXT PRIMARY KEY, batch_id TEXT NOT NULL, line TEXT NOT NULL, key TEXT NOT NULL, run_id TEXT NOT NULL,
    cap INTEGER, reserved INTEGER NOT NULL, request TEXT NOT NULL, outcome TEXT, changed_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS orders_by_key ON orders (key);
CREATE INDEX IF NOT EXISTS orders_by_batch ON orders (batch_id, line);
"""
STATEMENTS = UNCOUNTED.split(";")[:-1]
SINCE_BATCHES = len(STATEMENTS)

# As the first version with batches wrote them.
REQUEST = """
{"judge": {"provider": "openai", "model": "gpt-4o-mini", "base_url": "", "key_variable": "", "temperature": 0.1,
 "max_tokens": 2048}, "rubric": {"name": "ours", "description": "How good it is.", "criteria": [{"name": "score",
 "description": "Is it right?", "anchors": [[1.0, "wrong"], [5.0, "right"]], "optional": false}], "minimum": 1,
 "maximum": 5, "whole": true, "compares": false, "judges_trivial": false, "instructions": "", "examples": []},
 "material": {"question": "Capital of France?", "answer": "Paris", "second": null, "reference": null, "contexts": []},
 "prompt": {"system": "s", "call": "c", "user": "u", "verdict_id": "00000000000000000000000000000000"},
 "sent": {"max_tokens": 2048, "temperature": 0.1, "form": "schema", "token_field": "max_tokens", "swapped": false},
 "turn": 1, "tally": {"calls": 0, "tokens": [], "cost": null, "last_problem": "", "throttled": false,
 "temperature": null, "tries": []}}
"""
OUTCOME = """
{"status": "invalid", "reason": "refused", "message": "no", "verdict": null, "temperature": null,
 "model": "gpt-4o-mini", "tally": {"calls": 1, "tokens": [], "cost": 30, "last_problem": "", "throttled": false,
 "temperature": null, "tries": []}}
"""
LATER_PARTS = {"round": 2, "orders": 3, "reservation": "set aside"}
"""What later versions, still without counted versions, wrote into a request besides."""


def write_uncounted(folder: Path, statements: int = SINCE_BATCHES, request: str = REQUEST) -> None:
    """Write a judge.db of before versions were counted, with rows in each table that it has."""
    rows: dict[str, list[tuple[Any, ...]]] = {
        "verdicts": [("key-0", NOW, '{"score": 4}')],
        "spending": [("run-1", 80, NOW)],
        "batches": [("batch-1", LINE, "provider's", NOW, 1)],
        "orders": [
            ("item-1", "batch-1", LINE, "key-1", "run-1", 1_000, 70, request, None, NOW),
            ("item-2", "batch-1", LINE, "key-2", "run-1", None, 0, "", OUTCOME, NOW),
        ],
    }
    with closing(sqlite3.connect(folder / "judge.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        for statement in STATEMENTS[:statements]:
            database.execute(statement)
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            places = ", ".join("?" * len(rows[table][0]))
            database.executemany(f"INSERT INTO {table} VALUES ({places})", rows[table])


def contents(folder: Path) -> list[str]:
    """Return a judge.db as SQL, and its version."""
    with closing(sqlite3.connect(folder / "judge.db")) as database:
        return [*database.iterdump(), str(version_of(database))]


def schema_of(database: sqlite3.Connection) -> list[tuple[str, ...]]:
    return database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()


def version_of(database: sqlite3.Connection) -> int:
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    return version


def of_before_teams(line: str) -> str:
    """Return the statement of a row with its team, that of all that was stored before there were teams."""
    if '"orders"' in line:
        return line.replace(");", ",'default');")
    if '"spending"' in line:
        line = line.replace(");", ",'');")
    return line if '"batches"' in line else line.replace("VALUES(", "VALUES('default',")


@pytest.mark.parametrize("statements", range(SINCE_BATCHES + 1))
async def test_every_earlier_layout_becomes_that_of_a_new_file(tmp_path: Path, statements: int) -> None:
    """Files of before batches and since, and of a process that was killed while it made its tables."""
    write_uncounted(tmp_path, statements)
    with closing(sqlite3.connect(tmp_path / "judge.db")) as database:
        kept = [line for line in database.iterdump() if line.startswith("INSERT")]
    await (await JudgeStore.open(tmp_path)).aclose()
    (tmp_path / "new").mkdir()
    await (await JudgeStore.open(tmp_path / "new")).aclose()
    with (
        closing(sqlite3.connect(tmp_path / "judge.db")) as old,
        closing(sqlite3.connect(tmp_path / "new" / "judge.db")) as new,
    ):
        assert schema_of(old) == schema_of(new)
        assert len(schema_of(new)) >= SINCE_BATCHES
        assert version_of(old) == version_of(new) == len(MIGRATIONS)
        assert [line for line in old.iterdump() if line.startswith("INSERT")] == list(map(of_before_teams, kept))


@pytest.mark.parametrize("later", [{}, LATER_PARTS], ids=["first version with batches", "last uncounted version"])
async def test_an_upgrade_loses_no_verdict_spending_order_or_outcome(tmp_path: Path, later: dict[str, Any]) -> None:
    """What earlier versions stored and paid for is found and read by this one."""
    write_uncounted(tmp_path, request=json.dumps({**json.loads(REQUEST), **later}))
    store = await JudgeStore.open(tmp_path)
    try:
        batches = await BatchStore.open(store, NOW)
        assert (await store.verdict(LOCAL, "key-0"), await store.spending(RunKey("default", "run-1"))) == (
            {"score": 4},
            80,
        )
        assert await batches.batches() == [BatchRecord("batch-1", LINE, "provider's", NOW, 1)]
        assert [(order.item_id, order.reserved) for order in await batches.open_orders()] == [("item-1", 70)]
        (order,) = await batches.orders("batch-1")
        assert (order.material.answer, order.cap, order.client_key) == ("Paris", 1_000, LINE)
        assert {"round": order.round, "orders": order.orders, "reservation": order.reservation} == {
            "round": 0, "orders": 1, "reservation": "", **later
        }  # fmt: skip
        outcome = await batches.fetch(LOCAL, "key-2", "run-1", RUBRIC, Asker("row-1"))
        assert outcome is not None
        assert (outcome.reason, outcome.usage.cost) == ("refused", 30)
    finally:
        await store.aclose()


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


@pytest.mark.parametrize("at", range(len(MIGRATIONS)))
def test_a_migration_that_fails_leaves_the_version_before_it(tmp_path: Path, at: int) -> None:
    """Rows and tables that it changed before it failed are as they were; applied again, it succeeds."""
    write_uncounted(tmp_path)
    broken = (*MIGRATIONS[:at], ("DELETE FROM orders", *MIGRATIONS[at], "DROP TABLE spending", "no SQL"))
    with closing(sqlite3.connect(tmp_path / "judge.db", isolation_level=None)) as database:
        apply_migrations(database, "judge.db", MIGRATIONS[:at])
        before = contents(tmp_path)
        with pytest.raises(sqlite3.OperationalError, match="syntax error"):
            apply_migrations(database, "judge.db", broken)
        assert not database.in_transaction
        assert contents(tmp_path) == before
        apply_migrations(database, "judge.db")
        assert version_of(database) == len(MIGRATIONS)


def test_a_kill_in_the_middle_of_a_migration_leaves_the_version_before_it(tmp_path: Path) -> None:
    """As above, by SIGKILL, after which another process opens the file."""
    write_uncounted(tmp_path)
    before = contents(tmp_path)
    code = (
        "import os, signal, sqlite3, sys\n"
        "from assay_judge.state.migrations import MIGRATIONS, apply_migrations\n"
        "database = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "database.execute('PRAGMA cache_size = 1')\n"
        "database.create_function('die', 0, lambda: os.kill(os.getpid(), signal.SIGKILL))\n"
        "apply_migrations(database, 'judge.db', (('DELETE FROM orders', *MIGRATIONS[0], 'SELECT die()'),))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "judge.db")], check=False)
    assert done.returncode == -signal.SIGKILL
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
