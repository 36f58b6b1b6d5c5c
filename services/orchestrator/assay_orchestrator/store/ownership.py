"""Who may use a PostgreSQL database: one orchestrator at a time, by an advisory lock held for the process's life.

The lock belongs to a connection of its own. When the server restarts or ends that connection, the lock is gone;
before the next change is written it is taken again, and where somebody else has it by then, nothing is written.
"""

from __future__ import annotations

import contextlib
import select
import threading
from typing import TYPE_CHECKING, Any

import psycopg

from assay.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LOCK_CLASS", "Ownership"]

LOCK_CLASS = 0x41535359
"""First half of the lock's key; the second is the schema's name, so that schemas do not exclude each other."""

_TAKE = "SELECT pg_advisory_lock(%s, hashtext(current_schema()))"
_HOLDER = """
SELECT activity.application_name, activity.backend_start
FROM pg_locks AS locks JOIN pg_stat_activity AS activity ON activity.pid = locks.pid
WHERE locks.locktype = 'advisory' AND locks.granted AND locks.objsubid = 2
  AND locks.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND locks.classid = %s AND locks.objid = hashtext(current_schema())::bigint & 4294967295
"""


class Ownership:
    """The lock, taken at once.

    Args:
        connect: Opens a connection in autocommit mode.
        place: The database as users know it.
        patience_s: How long to wait for the lock, in seconds: a process that was just killed may still have it.

    Raises:
        StorageError: Another orchestrator has it.
        psycopg.Error: The database cannot be reached.
    """

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], place: str, patience_s: float) -> None:
        self._connect = connect
        self._place = place
        self._patience_ms = max(1, int(patience_s * 1000))  # 0 would be for ever
        self._mutex = threading.Lock()
        self._connection = self._take()

    def ensure(self) -> None:
        """Return when the lock is held still, or again.

        Raises:
            StorageError: Another orchestrator has it.
            psycopg.Error: The database cannot be reached.
        """
        with self._mutex:
            if not self._is_alive():
                self._connection.close()
                self._connection = self._take()

    def close(self) -> None:
        """Let another orchestrator have the database."""
        with self._mutex:
            self._connection.close()

    def _is_alive(self) -> bool:
        if self._connection.closed:
            return False
        # Nothing is ever asked on this connection, so there is nothing to read but its end, or a notice.
        waiting = select.poll()
        waiting.register(self._connection.fileno(), select.POLLIN)
        if not waiting.poll(0):
            return True
        with contextlib.suppress(psycopg.Error):
            self._connection.execute("SELECT 1")
            return True
        return False

    def _take(self) -> psycopg.Connection[Any]:
        connection = self._connect()
        try:
            connection.execute(f"SET lock_timeout = {self._patience_ms}")
            connection.execute(_TAKE, (LOCK_CLASS,))
        except psycopg.errors.LockNotAvailable:
            sentence = self._refusal(connection)
            connection.close()
            raise StorageError(sentence) from None
        except BaseException:
            connection.close()
            raise
        return connection

    def _refusal(self, connection: psycopg.Connection[Any]) -> str:
        holder = connection.execute(_HOLDER, (LOCK_CLASS,)).fetchone()
        who = f" ({holder[0]}, since {holder[1]:%Y-%m-%d %H:%M %Z})" if holder is not None and holder[0] else ""
        return (
            f"{self._place} is in use by another orchestrator{who}: a database has one orchestrator at a time; use "
            "that one with --server, stop it, or give this one another database with --database-url"
        )
