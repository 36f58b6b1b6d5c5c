"""A time limit on the queries of a block."""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.errors import DeadlineError

if TYPE_CHECKING:
    from collections.abc import Iterator

_STEPS = 10_000  # of SQLite's machine between two looks at the clock: about a millisecond


@contextmanager
def time_limit(connection: sa.Connection, limit_s: float, remedy: str) -> Iterator[None]:
    """Interrupt the queries of a block that take too long.

    On PostgreSQL, the limit is for each statement until the transaction ends.

    Args:
        connection: The connection of the queries, in a transaction.
        limit_s: The limit, in seconds.
        remedy: What the caller can do, after "the query took longer than 10 s: ".

    Raises:
        DeadlineError: They took longer (reason QUERY_TIMEOUT).
    """
    driver = connection.connection.driver_connection
    timeout = DeadlineError(f"the query took longer than {limit_s:g} s: {remedy}", reason="QUERY_TIMEOUT")
    if isinstance(driver, sqlite3.Connection):
        deadline = time.monotonic() + limit_s
        driver.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
        try:
            yield
        except (sa.exc.OperationalError, sqlite3.OperationalError) as problem:
            if "interrupted" not in str(problem):
                raise
            raise timeout from problem
        finally:
            driver.set_progress_handler(None, 0)
        return
    try:
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {round(limit_s * 1000)}")
        yield
    except sa.exc.OperationalError as problem:
        if getattr(problem.orig, "sqlstate", None) != "57014":
            raise
        raise timeout from problem
