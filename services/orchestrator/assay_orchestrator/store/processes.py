"""The live orchestrators of a PostgreSQL database: each proves by an advisory lock that it lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlalchemy as sa

ALIVE_CLASS = "hashtext('assay worker ' || current_schema())"
"""The first half of the lock's key, an SQL expression shared by all versions; the second half is the worker's id."""

_RUNNING = f"""
SELECT DISTINCT session.application_name
FROM pg_locks AS lock
JOIN pg_stat_activity AS session ON session.pid = lock.pid
WHERE lock.locktype = 'advisory' AND lock.objsubid = 2
  AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND lock.classid = ({ALIVE_CLASS}::bigint & 4294967295)::oid
ORDER BY session.application_name
"""  # noqa: S608 - of constants


def running_processes(connection: sa.Connection) -> list[str]:
    """Return the session names of the orchestrators that use the tables of the current schema."""
    return [str(name) for (name,) in connection.exec_driver_sql(_RUNNING)]
