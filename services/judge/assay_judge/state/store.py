"""The judge's database: verdicts by team and key, and the spending of runs.

It is a SQLite file of one process, or PostgreSQL shared by any number of processes. A verdict is a JSON object that
does not identify the requester. With SQLite, a power failure may lose the last verdicts and amounts, which only costs
money; a killed process loses nothing.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self, TypeVar

import sqlalchemy as sa

from assay.storage.database import open_database
from assay_judge.state import schema, spending
from assay_judge.state.statements import has, insert_into

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from assay.model.scope import Scope
    from assay.storage.database import Database
    from assay_judge.model import RunKey
    from assay_judge.state.spending import SpendStatus

    Work = Callable[[sa.Connection], Any]
    Run = Callable[[Callable[[sa.Connection], list[Any]]], Awaitable[list[Any]]]

T = TypeVar("T")

_PRUNE_EVERY = 500
_TOUCH_AFTER_S = 24 * 3600.0  # long, so that most cache hits write nothing
_SPENDING_KEPT_S = 90 * 24 * 3600.0


_OWN = sa.and_(has(schema.verdicts.c.team), has(schema.verdicts.c.key))
_FIND = sa.select(schema.verdicts.c.record, schema.verdicts.c.used_at).where(_OWN)
_TOUCH = schema.verdicts.update().where(_OWN).values(used_at=sa.bindparam("now", type_=sa.Float(53)))


class Grouped:
    """Runs work in consecutive transactions; work that arrives during one goes into the next.

    In SQLite, a transaction and the switch to another thread cost more than the statements of a verdict, so requests
    that wait at the same time share a transaction.

    Args:
        run: Runs work in one transaction.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._waiting: list[tuple[Work, asyncio.Future[Any]]] = []
        self._running: asyncio.Task[None] | None = None

    async def do(self, work: Callable[[sa.Connection], T]) -> T:
        """Return the result of the work; a cancellation does not stop it.

        Raises:
            StorageError: The work failed; other work in its transaction cannot be the cause.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((work, done))
        if self._running is None:
            self._running = asyncio.ensure_future(self._run_all())
        return await done

    async def aclose(self) -> None:
        """Wait for all running and waiting work."""
        if self._running is not None:
            await asyncio.wait([self._running])

    async def _run_all(self) -> None:
        try:
            while self._waiting:
                await self._gathered()
                group, self._waiting = self._waiting, []
                if not await self._succeeds(group) and len(group) > 1:
                    for request in group:  # one by one, so that a failing request does not fail the others
                        await self._succeeds([request])
        finally:
            self._running = None

    async def _gathered(self) -> None:
        """Wait for work in the next rounds of the event loop; a lone request waits for one round."""
        seen = 0
        while seen < len(self._waiting):
            seen = len(self._waiting)
            await asyncio.sleep(0)

    async def _succeeds(self, group: Sequence[tuple[Work, asyncio.Future[Any]]]) -> bool:
        """Run a group and deliver the results; return False if it failed. A group of one also gets the error."""
        (results,) = await asyncio.gather(
            self._run(lambda connection: [work(connection) for work, _ in group]), return_exceptions=True
        )
        waiting = [done for _, done in group]
        if isinstance(results, BaseException):
            if len(group) == 1 and not waiting[0].done():
                waiting[0].set_exception(results)
            return False
        for done, result in zip(waiting, results, strict=True):
            if not done.done():  # else its caller was cancelled
                done.set_result(result)
        return True


@cache
def _put(dialect: str) -> sa.Executable:
    return insert_into(schema.verdicts, dialect).on_conflict_do_nothing().returning(schema.verdicts.c.key)


class JudgeStore:
    """Verdicts and spending in a database; `open` it, `aclose` it.

    Args:
        database: The database, with its tables.
        max_verdicts: Most verdicts; beyond that, the least recently used are pruned.
        is_shared: Whether other processes use the database too.
    """

    def __init__(self, database: Database, *, max_verdicts: int, is_shared: bool) -> None:
        self.database = database
        self.is_shared = is_shared
        self._max_verdicts = max_verdicts
        self._resources = ExitStack()
        self._reads = Grouped(database.read)
        self._writes = Grouped(partial(database.write, durable=False))
        self._puts = 0
        self.verdict_count = 0
        self.other_changes = 0
        """How often this process has changed spending without going through an account."""

    @classmethod
    async def open(
        cls, folder: Path | None, url: str = "", *, max_verdicts: int = 1_000_000, patience_s: float = 60.0
    ) -> Self:
        """Open the database at a URL, or else `judge.db` in a folder, which is created if it is missing.

        Args:
            folder: The folder; None for a temporary folder.
            url: A PostgreSQL database to use instead.
            max_verdicts: Most verdicts.
            patience_s: How long an unreachable PostgreSQL is retried, in seconds.

        Raises:
            StorageError: The database cannot be opened, another process uses the file, or a newer version wrote it.
            SetupError: The driver for PostgreSQL is not installed.
        """
        with ExitStack() as resources:
            if folder is None and not url:
                folder = Path(resources.enter_context(TemporaryDirectory(prefix="assay-judge-")))
            path = (folder or Path()) / "judge.db"
            database = await asyncio.to_thread(open_database, schema.TABLES, path=path, url=url, patience_s=patience_s)
            resources.callback(database.close)
            store = cls(database, max_verdicts=max_verdicts, is_shared=bool(url))
            if not url:
                await database.write(_take_over)
            store.verdict_count = await database.read(_count)
            store._resources = resources.pop_all()
        return store

    async def aclose(self) -> None:
        """Close the database once its transactions have ended, even if this call is cancelled."""
        closing = asyncio.ensure_future(self._close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise

    async def _close(self) -> None:
        await self._reads.aclose()
        await self._writes.aclose()
        await asyncio.to_thread(self._resources.close)

    async def delete_scope(self, scope: Scope) -> tuple[dict[str, int], dict[str, int]]:
        """Delete all rows of a scope's team; return the number of deleted and of remaining rows, by table.

        Deleted bytes are overwritten in a SQLite file, and its log is emptied.
        """

        def work(connection: sa.Connection) -> tuple[dict[str, int], dict[str, int]]:
            deleted, remaining = {}, {}
            for table in (table for table in schema.metadata.sorted_tables if "team" in table.c):
                name, own = table.name.removeprefix("judge_"), table.c.team == scope.team
                deleted[name] = connection.execute(table.delete().where(own)).rowcount
                remaining[name] = connection.execute(sa.select(sa.func.count()).where(own)).scalar_one()
            return deleted, remaining

        counts = await self.database.write(work)
        self.other_changes += 1
        await self.database.forget_deleted()
        self.verdict_count = await self.database.read(_count)
        return counts

    async def verdict(self, scope: Scope, key: str) -> dict[str, Any] | None:
        """Return the record of a verdict of a scope's team; None if it is missing or unreadable."""
        own = {"its_team": scope.team, "its_key": key}
        row = await self._read(lambda connection: connection.execute(_FIND, own).one_or_none())
        if row is None:
            return None
        now = time.time()
        # The least recently used are pruned by day, so most hits need no write.
        if row.used_at < now - _TOUCH_AFTER_S:
            used = {**own, "now": now}
            await self._write(lambda connection: connection.execute(_TOUCH, used))
        try:
            record = json.loads(row.record)
        except ValueError:
            return None
        return record if isinstance(record, dict) else None

    async def put_verdict(self, team: str, key: str, record: dict[str, Any]) -> None:
        """Store a valid verdict of a team; the first verdict of a key wins."""
        text = json.dumps(record, ensure_ascii=True, allow_nan=False)
        values = {"team": team, "key": key, "used_at": time.time(), "record": text}

        def put(connection: sa.Connection) -> int:
            return len(connection.execute(_put(connection.dialect.name), values).all())

        added = await self._write(put)
        self.verdict_count += added  # read only after the wait, during which other verdicts are stored
        self._puts += 1
        if self._puts % _PRUNE_EVERY == 0:
            self.verdict_count = await self.database.write(self._prune)

    async def read_spending(self, run: RunKey) -> SpendStatus:
        """Return the amounts that a run has spent and reserved."""
        return await self._read(lambda connection: spending.read(connection, run))

    async def reserve(
        self, run: RunKey, reservation_id: str, most: int, cap: int | None, lasts_s: float, *, key: str = ""
    ) -> SpendStatus:
        """Reserve an amount if it fits under a cap."""
        return await self._write(
            lambda connection: spending.reserve(connection, run, reservation_id, most, cap, lasts_s, key=key)
        )

    async def settle(
        self, run: RunKey, reservation_id: str, cost: int, *, key: str = "", lost_most: int = 0
    ) -> SpendStatus:
        """Replace a reservation by the cost of its call; a repetition changes nothing."""
        return await self._write(
            lambda connection: spending.settle(connection, run, reservation_id, cost, key=key, lost_most=lost_most)
        )

    async def lose(self, run: RunKey, reservation_id: str) -> SpendStatus:
        """Count the reservation of a call as spent, because its outcome is unknown."""
        return await self._write(lambda connection: spending.lose(connection, run, reservation_id))

    async def _read(self, query: Callable[[sa.Connection], T]) -> T:
        # Not in a shared database: transactions over several runs could lock their rows in different orders.
        return await (self.database.read(query) if self.is_shared else self._reads.do(query))

    async def _write(self, change: Callable[[sa.Connection], T]) -> T:
        return await (self.database.write(change) if self.is_shared else self._writes.do(change))

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


def _take_over(connection: sa.Connection) -> None:
    """End the leases of earlier processes: their calls are lost, their batches and claims are free.

    Only valid if this process is the file's only user; in a shared database, leases expire.
    """
    spending.lose_all(connection)
    connection.execute(schema.batches.update().values(lease_until=0.0))
    connection.execute(schema.claims.delete())
