"""The database: migrations, locks, durability of what is written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from assay.errors import StorageError
from assay_orchestrator.store import results, schema
from assay_orchestrator.store.database import HEAD_REVISION, Database, _upgrade

if TYPE_CHECKING:
    from pathlib import Path


def described(engine: sa.Engine) -> dict[str, object]:
    """Return tables, columns, keys and indexes as the database holds them."""
    inspector = sa.inspect(engine)
    return {
        table: (
            [(column["name"], str(column["type"]), column["nullable"]) for column in inspector.get_columns(table)],
            inspector.get_pk_constraint(table)["constrained_columns"],
            sorted(str(unique["column_names"]) for unique in inspector.get_unique_constraints(table)),
            sorted(str(index["column_names"]) for index in inspector.get_indexes(table)),
        )
        for table in sorted(inspector.get_table_names())
        if table != "alembic_version"
    }


def test_migrations_lead_to_the_schema(tmp_path: Path) -> None:
    """A database that was upgraded step by step has the same tables as a new one."""
    engines = {}
    for name in ("new", "first"):
        engines[name] = sa.create_engine(f"sqlite:///{tmp_path}/{name}.db", poolclass=sa.NullPool)
    with engines["first"].connect() as connection:
        _upgrade(connection, "0001")
    for name in ("new", "first"):
        Database(tmp_path / f"{name}.db").close()
        with engines[name].connect() as connection:
            assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar() == HEAD_REVISION
    assert described(engines["first"]) == described(engines["new"])


async def test_an_upgrade_keeps_what_is_stored(tmp_path: Path) -> None:
    """Answers and results that the first version stored are read as before by this one."""
    engine = sa.create_engine(f"sqlite:///{tmp_path}/assay.db", poolclass=sa.NullPool)
    with engine.connect() as connection:
        _upgrade(connection, "0001")
        connection.exec_driver_sql(
            'INSERT INTO answers VALUES (\'r\', 0, 0, \'{"status": "success", "text": "yes"}\', \'t\')'
        )
        connection.exec_driver_sql(
            "INSERT INTO results VALUES ('r', 0, 0, 1, 'c', '', 'success', 1, 2.5, '', '[]', 't')"
        )
        connection.commit()
    database = Database(tmp_path / "assay.db")
    try:
        answers = await database.read(lambda c: results.stored_answers(c, "r", 0, 1))
        rows = await database.read(lambda c: results.read_sequence(c, "r", 0, 9))
    finally:
        database.close()
    assert {key: [answer.text for answer in turns] for key, turns in answers.items()} == {(0, 0): ["yes"]}
    assert [(row.case_id, row.passed, row.tags, row.weight, row.answer_vector) for row in rows] == [
        ("c", True, (), 1.0, b"")
    ]


def test_nobody_else_may_read_the_file(tmp_path: Path) -> None:
    """The database holds a team's data: it and its log are for its owner alone, whatever the umask."""
    before = os.umask(0)
    try:
        database = Database(tmp_path / "assay.db")
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        database.close()
    finally:
        os.umask(before)
    assert set(modes.values()) == {0o600}
    assert "assay.db" in modes


def test_a_second_user_of_the_file_is_refused(tmp_path: Path) -> None:
    """Two databases on one file: the second is refused with the first one's process id; a closed one is not."""
    first = Database(tmp_path / "assay.db")
    with pytest.raises(StorageError, match="in use by another orchestrator"):
        Database(tmp_path / "assay.db")
    first.close()
    Database(tmp_path / "assay.db").close()


async def test_writes_are_durable_and_atomic(tmp_path: Path) -> None:
    """A database is in WAL mode with full sync, and a change that raises leaves nothing behind."""
    database = Database(tmp_path / "assay.db")
    try:
        mode = await database.write(lambda c: c.exec_driver_sql("PRAGMA journal_mode").scalar())
        sync = await database.write(lambda c: c.exec_driver_sql("PRAGMA synchronous").scalar())
        assert (mode, sync) == ("wal", 2)

        def half(connection: sa.Connection) -> None:
            connection.execute(
                schema.datasets.insert().values(
                    dataset_id="d", upload_id="u", name="n", format="f", case_count=1, created_at="now"
                )
            )
            raise KeyError("in the middle")

        with pytest.raises(KeyError):
            await database.write(half)
        count = await database.read(
            lambda c: c.execute(sa.select(sa.func.count()).select_from(schema.datasets)).scalar()
        )
        assert count == 0
    finally:
        database.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """A damaged or foreign file is a sentence that says what to do."""
    (tmp_path / "assay.db").write_text("this is not a database, it is a letter to my aunt. " * 40)
    with pytest.raises(StorageError, match="not an Assay database"):
        Database(tmp_path / "assay.db")
