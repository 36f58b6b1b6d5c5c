"""Upgrades of the tables and views, on SQLite and on PostgreSQL."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from tests.integration.orchestrator.later_tables import NEXT_REVISION, later_tables

from assay.errors import StorageError
from assay.storage import revisions
from assay_orchestrator.store import schema, views
from assay_orchestrator.store.revisions import HEAD_REVISION, TABLES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.storage.database import Database

    Open = Callable[[], Database]

on_new_databases = pytest.mark.parametrize("database_url", ["sqlite", "new postgres"], indirect=True)


def described(engine: sa.Engine) -> dict[str, object]:
    """Return tables, columns, keys, indexes and views as the database holds them."""
    inspector = sa.inspect(engine)
    # Each of these asks once for all tables; table by table, PostgreSQL is asked for seconds.
    columns, keys = inspector.get_multi_columns(), inspector.get_multi_pk_constraint()
    options = inspector.get_multi_table_options()
    unique, indexes = inspector.get_multi_unique_constraints(), inspector.get_multi_indexes()
    foreign = inspector.get_multi_foreign_keys()
    tables: dict[str, object] = {
        str(name[1]): (
            [(column["name"], str(column["type"]), column["nullable"]) for column in found],
            keys[name]["constrained_columns"],
            options[name],
            sorted(str(one["column_names"]) for one in unique[name]),
            sorted(str(one["column_names"]) for one in indexes[name]),
            [(one["constrained_columns"], one["referred_columns"]) for one in foreign[name]],
            [column["default"] for column in found],
        )
        for name, found in columns.items()
        if name[1] != "alembic_version" and not name[1].startswith("procrastinate_")
    }
    for view in sorted(inspector.get_view_names()):
        # PostgreSQL writes the schema of a table that is not on the search path of whoever asks.
        tables[view] = re.sub(r"test_[0-9a-f]+\.", "", str(inspector.get_view_definition(view)))
    return tables


def empty(engine: sa.Engine) -> sa.Engine:
    """Remove everything from a database."""
    with engine.begin() as connection:
        for view in sa.inspect(connection).get_view_names():
            connection.exec_driver_sql(f"DROP VIEW {view}")
        schema.metadata.drop_all(connection)
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("DROP FUNCTION IF EXISTS keep_audit_entries")
    return engine


def first_rows(connection: sa.Connection) -> list[object]:
    """Return the rows that a new database begins with; of a key its name."""
    clock = connection.execute(sa.select(schema.fair_clock)).all()
    keys = connection.execute(sa.select(schema.signing_keys).order_by("name")).all()
    return [*map(tuple, clock), *((key.name, len(key.key_hex)) for key in keys)]


def triggers(connection: sa.Connection) -> list[tuple[object, ...]]:
    """Return the triggers of the audit, as the database holds them."""
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name"
    if connection.dialect.name == "postgresql":
        query = """
            SELECT tgname, tgtype, (SELECT prosrc FROM pg_proc WHERE pg_proc.oid = tgfoid) FROM pg_trigger
            WHERE tgrelid = 'audit_entries'::regclass AND NOT tgisinternal ORDER BY tgname
        """
    return [tuple(row) for row in connection.exec_driver_sql(query).all()]


@on_new_databases
def test_new_tables_are_those_of_the_schema(open_store: Open, engine: sa.Engine) -> None:
    """A new database has the tables and views that the schema declares."""
    open_store().close()
    with engine.connect() as connection:
        assert revisions.read_revision(connection, TABLES) == HEAD_REVISION
    found = described(engine)
    assert {"run_overview", "result_rows", "score_rows"} <= set(found)
    with empty(engine).begin() as connection:
        schema.create_all(connection)
        views.create_views(connection)
    assert found == described(engine)


@on_new_databases
def test_the_migrations_come_to_the_tables_of_the_schema(engine: sa.Engine) -> None:
    """What they make of an empty database is what a new one is made of: tables, views, triggers and first rows."""
    with engine.connect() as connection:
        revisions.upgrade(connection, TABLES)
        migrated = first_rows(connection), triggers(connection)
    migrated_tables = described(engine)
    with empty(engine).begin() as connection:
        TABLES.create(connection)
        assert (first_rows(connection), triggers(connection)) == migrated
    assert described(engine) == migrated_tables
    assert all(len(found) > 1 for found in migrated)


@on_new_databases
async def test_an_upgrade_keeps_what_is_stored(open_store: Open, engine: sa.Engine, tmp_path: Path) -> None:
    """A later version adds what it needs to a database of this one, and reads what that stored."""
    database = open_store()
    await database.write(
        lambda c: c.execute(schema.baselines.insert().values(team="t", name="n", run_id="r", set_at=""))
    )
    database.close()
    with engine.connect() as connection:
        revisions.upgrade(connection, later_tables(tmp_path))
        assert revisions.read_revision(connection, TABLES) == NEXT_REVISION
        found = connection.exec_driver_sql("SELECT team, name, run_id, note FROM baselines").all()
    assert [tuple(row) for row in found] == [("t", "n", "r", "none")]


@on_new_databases
def test_a_newer_database_is_refused(open_store: Open, engine: sa.Engine) -> None:
    """Tables that a newer version wrote are left alone, with a sentence that says what to do."""
    open_store().close()
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StorageError, match=r"newer version of Assay.*9999.*upgrade Assay, or choose another"):
        open_store()
    with engine.connect() as connection:
        assert revisions.read_revision(connection, TABLES) == "9999"
