"""Allotments: money and tokens that a process has taken from a team's quota for one run, to spend without asking again.

A quota is divided into parts. A part is taken in a transaction that sees, under the team's lock, the team's spending
and the remainders of all its allotments; together they never exceed the quota. Storing rows moves their cost from the
allotment to the spending. An allotment is leased: the remainder of a process that has ended becomes free again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.identity.quotas import NANO, Quota
from assay.storage.times import now
from assay_orchestrator.store import schema
from assay_orchestrator.store.teams import quotas, spending

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LEASE_S = 60.0
"""How long an allotment lasts without renewal, in seconds."""

CALLS_AT_ONCE = 64
"""An allotment covers this many calls, or an eighth of the free amount if that is less."""

_SHARE = 8
_ORDERS_LAST_S = 3 * 24 * 3600.0
"""Longer than any batch of a provider takes."""
_KEPT_S = 30 * 24 * 3600.0
_LOCK = 0x61_6C_6C_6F
_table = schema.allotments


@dataclass(frozen=True, slots=True)
class Amount:
    """Money and tokens.

    Args:
        nano_usd: Billionths of a dollar.
        tokens: Input and output together.
    """

    nano_usd: int = 0
    tokens: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.nano_usd + other.nano_usd, self.tokens + other.tokens)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.nano_usd - other.nano_usd, self.tokens - other.tokens)

    def fits(self, limit: Amount) -> bool:
        """Return whether neither part exceeds that of a limit."""
        return self.nano_usd <= limit.nano_usd and self.tokens <= limit.tokens


@dataclass(frozen=True, slots=True)
class JudgingNeed:
    """The judging spend and need of a run, in billionths of a dollar.

    Args:
        spent: What the judge has spent for the run so far.
        reserved: What it has reserved for calls in flight and orders.
        call: The maximum cost of its next call.
        room: The desired amount for further calls, the next one included.
    """

    spent: int
    reserved: int
    call: int
    room: int


NOTHING = Amount()
UNLIMITED = Amount(2**62, 2**62)


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of an allotment.

    Args:
        team: The team whose quota it draws on.
        run_id: The run.
        name: The part of the run, in which process.
    """

    team: str
    run_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why nothing can be taken.

    Args:
        quota: The quota that is short.
        limit: Its limit.
        spent: What the team has spent.
        held: What its allotments hold, including the holder's.
        next_call: What the next call may take.
    """

    quota: Quota
    limit: int
    spent: int
    held: int
    next_call: int

    def sentence(self, team: str) -> str:
        """Return what is short, and what helps."""
        spent, limit, held, next_call = (
            _shown(self.quota, amount) for amount in (self.spent, self.limit, self.held, self.next_call)
        )
        return (
            f"the team {team!r} has too little left of its quota {self.quota.value} for the next call, which may take "
            f"{next_call}: {spent} of {limit} are used and {held} are reserved for calls of its runs; "
            f"{quotas.HELPS[self.quota]}, or ask the operator of this server for more"
        )


def take(
    connection: sa.Connection, holder: Holder, used: Amount, recorded: Amount, next_call: Amount
) -> Amount | Shortage:
    """Take an allotment for a holder's next calls; the remainder of its last allotment is returned first.

    Args:
        connection: The transaction.
        holder: The holder.
        used: All that the holder has used and reserved since its beginning.
        recorded: The part of that which is stored as spent.
        next_call: The maximum cost of its next call.

    Returns:
        What the holder may use since its beginning, `UNLIMITED` if the team has no quota; or the shortage.
    """
    limits = quotas.read_quotas(connection, holder.team)
    schema.lock(connection, _LOCK, holder.team)
    # Under the lock: two processes that read the same remainder would both take it.
    sums = _sums(connection, holder)
    unrecorded = used - recorded
    granted: dict[str, int] = {}
    for name, quota in _QUOTAS.items():
        limit = limits.get(quota)
        if limit is None:
            continue
        needed, own = getattr(next_call, name), getattr(unrecorded, name)
        held_amount = sums[f"held_{name}"] + own
        free = limit - sums[f"spent_{name}"] - held_amount
        if needed > free:
            return Shortage(quota, limit, sums[f"spent_{name}"], held_amount, needed)
        granted[name] = getattr(used, name) + max(needed, min(needed * CALLS_AT_ONCE, free // _SHARE))
    connection.execute(_table.delete().where(_is_of(holder) | _is_forgotten(connection, holder.team)))
    if not granted:
        return UNLIMITED
    _insert(connection, holder, Amount(**{name: granted.get(name, 0) for name in _QUOTAS}), recorded)
    return Amount(**{name: granted.get(name, getattr(UNLIMITED, name)) for name in _QUOTAS})


def record(connection: sa.Connection, holder: Holder, recorded: Amount) -> None:
    """Record which part of an allotment is stored as spent, in the transaction that stores it."""
    values = {f"recorded_{name}": _storable(getattr(recorded, name)) for name in _QUOTAS}
    connection.execute(_table.update().where(_is_of(holder)).values(values))


def release(connection: sa.Connection, holder: Holder) -> None:
    """Return the remainder of an allotment."""
    connection.execute(_table.delete().where(_is_of(holder)))


def take_judging(connection: sa.Connection, holder: Holder, worker: Holder, need: JudgingNeed) -> int | Shortage | None:
    """Raise the amount that a run may spend on judging; its workers share it, and the judge enforces it.

    Args:
        connection: The transaction.
        holder: The run's judging.
        worker: The part of the run that takes it in this process; while it exists, others do not return the money.
        need: What the run has used and needs.

    Returns:
        What the run may have spent by now, unchanged if calls in flight may leave enough; None if the team has no quota
        of money; or the shortage.
    """
    limit = quotas.read_quotas(connection, holder.team).get(Quota.MONEY_PER_MONTH)
    if limit is None:
        return None
    schema.lock(connection, _LOCK, holder.team)
    # Locked before the sums: rows being stored move their cost from here to the spending.
    own = sa.select(_table, _is_held(connection).label("is_held")).where(_is_of(holder)).with_for_update()
    row = connection.execute(own).one_or_none()
    recorded = need.spent if row is None else int(row.recorded_nano_usd)
    allowed = need.spent + need.reserved
    if row is not None and row.is_held:
        allowed = max(allowed, int(row.nano_usd))
    sums = _sums(connection, holder)
    held_amount = sums["held_nano_usd"] + max(0, allowed - recorded)
    free = limit - sums["spent_nano_usd"] - held_amount
    room, least = need.spent + need.reserved + need.room - allowed, need.spent + need.call - allowed
    if least > free and least > 0:
        return Shortage(Quota.MONEY_PER_MONTH, limit, sums["spent_nano_usd"], held_amount, need.call)
    if room > 0:
        allowed += min(free, max(room, min(need.call * CALLS_AT_ONCE, free // _SHARE))) if free > 0 else 0
    if row is None:
        _insert(connection, holder, Amount(allowed), Amount(recorded))
    else:
        values = {"nano_usd": _storable(allowed), "expires_at": _moment(connection, LEASE_S)}
        connection.execute(_table.update().where(_is_of(holder)).values(values))
    if connection.execute(sa.select(_table.c.holder).where(_is_of(worker))).one_or_none() is None:
        _insert(connection, worker, NOTHING, NOTHING)
    return allowed


def has_judging(connection: sa.Connection, holder: Holder) -> bool:
    """Return whether money was ever taken for a run's verdicts."""
    return connection.execute(sa.select(_table.c.holder).where(_is_of(holder))).one_or_none() is not None


def record_judging(connection: sa.Connection, holder: Holder, spent: int) -> int | None:
    """Record what judging has spent, in the transaction that stores it.

    Returns:
        How much of it is new; None if no money was ever taken for judging.
    """
    row = connection.execute(
        sa.select(_table.c.recorded_nano_usd).where(_is_of(holder)).with_for_update()
    ).one_or_none()
    if row is None:
        return None
    new = max(0, spent - int(row.recorded_nano_usd))
    if new:
        connection.execute(_table.update().where(_is_of(holder)).values(recorded_nano_usd=_storable(spent)))
    return new


def end_judging(connection: sa.Connection, holder: Holder, worker: Holder, spent: int, reserved: int) -> None:
    """Return what judging still holds, except reserves for orders, which last for days.

    While another worker exists, its calls in flight may spend the money: that worker returns the rest itself.
    """
    schema.lock(connection, _LOCK, holder.team)
    others = (_table.c.run_id == holder.run_id) & ~_is_of(holder) & ~_is_of(worker) & _is_held(connection)
    if connection.execute(sa.select(_table.c.holder).where(others).limit(1)).one_or_none() is not None:
        return
    # The row stays: the next worker counts from its recorded amount.
    values = {
        "nano_usd": _storable(spent + reserved),
        "expires_at": _moment(connection, _ORDERS_LAST_S if reserved else 0),
    }
    connection.execute(_table.update().where(_is_of(holder)).values(values))


def renew(connection: sa.Connection, names: Collection[str]) -> set[str]:
    """Renew the leases of some holders, by name; return those whose lease had not expired."""
    is_held = _table.c.holder.in_(names) & _is_held(connection)
    moment = _moment(connection, LEASE_S)
    renewed = _table.update().where(is_held).values(expires_at=moment).returning(_table.c.holder)
    return set(connection.execute(renewed).scalars())


def limits_by_team(connection: sa.Connection) -> dict[str, frozenset[str]]:
    """Return which amounts are limited, by team; those of `quotas.ALL_TEAMS` apply to every team."""
    table = schema.quotas.c
    names = {quota.value: name for name, quota in _QUOTAS.items()}
    rows = connection.execute(sa.select(table.team, table.quota).where(table.quota.in_(names))).all()
    limited: dict[str, frozenset[str]] = {}
    for row in rows:
        limited[row.team] = limited.get(row.team, frozenset()) | {names[row.quota]}
    return limited


def limits_of(team: str, limits: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return which amounts of a team are limited, according to the result of `limits_by_team`."""
    return limits.get(team, frozenset()) | limits.get(quotas.ALL_TEAMS, frozenset())


def _sums(connection: sa.Connection, holder: Holder) -> dict[str, int]:
    """Return what a holder's team has spent and what its other allotments hold, at the same moment.

    One statement: between two, a row being stored could move its cost from an allotment to the spending.
    """
    others = (_table.c.team == holder.team) & ~_is_of(holder) & _is_held(connection)
    held_sums = [_left(name, others).label(f"held_{name}") for name in _QUOTAS]
    spent = [
        spending.money_query(holder.team).label("spent_nano_usd"),
        spending.tokens_query(holder.team).label("spent_tokens"),
    ]
    row = connection.execute(sa.select(*held_sums, *spent)).one()
    return {name: int(value) for name, value in row._mapping.items()}  # noqa: SLF001 - the public name of a row's columns


def _left(name: str, where: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    remainder = _table.c[name] - _table.c[f"recorded_{name}"]
    positive = sa.case((remainder > 0, remainder), else_=0)
    query = sa.select(spending.total(positive)).where(where)
    return query.scalar_subquery()


def _is_of(holder: Holder) -> sa.ColumnElement[bool]:
    return (_table.c.run_id == holder.run_id) & (_table.c.holder == holder.name)


def _is_held(connection: sa.Connection) -> sa.ColumnElement[bool]:
    return _table.c.expires_at > _moment(connection)


def _is_forgotten(connection: sa.Connection, team: str) -> sa.ColumnElement[bool]:
    # Judging spend since a worker was lost is counted from its row, once the run continues.
    return (_table.c.team == team) & (_table.c.expires_at <= _moment(connection, -_KEPT_S))


def _insert(connection: sa.Connection, holder: Holder, amount: Amount, recorded: Amount) -> None:
    values = {name: _storable(getattr(amount, name)) for name in _QUOTAS}
    values |= {f"recorded_{name}": _storable(getattr(recorded, name)) for name in _QUOTAS}
    holder_columns = {"run_id": holder.run_id, "holder": holder.name, "team": holder.team}
    connection.execute(_table.insert().values(**holder_columns, **values, expires_at=_moment(connection, LEASE_S)))


def _storable(amount: int) -> int:
    """Return an amount that the database can store: a price may exceed the database's integers."""
    return min(amount, 2**63 - 1)


def _moment(connection: sa.Connection, seconds: float = 0) -> sa.ColumnElement[str]:
    """Return the time some seconds from now on the clock that all processes share: their hosts' clocks differ.

    That is the clock of the PostgreSQL server; the processes of a SQLite file run on one machine.
    """
    if connection.dialect.name != "postgresql":
        return sa.literal(now(seconds))
    began = sa.func.statement_timestamp(type_=sa.DateTime(timezone=True)) + sa.literal(timedelta(seconds=seconds))
    return sa.func.to_char(sa.func.timezone("UTC", began), sa.literal('YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))


def _shown(quota: Quota, amount: int) -> str:
    if quota is Quota.MONEY_PER_MONTH:
        return f"${amount / NANO:,.6f}"
    return quota.shown(amount)


_QUOTAS = {"nano_usd": Quota.MONEY_PER_MONTH, "tokens": Quota.TOKENS_PER_DAY}
"""The quotas that allotments divide, by the name of their amount."""
