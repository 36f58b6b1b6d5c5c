"""Bulk inserts, the fastest way for each database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def insert_rows(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert at least one row; all rows have the same columns.

    Raises:
        sqlalchemy.exc.IntegrityError: A row exists already; nothing is inserted.
    """
    if connection.dialect.name == "postgresql":
        _copy(connection, table, rows)
    else:
        _insert_by_position(connection, table, rows)


def _insert_by_position(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows in one statement of the driver: SQLAlchemy would process every value of every row."""
    processors = {column.name: column.type.bind_processor(connection.dialect) for column in table.c}
    names = list(rows[0])
    values = [
        [row[name] for row in rows] if (process := processors[name]) is None else [process(row[name]) for row in rows]
        for name in names
    ]
    marks = ", ".join("?" * len(names))
    statement = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608 - names of our own
    connection.exec_driver_sql(statement, list(zip(*values, strict=True)))


def _copy(connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
    import psycopg

    columns = [table.c[name] for name in rows[0]]
    dialect = connection.dialect
    processors = [(column.name, column.type.bind_processor(dialect) or _unchanged) for column in columns]
    statement = f"COPY {table.name} ({', '.join(name for name, _ in processors)}) FROM STDIN"
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection), "the dialect is psycopg's"
    try:
        with driver.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for row in rows:
                copy.write_row([process(row[name]) for name, process in processors])
    except psycopg.Error as problem:
        # As if SQLAlchemy had sent the statement, which cannot send this one.
        if driver.closed:
            connection.engine.dispose()
        raise sa.exc.DBAPIError.instance(statement, None, problem, psycopg.Error, dialect=dialect) from problem


def _unchanged(value: Any) -> Any:
    return value
