"""Changes that take effect once even if the connection breaks before their commit is confirmed.

Every change leaves a mark in its own transaction. If the connection breaks during the commit, the mark shows afterwards
whether the commit took place. PostgreSQL's own `pg_xact_status` is not enough: a killed server may reuse the number of
a lost transaction.
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
    """Return the names of a new process's writers; each makes one change at a time.

    Writers of ended processes are removed after a week; an older process that still runs adds its writer again with its
    next change.
    """
    moment = datetime.now(UTC)
    names = [f"{moment:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex}" for _ in range(count)]
    connection.execute(table.delete().where(table.c.writer < f"{moment - _KEPT:%Y%m%dT%H%M%SZ}"))
    connection.execute(table.insert(), [{"writer": name, "mark": ""} for name in names])
    return names


class Change(Generic[T]):
    """A change that is being stored.

    Args:
        change: Makes the change in one transaction; may be repeated from the start.
        table: The table of marks.
        writer: The writer, one of those that `introduce` returned.
    """

    def __init__(self, change: Callable[[sa.Connection], T], table: sa.Table, writer: str) -> None:
        self._change = change
        self._table = table
        self._writer = writer
        self._mark = ""
        self._result: T

    def carry_out(self, engine: sa.Engine) -> T:
        """Return the result of the change once it is durable."""
        # An earlier attempt may have been committed although its connection broke.
        if self._mark and self._is_committed(engine):
            return self._result
        with engine.begin() as connection:
            # Empty until this attempt has left its own mark: the mark of the last one was rolled back.
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
