"""Queries about what runs spend; the row of a run is locked while an amount is set aside or paid."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from assay_judge.model import RunKey
from assay_judge.state.shared import schema

if TYPE_CHECKING:
    from collections.abc import Callable


_MOST_NANO = 2**63 - 1
_UPSERTS: dict[str, Callable[[sa.Table], postgresql.Insert | sqlite.Insert]] = {
    "postgresql": postgresql.insert,
    "sqlite": sqlite.insert,
}


@dataclass(frozen=True, slots=True)
class SpendStatus:
    """What a run has spent and set aside, in billionths of a dollar.

    Args:
        spent: What was paid, and what was set aside for lost calls.
        reserved: What is set aside for calls in flight.
        lost: What of `spent` was set aside for calls whose outcome is unknown.
        fits: Whether the amount that was asked for is set aside now.
    """

    spent: int
    reserved: int
    lost: int = 0
    fits: bool = False


def read(connection: sa.Connection, run: RunKey) -> SpendStatus:
    """Return what a run has spent and reserved."""
    table = schema.spending
    paid = connection.execute(sa.select(table.c.nano).where(_is_of(table, run))).scalar() or 0
    held = schema.reservations
    amounts = connection.execute(sa.select(held.c.nano, held.c.expires_at).where(_is_of(held, run))).all()
    now = time.time()
    lost = sum(row.nano for row in amounts if row.expires_at <= now)
    return SpendStatus(int(paid) + lost, sum(row.nano for row in amounts) - lost, lost)


def reserve(
    connection: sa.Connection, run: RunKey, reservation_id: str, most: int, cap: int | None, lasts_s: float,
    *, key: str = "",
) -> SpendStatus:  # fmt: skip
    """Set an amount aside if it fits under a cap together with all that is spent and set aside."""
    _lock(connection, run)
    found = read(connection, run)
    if cap is not None and found.spent + found.reserved + most > cap:
        return found
    connection.execute(
        schema.reservations.insert().values(
            reservation_id=reservation_id, **run._asdict(), nano=most, expires_at=time.time() + lasts_s, key=key
        )
    )
    return SpendStatus(found.spent, found.reserved + most, found.lost, fits=True)


def lose(connection: sa.Connection, run: RunKey, reservation_id: str) -> SpendStatus:
    """Count what was set aside for a call as spent from now on, because its outcome is unknown."""
    _lock(connection, run)
    held = schema.reservations
    is_it = held.c.reservation_id == reservation_id
    connection.execute(held.update().where(is_it).values(expires_at=time.time()))
    return read(connection, run)


def settle(
    connection: sa.Connection, run: RunKey, reservation_id: str, cost: int, *, key: str = "", lost_most: int = 0
) -> SpendStatus:
    """Replace what was set aside by what was paid; once for each reservation.

    Args:
        key: The verdict that the call was for; empty where no other call of the run was lost for it.
        lost_most: The most that such a call can have cost, if there is a key.
    """
    _lock(connection, run)
    held, table = schema.reservations, schema.spending
    if key:
        # The caller has the claim to the verdict, so that other calls for it are lost, be their time up or not.
        bounded = sa.case((held.c.nano > lost_most, lost_most), else_=held.c.nano)
        lost = sa.and_(_is_of(held, run), held.c.key == key, held.c.reservation_id != reservation_id)
        connection.execute(held.update().where(lost).values(nano=bounded, key="", expires_at=time.time()))
    gone = connection.execute(held.delete().where(held.c.reservation_id == reservation_id)).rowcount
    if gone:
        before = connection.execute(sa.select(table.c.nano).where(_is_of(table, run))).scalar_one()
        values = {"nano": min(before + cost, _MOST_NANO), "changed_at": time.time()}
        connection.execute(table.update().where(_is_of(table, run)).values(**values))
    return read(connection, run)


def upsert(connection: sa.Connection, table: sa.Table) -> postgresql.Insert | sqlite.Insert:
    """Return an insert that knows what to do where the row is there already."""
    return _UPSERTS[connection.dialect.name](table)


def _lock(connection: sa.Connection, run: RunKey) -> None:
    """Lock the row of a run, which is made where it is missing."""
    table = schema.spending
    row = {**run._asdict(), "nano": 0, "changed_at": time.time()}
    connection.execute(upsert(connection, table).values(**row).on_conflict_do_nothing())
    connection.execute(sa.select(table.c.run_id).where(_is_of(table, run)).with_for_update())


def _is_of(table: sa.Table, run: RunKey) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.team == run.team, table.c.run_id == run.run_id)
