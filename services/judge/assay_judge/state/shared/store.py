"""The judge's shared store: verdicts by team and key, and what runs have spent, for all replicas."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

import sqlalchemy as sa

from assay.storage.database import open_database
from assay_judge.state.shared import schema, spending

if TYPE_CHECKING:
    from pathlib import Path

    from assay.model.scope import Scope
    from assay.storage.database import Database
    from assay_judge.model import RunKey
    from assay_judge.state.shared.spending import SpendStatus

T = TypeVar("T")

_PRUNE_EVERY = 500
_TOUCH_AFTER_S = 24 * 3600.0  # a verdict that is found need not be written each time
_SPENDING_KEPT_S = 90 * 24 * 3600.0


class SharedStore:
    """Verdicts and spending in a database; `open` it, `aclose` it.

    Args:
        database: The database, with its tables.
        max_verdicts: More are pruned, least recently used first.
    """

    def __init__(self, database: Database, max_verdicts: int) -> None:
        self.database = database
        self._max_verdicts = max_verdicts
        self._puts = 0
        self.verdict_count = 0

    @classmethod
    async def open(cls, url: str, *, path: Path, max_verdicts: int = 1_000_000, patience_s: float = 60.0) -> Self:
        """Open the database at a URL, or in a file where the URL is empty.

        Raises:
            StorageError: It cannot be opened.
            SetupError: The driver for PostgreSQL is not installed.
        """
        database = await asyncio.to_thread(open_database, schema.TABLES, path=path, url=url, patience_s=patience_s)
        store = cls(database, max_verdicts)
        store.verdict_count = await database.read(_count)
        return store

    async def delete_scope(self, scope: Scope) -> tuple[dict[str, int], dict[str, int]]:
        """Delete what the team of a scope has here; return by table how much that was, and how much is left."""

        def work(connection: sa.Connection) -> tuple[dict[str, int], dict[str, int]]:
            deleted, remaining = {}, {}
            for table in (table for table in schema.metadata.sorted_tables if "team" in table.c):
                name, own = table.name.removeprefix("judge_"), table.c.team == scope.team
                deleted[name] = connection.execute(table.delete().where(own)).rowcount
                remaining[name] = connection.execute(sa.select(sa.func.count()).where(own)).scalar_one()
            return deleted, remaining

        counts = await self.database.write(work)
        self.verdict_count = await self.database.read(_count)
        return counts

    async def aclose(self) -> None:
        """Close the database once its open transactions have ended."""
        await asyncio.to_thread(self.database.close)

    async def verdict(self, scope: Scope, key: str) -> dict[str, Any] | None:
        """Return the record of a verdict that a scope reaches; None where there is none that can be read."""
        table = schema.verdicts
        own = sa.and_(table.c.team == scope.team, table.c.key == key)
        query = sa.select(table.c.record, table.c.used_at).where(own)
        row = await self.database.read(lambda connection: connection.execute(query).one_or_none())
        if row is None:
            return None
        now = time.time()
        if row.used_at < now - _TOUCH_AFTER_S:
            used = table.update().where(own).values(used_at=now)
            await self.database.write(lambda connection: connection.execute(used))
        try:
            record = json.loads(row.record)
        except ValueError:
            return None
        return record if isinstance(record, dict) else None

    async def put_verdict(self, team: str, key: str, record: dict[str, Any]) -> None:
        """Keep a valid verdict of a team; the first one of a key stays."""
        text = json.dumps(record, ensure_ascii=True, allow_nan=False)

        def put(connection: sa.Connection) -> int:
            table = schema.verdicts
            values = {"team": team, "key": key, "used_at": time.time(), "record": text}
            insert = spending.upsert(connection, table).values(**values).on_conflict_do_nothing()
            return len(connection.execute(insert.returning(table.c.key)).all())

        self.verdict_count += await self.database.write(put)
        self._puts += 1
        if self._puts % _PRUNE_EVERY == 0:
            self.verdict_count = await self.database.write(self._prune)

    async def read_spending(self, run: RunKey) -> SpendStatus:
        """Return what a run has spent and set aside."""
        return await self.database.read(lambda connection: spending.read(connection, run))

    async def reserve(
        self, run: RunKey, reservation_id: str, most: int, cap: int | None, lasts_s: float, *, key: str = ""
    ) -> SpendStatus:
        """Set an amount aside if it fits, over all replicas; durable when this returns."""
        return await self.database.write(
            lambda connection: spending.reserve(connection, run, reservation_id, most, cap, lasts_s, key=key)
        )

    async def settle(
        self, run: RunKey, reservation_id: str, cost: int, *, key: str = "", lost_most: int = 0
    ) -> SpendStatus:
        """Replace what was set aside by what was paid; a second time changes nothing."""
        return await self.database.write(
            lambda connection: spending.settle(connection, run, reservation_id, cost, key=key, lost_most=lost_most)
        )

    async def lose(self, run: RunKey, reservation_id: str) -> SpendStatus:
        """Count what was set aside for a call as spent, because its outcome is unknown."""
        return await self.database.write(lambda connection: spending.lose(connection, run, reservation_id))

    def _prune(self, connection: sa.Connection) -> int:
        table, count = schema.verdicts, _count(connection)
        surplus = max(0, count - self._max_verdicts)
        if surplus:
            oldest = sa.select(table.c.team, table.c.key).order_by(table.c.used_at).limit(surplus)
            connection.execute(table.delete().where(sa.tuple_(table.c.team, table.c.key).in_(oldest)))
        old = time.time() - _SPENDING_KEPT_S
        connection.execute(schema.spending.delete().where(schema.spending.c.changed_at < old))
        connection.execute(schema.reservations.delete().where(schema.reservations.c.expires_at < old))
        return count - surplus


def _count(connection: sa.Connection) -> int:
    return connection.execute(sa.select(sa.func.count()).select_from(schema.verdicts)).scalar_one()
