"""Batches and their orders on disk: written before anything is submitted, gone when all was fetched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from assay.process.failpoints import failpoint
from assay_judge.batches.batch_gauges import PendingBatches
from assay_judge.batches.orders import Order, outcome_for_row

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Sequence

    from assay.judging.rubric import Rubric
    from assay.model.scope import Scope
    from assay_judge.model import Asker, RunKey
    from assay_judge.state.store import JudgeStore
    from assay_judge.verdicts.outcome import Outcome

OUTCOMES_KEPT_S = 30 * 24 * 3600.0
_WAITING = ""  # the batch of orders that have none yet
_COLUMNS = "item_id, key, team, run_id, cap, reserved, request"


@dataclass(slots=True)
class BatchRecord:
    """A batch.

    Args:
        batch_id: Our id, which is written on it where the provider has a place for it.
        client_key: The key of the judge's provider client.
        provider_id: The provider's id; empty until it is known to be submitted.
        created_at: When it was made up, before it was submitted, in seconds since 1970.
        requests: How many.
        epoch: How often it was acquired, this time included, where replicas share it: the fencing token of its writes.
    """

    batch_id: str
    client_key: str
    provider_id: str
    created_at: float
    requests: int
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class OpenOrder:
    """An order without an outcome, as far as it is needed in memory."""

    item_id: str
    batch_id: str
    client_key: str
    key: str
    team: str
    run_id: str
    reserved: int
    size: int
    reservation: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of an order: its outcome as text, or what is ordered in its place, and the cost of its turn."""

    order: Order
    outcome: str
    cost: int
    again: Order | None = None


class LeaseLostError(Exception):
    """Another replica has acquired the batch: nothing is written."""


class OrderStore(Protocol):
    """Where batches and their orders are kept.

    Where replicas share it, each method that takes a BatchRecord raises LeaseLostError if its epoch has passed.
    """

    async def pending(self) -> list[PendingBatches]:
        """Return what is ordered and has no outcome, by judge; of all replicas, where they share it."""

    async def batches(self) -> list[BatchRecord]:
        """Return the batches that an earlier process left to this one."""

    async def open_orders(self) -> list[OpenOrder]:
        """Return the orders that an earlier process left to this one."""

    async def add(self, order: Order, now: float) -> RunKey | None:
        """Keep an order; where its name has one already, keep nothing and return the run of that one."""

    async def form(
        self, batch_id: str, client_key: str, now: float, *, most: int, most_chars: int
    ) -> tuple[BatchRecord, set[str]] | None:
        """Make a batch of what waits, the oldest first; return it and its orders once both are durable."""

    async def renew(self, record: BatchRecord) -> None:
        """Extend the lease on a batch."""

    async def submitted(self, record: BatchRecord, provider_id: str) -> None:
        """Keep the provider's id of a batch."""

    async def orders(self, batch_id: str, item_ids: Collection[str] | None = None) -> list[Order]:
        """Return the orders of a batch that have no outcome, all or some of them."""

    async def finish(self, record: BatchRecord, finished: Sequence[Finished], now: float) -> None:
        """Store the results of some orders of a batch, all or nothing."""

    async def remove(self, record: BatchRecord) -> None:
        """Forget a batch whose orders all have outcomes."""

    async def fetch(self, scope: Scope, key: str, run_id: str, rubric: Rubric, asker: Asker) -> Outcome | None:
        """Return the outcome of a run's order; None where there is nothing, or it is to be ordered anew."""


class BatchStore:
    """The batches of one judge process; `open` it.

    Args:
        store: The database.
    """

    def __init__(self, store: JudgeStore) -> None:
        self._store = store

    @classmethod
    async def open(cls, store: JudgeStore, now: float) -> BatchStore:
        """Open it; outcomes that were not fetched for a month are deleted."""

        def prepare(connection: sqlite3.Connection) -> None:
            connection.execute(
                "DELETE FROM orders WHERE outcome IS NOT NULL AND changed_at < ?", (now - OUTCOMES_KEPT_S,)
            )

        await store.run(prepare)
        return cls(store)

    async def pending(self) -> list[PendingBatches]:
        """Return what is ordered and has no outcome, by judge."""
        query = (
            "SELECT line, sum(is_order), min(created_at) FROM ("
            "SELECT line, 1 AS is_order, NULL AS created_at FROM orders WHERE outcome IS NULL "
            "UNION ALL SELECT line, 0, created_at FROM batches) GROUP BY line"
        )
        return await self._store.run(lambda connection: [PendingBatches(*row) for row in connection.execute(query)])

    async def batches(self) -> list[BatchRecord]:
        """Return all batches that are not finished."""
        query = "SELECT batch_id, line, provider_id, created_at, requests FROM batches"
        return await self._store.run(lambda connection: [BatchRecord(*row) for row in connection.execute(query)])

    async def open_orders(self) -> list[OpenOrder]:
        """Return all orders without an outcome."""
        query = (
            "SELECT item_id, batch_id, line, key, team, run_id, reserved, length(request), "
            "coalesce(json_extract(request, '$.reservation'), '') FROM orders WHERE outcome IS NULL"
        )
        return await self._store.run(lambda connection: [OpenOrder(*row) for row in connection.execute(query)])

    async def add(self, order: Order, now: float) -> RunKey | None:
        """Keep an order that waits for a batch; here there are no others that add any."""

        def work(connection: sqlite3.Connection) -> None:
            _insert(connection, order, now)
            failpoint("judge.order_before_commit")

        await self._store.run(work)
        return None

    async def form(
        self, batch_id: str, client_key: str, now: float, *, most: int, most_chars: int
    ) -> tuple[BatchRecord, set[str]] | None:
        """Make a batch of what waits, the oldest first; return it and its orders once both are on disk.

        Args:
            batch_id: Its name.
            client_key: The key of the judge's provider client.
            now: The time.
            most: Most orders.
            most_chars: Most characters of their texts; the first one is taken however long it is.
        """

        def work(connection: sqlite3.Connection) -> tuple[BatchRecord, set[str]] | None:
            size = 0
            chosen: list[tuple[str, str]] = []
            waiting = "SELECT item_id, length(request) FROM orders WHERE batch_id = '' AND line = ? AND outcome IS NULL"
            for item_id, length in connection.execute(f"{waiting} ORDER BY changed_at LIMIT ?", (client_key, most)):
                size += length
                if chosen and size > most_chars:
                    break
                chosen.append((batch_id, item_id))
            if not chosen:
                return None
            record = BatchRecord(batch_id, client_key, "", now, len(chosen))
            connection.executemany("UPDATE orders SET batch_id = ? WHERE item_id = ?", chosen)
            connection.execute(
                "INSERT INTO batches VALUES (?, ?, ?, ?, ?)", (batch_id, client_key, "", now, len(chosen))
            )
            return record, {item_id for _, item_id in chosen}

        return await self._store.run(work, surely=True)

    async def renew(self, record: BatchRecord) -> None:
        """Do nothing: this process alone has the batch."""

    async def submitted(self, record: BatchRecord, provider_id: str) -> None:
        """Keep the provider's id of a batch."""
        query = "UPDATE batches SET provider_id = ? WHERE batch_id = ?"
        await self._store.run(lambda connection: connection.execute(query, (provider_id, record.batch_id)), surely=True)

    async def orders(self, batch_id: str, item_ids: Collection[str] | None = None) -> list[Order]:
        """Return the orders of a batch that have no outcome, all or some of them."""
        query = f"SELECT {_COLUMNS} FROM orders WHERE batch_id = ? AND outcome IS NULL"  # noqa: S608 - ours

        def work(connection: sqlite3.Connection) -> list[Order]:
            if item_ids is None:
                return [Order.from_row(*row) for row in connection.execute(query, (batch_id,))]
            rows = (connection.execute(f"{query} AND item_id = ?", (batch_id, name)).fetchone() for name in item_ids)
            return [Order.from_row(*row) for row in rows if row is not None]

        return await self._store.run(work)

    async def finish(self, record: BatchRecord, finished: Sequence[Finished], now: float) -> None:
        """Store the results of some orders, all or nothing, and delete their requests.

        An order that is gone was deleted with its team, and is not ordered again.
        """

        def work(connection: sqlite3.Connection) -> None:
            for one in finished:
                if one.again is None:
                    connection.execute(
                        "UPDATE orders SET outcome = ?, request = '', changed_at = ? WHERE item_id = ?",
                        (one.outcome, now, one.order.item_id),
                    )
                elif connection.execute("DELETE FROM orders WHERE item_id = ?", (one.order.item_id,)).rowcount:
                    _insert(connection, one.again, now)

        await self._store.run(work, surely=True)

    async def remove(self, record: BatchRecord) -> None:
        """Forget a batch whose orders all have outcomes."""
        query = "DELETE FROM batches WHERE batch_id = ?"
        await self._store.run(lambda connection: connection.execute(query, (record.batch_id,)))

    async def fetch(self, scope: Scope, key: str, run_id: str, rubric: Rubric, asker: Asker) -> Outcome | None:
        """Return the outcome of a run's order; None where there is nothing, or it is to be ordered anew."""

        def work(connection: sqlite3.Connection) -> Outcome | None:
            query = (
                "SELECT item_id, outcome FROM orders WHERE team = ? AND key = ? AND run_id = ? AND outcome IS NOT NULL"
            )
            found = None
            for item_id, text in connection.execute(query, (scope.team, key, run_id)).fetchall():
                found, kept = outcome_for_row(asker, text, rubric)
                if not kept:
                    connection.execute("DELETE FROM orders WHERE item_id = ?", (item_id,))
                elif kept != text:
                    connection.execute("UPDATE orders SET outcome = ? WHERE item_id = ?", (kept, item_id))
            return found

        return await self._store.run(work)


def _insert(connection: sqlite3.Connection, order: Order, now: float) -> None:
    connection.execute(
        "INSERT INTO orders (item_id, batch_id, line, key, team, run_id, cap, reserved, request, changed_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            order.item_id,
            _WAITING,
            order.client_key,
            order.key,
            *order.run,
            order.cap,
            order.reserved,
            order.text,
            now,
        ),
    )
