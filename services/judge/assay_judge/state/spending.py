"""Queries about the spending of runs. The row of a run is locked while an amount is reserved or paid.

Each call of a judge runs several of these queries. The statements are built once, because building takes longer than
running.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay_judge.state import schema
from assay_judge.state.statements import has, insert_into

if TYPE_CHECKING:
    from assay_judge.model import RunKey

MOST_NANO = 2**63 - 1
"""The largest amount that the databases can store."""

_paid, _held = schema.spending, schema.reservations


@dataclass(frozen=True, slots=True)
class SpendStatus:
    """The amounts that a run has spent and reserved, in billionths of a dollar.

    Args:
        spent: The amount paid, plus the reservations of lost calls.
        reserved: The reservations of calls in flight.
        lost: The part of `spent` reserved for calls with an unknown outcome.
        fits: Whether the requested amount is reserved now.
    """

    spent: int
    reserved: int
    lost: int = 0
    fits: bool = False


def _is_of_run(table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.and_(has(table.c.team), has(table.c.run_id))


_NOW = sa.bindparam("now", type_=sa.Float(53))
_LOST_MOST = sa.bindparam("lost_most", type_=sa.BigInteger)
_IS_IT = has(_held.c.reservation_id)
_SUMS = sa.select(
    sa.func.coalesce(sa.select(_paid.c.nano).where(_is_of_run(_paid)).scalar_subquery(), 0).label("paid"),
    sa.func.coalesce(sa.func.sum(sa.case((_held.c.expires_at <= _NOW, _held.c.nano), else_=0)), 0).label("lost"),
    sa.func.coalesce(sa.func.sum(_held.c.nano), 0).label("held"),
).where(_is_of_run(_held))
_HOLD = _held.insert()
_LOSE = _held.update().where(_IS_IT).values(expires_at=_NOW)
_RELEASE = _held.delete().where(_IS_IT)
_BOUND = (
    _held.update()
    .where(_is_of_run(_held), has(_held.c.key), sa.not_(_IS_IT))
    .values(nano=sa.case((_held.c.nano > _LOST_MOST, _LOST_MOST), else_=_held.c.nano), key="", expires_at=_NOW)
)
_LOCK = sa.select(_paid.c.run_id).where(_is_of_run(_paid)).with_for_update()


@cache
def _ensure_row(dialect: str) -> sa.Insert:
    return insert_into(_paid, dialect).on_conflict_do_nothing()


@cache
def _pay(dialect: str) -> sa.Insert:
    insert = insert_into(_paid, dialect)
    paid = sa.case(
        (_paid.c.nano > MOST_NANO - insert.excluded.nano, MOST_NANO), else_=_paid.c.nano + insert.excluded.nano
    )
    changes = {"nano": paid, "changed_at": insert.excluded.changed_at}
    return insert.on_conflict_do_update(index_elements=["team", "run_id"], set_=changes)


def read(connection: sa.Connection, run: RunKey) -> SpendStatus:
    """Return the amounts that a run has spent and reserved."""
    row = connection.execute(_SUMS, {**_its(run), "now": time.time()}).one()
    lost = int(row.lost)
    return SpendStatus(int(row.paid) + lost, int(row.held) - lost, lost)


def reserve(
    connection: sa.Connection, run: RunKey, reservation_id: str, most: int, cap: int | None, lasts_s: float,
    *, key: str = "",
) -> SpendStatus:  # fmt: skip
    """Reserve an amount if it fits under the cap together with everything spent and reserved."""
    _lock(connection, run)
    # Read under the lock: two calls that each fit under the cap may not fit together.
    status = read(connection, run)
    if cap is not None and status.spent + status.reserved + most > cap:
        return status
    expires_at = time.time() + lasts_s
    values = {"reservation_id": reservation_id, "nano": min(most, MOST_NANO), "expires_at": expires_at, "key": key}
    connection.execute(_HOLD, {**run._asdict(), **values})
    return SpendStatus(status.spent, status.reserved + most, status.lost, fits=True)


def lose(connection: sa.Connection, run: RunKey, reservation_id: str) -> SpendStatus:
    """Count the reservation of a call as spent from now on, because its outcome is unknown."""
    _lock(connection, run)
    connection.execute(_LOSE, {"its_reservation_id": reservation_id, "now": time.time()})
    return read(connection, run)


def lose_all(connection: sa.Connection) -> None:
    """Count all reservations as spent, except those of orders without an outcome."""
    ordered = sa.select(schema.orders.c.reservation).where(schema.orders.c.outcome.is_(None))
    is_lost = sa.and_(_held.c.expires_at > _NOW, _held.c.reservation_id.not_in(ordered))
    connection.execute(_held.update().where(is_lost).values(expires_at=_NOW), {"now": time.time()})


def settle(
    connection: sa.Connection, run: RunKey, reservation_id: str, cost: int, *, key: str = "", lost_most: int = 0
) -> SpendStatus:
    """Replace a reservation by the cost of its call; a repetition changes nothing.

    Args:
        key: The key of the verdict; empty if the run has lost no call for it.
        lost_most: The maximum cost of such a lost call, if there is a key.
    """
    _lock(connection, run)
    now = time.time()
    if key:
        # The caller holds the claim to the verdict, so any other call for it is lost, even before its expiry.
        bound = {"its_key": key, "its_reservation_id": reservation_id, "now": now, "lost_most": lost_most}
        connection.execute(_BOUND, {**_its(run), **bound})
    # Only the first settlement finds the reservation, so a repeated one does not pay twice.
    if connection.execute(_RELEASE, {"its_reservation_id": reservation_id}).rowcount:
        values = {**run._asdict(), "nano": min(cost, MOST_NANO), "changed_at": now}
        connection.execute(_pay(connection.dialect.name), values)
    return read(connection, run)


def _lock(connection: sa.Connection, run: RunKey) -> None:
    """Lock the row of a run, inserting it if it is missing; SQLite has only one writer at a time anyway."""
    dialect = connection.dialect.name
    if dialect != "sqlite":
        connection.execute(_ensure_row(dialect), {**run._asdict(), "nano": 0, "changed_at": time.time()})
        connection.execute(_LOCK, _its(run))


def _its(run: RunKey) -> dict[str, str]:
    return {"its_team": run.team, "its_run_id": run.run_id}
