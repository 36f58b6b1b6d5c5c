"""SQL that differs between PostgreSQL and SQLite."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy.dialects import postgresql, sqlite


class DatabaseTime(sa.sql.functions.FunctionElement[float]):
    """The current time by the database's clock, in seconds since 1970."""

    type = sa.Float(53)
    inherit_cache = True


_TIMES = {
    "postgresql": "CAST(EXTRACT(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)",
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
}
compiles(DatabaseTime)(lambda _, compiler, **__: _TIMES[compiler.dialect.name])


def insert_into(table: sa.Table, dialect: str) -> postgresql.Insert | sqlite.Insert:
    """Return an insert that supports ON CONFLICT.

    Args:
        table: The table.
        dialect: `sqlite` or `postgresql`.
    """
    # Imported here because a judge uses only one of the two dialects.
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def has(column: sa.Column[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a column equals the parameter `its_NAME`, for statements that are built once.

    SQLAlchemy reserves the plain name for the value that a statement stores.
    """
    return column == sa.bindparam(f"its_{column.name}", type_=column.type)


def is_among(
    connection: sa.Connection, column: sa.ColumnElement[str], names: Collection[str]
) -> sa.ColumnElement[bool]:
    """Return the condition that a column has one of many values.

    The values are a single parameter, because both databases limit the number of parameters.
    """
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return column == sa.any_(sa.literal(list(names), postgresql.ARRAY(sa.Text)))
    values = sa.func.json_each(json.dumps(list(names))).table_valued("value")
    return column.in_(sa.select(values.c.value))
