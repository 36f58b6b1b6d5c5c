"""The queue's tables, frozen as one revision makes them, beside those that the installed procrastinate makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
import sqlalchemy as sa
from procrastinate.schema import SchemaManager

from assay.storage import revisions
from assay_orchestrator.store.revisions import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Make = Callable[[psycopg.Connection], None]

# Everything of a schema that procrastinate makes; names are those without their schema.
_COLUMNS = """
SELECT relname, attname, format_type(atttypid, atttypmod), attnotnull, attidentity, pg_get_expr(adbin, adrelid)
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid AND relkind IN ('r', 'v')
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE relnamespace = current_schema()::regnamespace AND relname LIKE 'procrastinate%' AND attnum > 0
ORDER BY relname, attnum
"""
_INDEXES = "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename LIKE 'procrastinate%'"
_CONSTRAINTS = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = current_schema()::regnamespace AND conrelid::regclass::text LIKE '%procrastinate%'
"""
_FUNCTIONS = """
SELECT pg_get_functiondef(oid) FROM pg_proc
WHERE pronamespace = current_schema()::regnamespace AND proname LIKE 'procrastinate%'
"""
_TRIGGERS = """
SELECT pg_get_triggerdef(pg_trigger.oid) FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE NOT tgisinternal AND relnamespace = current_schema()::regnamespace AND relname LIKE 'procrastinate%'
"""
_TYPES = """
SELECT typname, enumlabel FROM pg_type JOIN pg_enum ON enumtypid = pg_type.oid
WHERE typnamespace = current_schema()::regnamespace ORDER BY typname, enumsortorder
"""


def described(connection: psycopg.Connection) -> list[str]:
    """Return all that the current schema holds of the queue, without the schema's name."""
    name = connection.execute("SELECT current_schema()").fetchone()
    assert name is not None
    return [
        str(line).replace(f"{name[0]}.", "")
        for query in (_COLUMNS, _INDEXES, _CONSTRAINTS, _FUNCTIONS, _TRIGGERS, _TYPES)
        for line in sorted(connection.execute(query.encode()).fetchall(), key=str)
    ]


@pytest.fixture
def connection(postgres_url: str) -> Iterator[psycopg.Connection]:
    """Return a connection to an empty schema."""
    with psycopg.connect(postgres_url) as made:
        yield made


def test_a_new_database_has_the_queue_of_the_installed_version(
    connection: psycopg.Connection, postgres_url: str
) -> None:
    """The migrations give a new database the columns, keys, functions and triggers that procrastinate gives it."""
    connection.execute(SchemaManager.get_schema().encode())
    installed = described(connection)
    connection.rollback()
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(postgres_url))
    with engine.connect() as own:
        revisions.upgrade(own, TABLES)
    engine.dispose()
    migrated = described(connection)
    assert len(installed) > 50
    assert migrated == installed
