"""The tables of procrastinate, the queue that several processes share: one file per revision, for PostgreSQL only.

Each file contains the statements of its revision, whichever version of procrastinate is installed. A version that
needs other tables brings a migration and a file of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["NEWEST", "create_queue_tables"]

NEWEST = "0001"


def create_queue_tables(connection: sa.Connection, revision: str = NEWEST) -> None:
    """Create the tables and functions of a revision if they do not exist, in the connection's transaction."""
    if connection.exec_driver_sql("SELECT to_regclass('procrastinate_jobs')").scalar() is None:
        path = Path(__file__).parent / f"{revision}_postgresql.sql"
        # On the driver itself: SQLAlchemy would take the percent signs in the functions for parameters.
        driver = connection.connection.driver_connection
        assert driver is not None, "a connection in a transaction has the driver's"
        driver.execute(path.read_text(encoding="utf-8"))
