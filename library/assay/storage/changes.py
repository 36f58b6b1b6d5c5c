"""Changes that take effect once even if the connection breaks before their commit is confirmed.

Every change leaves a mark in the transaction that carries it out. Where the connection broke in the commit, the mark
says afterwards whether that took place. PostgreSQL's own answer (`pg_xact_status`) does not do: a server that was
killed may give the number of a transaction that it lost to another one.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_KEPT = timedelta(days=7)


def introduce(connection: sa.Connection, table: sa.Table, count: int) -> list[str]:
    """Return the names of a new process's writers, each of which makes one change at a time.

    Those of processes that are gone are removed after a week; one that is older and still there comes back with its
    next change.
    """
    moment = datetime.now(UTC)
    names = [f"{moment:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex}" for _ in range(count)]
    connection.execute(table.delete().where(table.c.writer < f"{moment - _KEPT:%Y%m%dT%H%M%SZ}"))
    connection.execute(table.insert(), [{"writer": name, "mark": ""} for name in names])
    return names


class Change(Generic[T]):
    """A change on its way into the database.

    Args:
        change: What to do in one transaction; it may be done again from the start.
        table: Where the marks are.
        writer: Who makes it, one of those that `introduce` named.
    """

    def __init__(self, change: Callable[[sa.Connection], T], table: sa.Table, writer: str) -> None:
        self._change = change
        self._table = table
        self._writer = writer
        self._mark = ""
        self._result: T

    def carry_out(self, engine: sa.Engine) -> T:
        """Return what the change returned, once it is durable."""
        if self._mark and self._is_committed(engine):
            return self._result
        with engine.begin() as connection:
            self._mark = ""
            self._result = self._change(connection)
            mark = uuid.uuid4().hex
            own = self._table.update().where(self._table.c.writer == self._writer)
            if not connection.execute(own, {"mark": mark}).rowcount:
                connection.execute(self._table.insert(), {"writer": self._writer, "mark": mark})
            self._mark = mark
        return self._result

    def _is_committed(self, engine: sa.Engine) -> bool:
        with engine.begin() as connection:
            # With a lock: a server that has yet to notice the break may be at that very commit.
            last = sa.select(self._table.c.mark).where(self._table.c.writer == self._writer).with_for_update()
            return connection.execute(last).scalar() == self._mark
