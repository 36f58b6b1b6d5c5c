"""Orders and batches in the database: stored before they are submitted, deleted once every result was fetched.

An order exists once, whichever process receives the request. A process owns a batch by a lease, measured by the
database's clock, which it renews. Any process may acquire an expired lease, with the next epoch. Each write of a batch
or its orders locks the batch's row and checks the epoch, so a suspended process writes nothing after another process
has acquired its batch.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.process.failpoints import failpoint
from assay_judge.batches.batch_gauges import PendingBatches
from assay_judge.batches.orders import Order, OrderName, outcome_for_row
from assay_judge.model import RunKey
from assay_judge.state import schema, spending
from assay_judge.state.statements import DatabaseTime, insert_into, is_among

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from assay.judging.rubric import Rubric
    from assay.model.scope import Scope
    from assay_judge.model import Asker
    from assay_judge.state.store import JudgeStore
    from assay_judge.verdicts.outcome import Outcome

_OUTCOMES_KEPT_S = 30 * 24 * 3600.0
_NOW = DatabaseTime()
_WAITING = ""  # the batch_id of orders that wait for a batch
_orders, _batches = schema.orders, schema.batches
_OPEN = _orders.c.outcome.is_(None)


@dataclass(slots=True)
class BatchRecord:
    """A batch.

    Args:
        batch_id: Our id, which the batch carries if the provider has a field for it.
        client_key: The key of the judge's provider client.
        provider_id: The provider's id; empty until the batch is known to be submitted.
        created_at: When it was formed, before it was submitted, in seconds since 1970.
        requests: Number of requests.
        epoch: The fencing token of its writes: how often it was acquired, this time included.
    """

    batch_id: str
    client_key: str
    provider_id: str
    created_at: float
    requests: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of an order: its outcome as text, or the order that replaces it, and the cost of its turn."""

    order: Order
    outcome: str
    cost: int
    again: Order | None = None


class LeaseLostError(Exception):
    """Another process has acquired the batch; nothing was written."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The work that is due.

    Args:
        orders: Number of orders without an outcome, including those of batches whose results are being read.
        client_keys: The provider clients whose orders are due.
        has_expired: Whether the lease of a batch has expired.
    """

    orders: int
    client_keys: Sequence[str]
    has_expired: bool


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an order.

    Args:
        run: The run that pays.
        batch_id: Its batch; empty until it is in one.
        outcome: Its outcome as text; empty until it has one.
    """

    run: RunKey
    batch_id: str
    outcome: str


class BatchStore:
    """Orders and batches, as one process uses them.

    Each method that takes a BatchRecord raises LeaseLostError if another process has acquired the batch.

    Args:
        store: The judge's database.
        lease_s: Duration of a lease, in seconds.
    """

    def __init__(self, store: JudgeStore, lease_s: float) -> None:
        self.is_shared = store.is_shared
        self._store = store
        self._database = store.database
        self._owner = secrets.token_hex(16)
        self._lease_until = _NOW + lease_s

    async def pending(self) -> list[PendingBatches]:
        """Return the orders without an outcome, by judge."""
        orders = sa.select(_orders.c.line, sa.func.count().label("count")).where(_OPEN).group_by(_orders.c.line)
        oldest = sa.select(_batches.c.line, sa.func.min(_batches.c.created_at).label("at")).group_by(_batches.c.line)

        def query(connection: sa.Connection) -> list[PendingBatches]:
            counts = {row.line: row[1] for row in connection.execute(orders)}
            moments = {row.line: row.at for row in connection.execute(oldest)}
            return [PendingBatches(line, counts.get(line, 0), moments.get(line)) for line in counts | moments]

        return await self._database.read(query)

    async def add(self, order: Order) -> RunKey | None:
        """Store an order; if its name is open or its run has an order with this key, only return that order's run."""

        def work(connection: sa.Connection) -> RunKey | None:
            insert = insert_into(_orders, connection.dialect.name).values(
                key=order.key, **order.run._asdict(), **_values(order)
            )
            insert = insert.on_conflict_do_nothing()
            added = connection.execute(insert.returning(_orders.c.item_id)).one_or_none()
            failpoint("judge.order_before_commit")
            if added is not None:
                return None
            is_named = (_orders.c.team == order.run.team, _orders.c.key == order.key)
            run_id = connection.execute(sa.select(_orders.c.run_id).where(*is_named, _OPEN)).scalar()
            return order.run if run_id is None else RunKey(order.run.team, str(run_id))

        return await self._database.write(work)

    async def withdraw(self, order: Order) -> None:
        """Return the money of an order whose `add` failed, unless the transaction was committed all the same."""
        stored = sa.select(_orders.c.item_id).where(_orders.c.item_id == order.item_id)

        def work(connection: sa.Connection) -> None:
            if order.reservation and connection.execute(stored).one_or_none() is None:
                spending.settle(connection, order.run, order.reservation, 0)

        await self._settle(work)

    async def backlog(self, *, wait_s: float, most: int, most_chars: int) -> Backlog:
        """Return the work that is due; orders are due after `wait_s`, or once they fill a batch."""
        count, size = sa.func.count(), sa.func.sum(_orders.c.size)
        waited_s = _NOW - sa.func.min(_orders.c.changed_at)
        is_due = sa.or_(count >= most, size >= most_chars, waited_s >= wait_s)
        waiting = sa.select(_orders.c.line, count.label("count"), is_due.label("is_due"))
        waiting = waiting.where(_orders.c.batch_id == _WAITING, _OPEN).group_by(_orders.c.line)
        batches = sa.select(
            sa.func.coalesce(sa.func.sum(_batches.c.requests), 0).label("requests"),
            sa.func.coalesce(sa.func.min(_batches.c.lease_until) <= _NOW, False).label("has_expired"),
        )

        def query(connection: sa.Connection) -> Backlog:
            lines, sums = connection.execute(waiting).all(), connection.execute(batches).one()
            orders = sums.requests + sum(row[1] for row in lines)
            return Backlog(orders, [row.line for row in lines if row.is_due], sums.has_expired)

        return await self._database.read(query)

    async def form(self, batch_id: str, client_key: str, *, most: int, most_chars: int) -> BatchRecord | None:
        """Form a batch from the waiting orders, oldest first, and own it; return None if no order waits.

        Args:
            batch_id: The id of the new batch.
            client_key: The key of the judge's provider client.
            most: Most orders.
            most_chars: Most characters of their texts; the first order is always included.
        """
        waiting = sa.select(_orders.c.item_id, _orders.c.size)
        waiting = waiting.where(_orders.c.batch_id == _WAITING, _orders.c.line == client_key, _OPEN)
        # Rows that another process has locked for its own batch are skipped.
        waiting = waiting.order_by(_orders.c.changed_at).limit(most).with_for_update(skip_locked=True)

        def work(connection: sa.Connection) -> BatchRecord | None:
            size = 0
            chosen: list[str] = []
            for row in connection.execute(waiting).all():
                size += row.size
                if chosen and size > most_chars:
                    break
                chosen.append(row.item_id)
            if not chosen:
                return None
            is_chosen = is_among(connection, _orders.c.item_id, chosen)
            connection.execute(_orders.update().where(is_chosen).values(batch_id=batch_id))
            values = {"batch_id": batch_id, "line": client_key, "provider_id": "", "created_at": _NOW}
            lease = {"owner": self._owner, "epoch": 1, "lease_until": self._lease_until}
            insert = _batches.insert().values(**values, requests=len(chosen), **lease).returning(_batches)
            return _record(connection.execute(insert).one())

        return await self._database.write(work)

    async def acquire(self, excluded: Collection[str]) -> list[BatchRecord]:
        """Acquire the batches whose leases have expired, except the excluded ones; each gets the next epoch."""
        expired = sa.select(_batches.c.batch_id).where(_batches.c.lease_until <= _NOW)
        expired = expired.where(_batches.c.batch_id.not_in(excluded)).with_for_update(skip_locked=True)
        lease = {"owner": self._owner, "epoch": _batches.c.epoch + 1, "lease_until": self._lease_until}

        def work(connection: sa.Connection) -> list[BatchRecord]:
            batch_ids = connection.execute(expired).scalars().all()
            is_expired = is_among(connection, _batches.c.batch_id, batch_ids)
            update = _batches.update().where(is_expired).values(**lease).returning(_batches)
            return [_record(row) for row in connection.execute(update)] if batch_ids else []

        return await self._database.write(work)

    async def renew(self, record: BatchRecord) -> None:
        """Extend the lease on a batch."""
        await self._database.write(lambda connection: self._hold(connection, record))

    async def renew_all(self, records: Sequence[BatchRecord]) -> set[str]:
        """Extend the leases on batches; return the ids of those that this process still owns."""
        if not records:
            return set()
        held = sa.tuple_(_batches.c.batch_id, _batches.c.epoch).in_(
            [(record.batch_id, record.epoch) for record in records]
        )
        renewed = _batches.update().where(held).values(lease_until=self._lease_until).returning(_batches.c.batch_id)
        return await self._database.write(lambda connection: set(connection.execute(renewed).scalars()))

    async def release(self) -> None:
        """End the leases of this process, so that other processes may acquire its batches at once."""
        ended = _batches.update().where(_batches.c.owner == self._owner).values(lease_until=0.0)
        await self._database.write(lambda connection: connection.execute(ended))

    async def submitted(self, record: BatchRecord, provider_id: str) -> None:
        """Store the provider's id of a batch."""
        update = _batches.update().where(_batches.c.batch_id == record.batch_id).values(provider_id=provider_id)

        def work(connection: sa.Connection) -> None:
            self._hold(connection, record)
            connection.execute(update)

        await self._database.write(work)

    async def orders(self, batch_id: str, item_ids: Collection[str] | None = None) -> list[Order]:
        """Return the orders of a batch without an outcome: all of them, or those with the given item ids."""
        table = _orders.c
        columns = (table.item_id, table.key, table.team, table.run_id, table.cap, table.reserved, table.reservation)
        is_of_batch = sa.select(*columns, table.request).where(table.batch_id == batch_id, _OPEN)

        def query(connection: sa.Connection) -> list[Order]:
            chosen = is_of_batch
            if item_ids is not None:
                chosen = chosen.where(is_among(connection, table.item_id, item_ids))
            return [Order.from_row(*row) for row in connection.execute(chosen)]

        return await self._database.read(query)

    async def finish(self, record: BatchRecord, finished: Sequence[Finished]) -> None:
        """Store the results of orders, settle their cost and delete their requests, all or nothing.

        A missing order is skipped: it was deleted with its team and account, or this call is repeated.
        """

        def work(connection: sa.Connection) -> None:
            self._hold(connection, record)
            # Sorted so that two processes lock the runs' rows in the same order.
            for result in sorted(finished, key=lambda result: result.order.run):
                order = result.order
                values = {"outcome": result.outcome, "request": "", "size": 0, "changed_at": _NOW}
                changed = _values(result.again) if result.again is not None else values
                update = _orders.update().where(_orders.c.item_id == order.item_id).values(**changed)
                if connection.execute(update).rowcount and order.reservation:
                    spending.settle(connection, order.run, order.reservation, result.cost)

        await self._settle(work)

    async def remove(self, record: BatchRecord) -> None:
        """Delete a batch whose orders all have outcomes."""

        def work(connection: sa.Connection) -> None:
            self._hold(connection, record)
            connection.execute(_batches.delete().where(_batches.c.batch_id == record.batch_id))

        await self._database.write(work)

    async def find(self, scope: Scope, key: str) -> Progress | None:
        """Return the open order of a key in the scope's team."""
        query = _PROGRESS.where(_orders.c.team == scope.team, _orders.c.key == key, _OPEN)
        row = await self._database.read(lambda connection: connection.execute(query).one_or_none())
        return None if row is None else _progress(row)

    async def progress(self, names: Collection[OrderName]) -> dict[OrderName, list[Progress]]:
        """Return the progress of the named orders, in all runs."""
        keys = {name.key for name in names}
        orders: dict[OrderName, list[Progress]] = {name: [] for name in names}

        def query(connection: sa.Connection) -> Sequence[Any]:
            return connection.execute(_PROGRESS.where(is_among(connection, _orders.c.key, keys))).all()

        for row in await self._database.read(query):
            if (name := OrderName(row.team, row.key)) in orders:
                orders[name].append(_progress(row))
        return orders

    async def fetch(self, scope: Scope, key: str, run_id: str, rubric: Rubric, asker: Asker) -> Outcome | None:
        """Return the outcome of a run's order; None if there is none, or if it must be ordered again."""
        is_of_run = (_orders.c.team == scope.team) & (_orders.c.run_id == run_id)
        is_kept = (_orders.c.key == key, is_of_run, _orders.c.outcome.is_not(None))
        query = sa.select(_orders.c.outcome).where(*is_kept)

        def work(connection: sa.Connection) -> Outcome | None:
            text = connection.execute(query.with_for_update()).scalar()
            if text is None:
                return None
            outcome, kept = outcome_for_row(asker, text, rubric)
            if not kept:
                connection.execute(_orders.delete().where(*is_kept))
            elif kept != text:
                connection.execute(_orders.update().where(*is_kept).values(outcome=kept))
            return outcome

        # Most requests find no outcome, and a read takes no lock.
        if await self._database.read(lambda connection: connection.execute(query).scalar()) is None:
            return None
        return await self._database.write(work)

    async def prune(self) -> None:
        """Delete outcomes that were not fetched for a month."""
        old = _orders.delete().where(_orders.c.outcome.is_not(None), _orders.c.changed_at < _NOW - _OUTCOMES_KEPT_S)
        await self._database.write(lambda connection: connection.execute(old))

    async def _settle(self, work: Callable[[sa.Connection], None]) -> None:
        try:
            await self._database.write(work)
        finally:  # a failed write may have been committed all the same
            self._store.other_changes += 1

    def _hold(self, connection: sa.Connection, record: BatchRecord) -> None:
        """Lock the row of a batch and extend its lease."""
        held = _batches.update().where(_batches.c.batch_id == record.batch_id, _batches.c.epoch == record.epoch)
        if not connection.execute(held.values(lease_until=self._lease_until)).rowcount:
            raise LeaseLostError


_PROGRESS = sa.select(
    _orders.c.key,
    _orders.c.team,
    _orders.c.run_id,
    _orders.c.batch_id,
    sa.func.coalesce(_orders.c.outcome, "").label("outcome"),
)


def _progress(row: Any) -> Progress:
    return Progress(RunKey(row.team, row.run_id), row.batch_id, row.outcome)


def _values(order: Order) -> dict[str, Any]:
    """Return the columns of a waiting order, except its key, team and run."""
    text = order.text
    return {
        "item_id": order.item_id,
        "batch_id": _WAITING,
        "line": order.client_key,
        "cap": None if order.cap is None else min(order.cap, spending.MOST_NANO),
        "reserved": min(order.reserved, spending.MOST_NANO),
        "reservation": order.reservation,
        "size": len(text),
        "request": text,
        "changed_at": _NOW,
    }


def _record(row: sa.Row[Any]) -> BatchRecord:
    return BatchRecord(row.batch_id, row.line, row.provider_id, row.created_at, row.requests, row.epoch)
