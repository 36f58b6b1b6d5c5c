"""Allotments: what a process has taken of a team's money and tokens for one run, to spend without asking again.

A quota is shared out in parts. A part is taken in a transaction that sees, under the team's lock, what the team has
spent and what all its allotments still hold; together they never pass the quota. Rows that are stored move their cost
from the allotment to what is spent. An allotment is leased: what a process held that has ended is free again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.identity.quotas import ALL_TEAMS, MAX_AMOUNT, NANO, Quota
from assay.storage.times import now
from assay_orchestrator.store import schema
from assay_orchestrator.store.teams import quotas, spending

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LEASE_S = 60.0
"""How long an allotment is held that is not renewed, in seconds."""

CALLS_AT_ONCE = 64
"""An allotment is taken for as many calls, or an eighth of what is left where that is less."""

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
        """Return whether neither part is more than that of a limit."""
        return self.nano_usd <= limit.nano_usd and self.tokens <= limit.tokens


@dataclass(frozen=True, slots=True)
class JudgingNeed:
    """What judging of a run has used and needs, in billionths of a dollar.

    Args:
        spent: What the judge has spent for the run so far.
        reserved: What it has set aside for calls in flight and orders.
        call: The most that its next call may cost.
        room: What there should be for calls beyond that, these included.
    """

    spent: int
    reserved: int
    call: int
    room: int


NOTHING = Amount()
UNLIMITED = Amount(2**62, 2**62)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who takes an allotment.

    Args:
        team: Whose quota it is of.
        run_id: The run.
        name: What of the run, in which process.
    """

    team: str
    run_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why nothing can be taken.

    Args:
        quota: Of which too little is left.
        limit: The quota.
        spent: What the team has spent.
        held: What its allotments hold, that of the holder as well.
        wanted: What the next call may take.
    """

    quota: Quota
    limit: int
    spent: int
    held: int
    wanted: int

    def sentence(self, team: str) -> str:
        """Return what is short, and what helps."""
        spent, limit, held, wanted = (
            _shown(self.quota, each) for each in (self.spent, self.limit, self.held, self.wanted)
        )
        return (
            f"the team {team!r} has too little left of its quota {self.quota.value} for the next call, which may take "
            f"{wanted}: {spent} of {limit} are used and {held} are reserved for calls of its runs; "
            f"{quotas.help_with(self.quota)}, or ask the operator of this server for more"
        )


def take(
    connection: sa.Connection, holder: Holder, used: Amount, recorded: Amount, wanted: Amount
) -> Amount | Shortage:
    """Take what a holder needs for its next calls, and return what was left of its last allotment.

    Args:
        connection: In whose transaction.
        holder: Who takes it.
        used: All that the holder has used and reserved since its beginning.
        recorded: What of that is stored as spent.
        wanted: The most that its next call may take.

    Returns:
        What the holder may use since its beginning, `UNLIMITED` where the team has no quota; or what is short.
    """
    limits = quotas.read_quotas(connection, holder.team)
    _lock(connection, holder.team)
    found = _sums(connection, holder)
    unrecorded = used - recorded
    granted: dict[str, int] = {}
    for name, quota in _QUOTAS.items():
        limit = limits.get(quota)
        if limit is None:
            continue
        asked, own = getattr(wanted, name), getattr(unrecorded, name)
        held = found[f"held_{name}"] + own
        free = limit - found[f"spent_{name}"] - held
        if asked > free:
            return Shortage(quota, limit, found[f"spent_{name}"], held, asked)
        granted[name] = getattr(used, name) + max(asked, min(asked * CALLS_AT_ONCE, free // _SHARE))
    connection.execute(_table.delete().where(_is_of(holder) | _is_forgotten(connection, holder.team)))
    if not granted:
        return UNLIMITED
    _insert(connection, holder, Amount(**{name: granted.get(name, 0) for name in _QUOTAS}), recorded)
    return Amount(**{name: granted.get(name, getattr(UNLIMITED, name)) for name in _QUOTAS})


def record(connection: sa.Connection, holder: Holder, recorded: Amount) -> None:
    """Note what of an allotment is stored as spent, in the transaction that stores it."""
    values = {f"recorded_{name}": _storable(getattr(recorded, name)) for name in _QUOTAS}
    connection.execute(_table.update().where(_is_of(holder)).values(values))


def release(connection: sa.Connection, holder: Holder) -> None:
    """Give back what an allotment still holds."""
    connection.execute(_table.delete().where(_is_of(holder)))


def take_judging(connection: sa.Connection, holder: Holder, worker: Holder, need: JudgingNeed) -> int | Shortage | None:
    """Raise what a run may have spent on judging; its workers share that, and the judge holds them to it.

    Args:
        connection: In whose transaction.
        holder: The run's judging.
        worker: What of the run takes it in this process; as long as it is there, the others do not give it back.
        need: What the run has used and needs.

    Returns:
        What the run may have spent by now, as much as before where calls in flight may leave enough; None where the
        team has no quota of money; or what is short.
    """
    limit = quotas.read_quotas(connection, holder.team).get(Quota.MONEY_PER_MONTH)
    if limit is None:
        return None
    _lock(connection, holder.team)
    # Locked before the sums: rows that are being stored move their cost from here to what is spent.
    own = sa.select(_table, _is_held(connection).label("is_held")).where(_is_of(holder)).with_for_update()
    row = connection.execute(own).one_or_none()
    recorded = need.spent if row is None else int(row.recorded_nano_usd)
    taken = need.spent + need.reserved
    if row is not None and row.is_held:
        taken = max(taken, int(row.nano_usd))
    found = _sums(connection, holder)
    held = found["held_nano_usd"] + max(0, taken - recorded)
    free = limit - found["spent_nano_usd"] - held
    room, least = need.spent + need.reserved + need.room - taken, need.spent + need.call - taken
    if least > free and least > 0:
        return Shortage(Quota.MONEY_PER_MONTH, limit, found["spent_nano_usd"], held, need.call)
    if room > 0:
        taken += min(free, max(room, min(need.call * CALLS_AT_ONCE, free // _SHARE))) if free > 0 else 0
    if row is None:
        _insert(connection, holder, Amount(taken), Amount(recorded))
    else:
        values = {"nano_usd": _storable(taken), "expires_at": _moment(connection, LEASE_S)}
        connection.execute(_table.update().where(_is_of(holder)).values(values))
    if connection.execute(sa.select(_table.c.holder).where(_is_of(worker))).one_or_none() is None:
        _insert(connection, worker, NOTHING, NOTHING)
    return taken


def has_judging(connection: sa.Connection, holder: Holder) -> bool:
    """Return whether money was ever taken for a run's verdicts."""
    return connection.execute(sa.select(_table.c.holder).where(_is_of(holder))).one_or_none() is not None


def record_judging(connection: sa.Connection, holder: Holder, spent: int) -> int | None:
    """Note what judging has spent, in the transaction that stores it.

    Returns:
        How much of that is new; None where no money was ever taken for it.
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
    """Give back what judging still holds, but what is set aside for orders, which last for days.

    While another worker is there, its calls in flight may spend what was taken: it gives the rest back itself.
    """
    _lock(connection, holder.team)
    others = (_table.c.run_id == holder.run_id) & ~_is_of(holder) & ~_is_of(worker) & _is_held(connection)
    if connection.execute(sa.select(_table.c.holder).where(others).limit(1)).one_or_none() is not None:
        return
    # The row stays: the next worker counts from what is recorded there.
    values = {
        "nano_usd": _storable(spent + reserved),
        "expires_at": _moment(connection, _ORDERS_LAST_S if reserved else 0),
    }
    connection.execute(_table.update().where(_is_of(holder)).values(values))


def renew(connection: sa.Connection, names: Collection[str]) -> set[str]:
    """Renew the leases of some holders, by their names; return those that had not ended."""
    is_held = _table.c.holder.in_(names) & _is_held(connection)
    moment = _moment(connection, LEASE_S)
    renewed = _table.update().where(is_held).values(expires_at=moment).returning(_table.c.holder)
    return set(connection.execute(renewed).scalars())


def limits_by_team(connection: sa.Connection) -> dict[str, frozenset[str]]:
    """Return which amounts are limited, by team; those of `ALL_TEAMS` hold for all."""
    table = schema.quotas.c
    names = {quota.value: name for name, quota in _QUOTAS.items()}
    rows = connection.execute(sa.select(table.team, table.quota).where(table.quota.in_(names))).all()
    found: dict[str, frozenset[str]] = {}
    for row in rows:
        found[row.team] = found.get(row.team, frozenset()) | {names[row.quota]}
    return found


def limits_of(team: str, limits: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return which amounts of a team are limited, by what `limits_by_team` has returned."""
    return limits.get(team, frozenset()) | limits.get(ALL_TEAMS, frozenset())


def _sums(connection: sa.Connection, holder: Holder) -> dict[str, int]:
    """Return what a holder's team has spent and what its other allotments hold, all of one moment.

    One statement: between two, a row that is stored may move its cost from an allotment to what is spent.
    """
    others = (_table.c.team == holder.team) & ~_is_of(holder) & _is_held(connection)
    held = [_left(name, others).label(f"held_{name}") for name in _QUOTAS]
    spent = [
        spending.money_query(holder.team).label("spent_nano_usd"),
        spending.tokens_query(holder.team).label("spent_tokens"),
    ]
    row = connection.execute(sa.select(*held, *spent)).one()
    return {name: int(value) for name, value in row._mapping.items()}  # noqa: SLF001 - the public name of a row's columns


def _left(name: str, where: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    left = _table.c[name] - _table.c[f"recorded_{name}"]
    positive = sa.case((left > 0, left), else_=0)
    query = sa.select(spending.total(positive)).where(where)
    return query.scalar_subquery()


def _is_of(holder: Holder) -> sa.ColumnElement[bool]:
    return (_table.c.run_id == holder.run_id) & (_table.c.holder == holder.name)


def _is_held(connection: sa.Connection) -> sa.ColumnElement[bool]:
    return _table.c.expires_at > _moment(connection)


def _is_forgotten(connection: sa.Connection, team: str) -> sa.ColumnElement[bool]:
    # What judging has spent since a worker was lost is counted from its row, once the run continues.
    return (_table.c.team == team) & (_table.c.expires_at <= _moment(connection, -_KEPT_S))


def _insert(connection: sa.Connection, holder: Holder, taken: Amount, recorded: Amount) -> None:
    values = {name: _storable(getattr(taken, name)) for name in _QUOTAS}
    values |= {f"recorded_{name}": _storable(getattr(recorded, name)) for name in _QUOTAS}
    who = {"run_id": holder.run_id, "holder": holder.name, "team": holder.team}
    connection.execute(_table.insert().values(**who, **values, expires_at=_moment(connection, LEASE_S)))


def _storable(amount: int) -> int:
    """Return an amount as it is stored: a price may make calls cost more than the database's integers hold."""
    return min(amount, 2 * MAX_AMOUNT - 1)


def _lock(connection: sa.Connection, team: str) -> None:
    """Let one transaction at a time take of a team's quotas."""
    if connection.dialect.name == "postgresql":  # SQLite writes one transaction at a time
        key = sa.func.hashtext(sa.func.current_schema() + sa.literal(f" {team}"))
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK, key)))


def _moment(connection: sa.Connection, seconds: float = 0) -> sa.ColumnElement[str]:
    """Return the moment in some seconds by the one clock that all processes have: their hosts' clocks differ.

    That is the clock of the PostgreSQL server; the processes of a SQLite file are on one machine.
    """
    if connection.dialect.name != "postgresql":
        return sa.literal(_later(seconds))
    began = sa.func.statement_timestamp(type_=sa.DateTime(timezone=True)) + sa.literal(timedelta(seconds=seconds))
    return sa.func.to_char(sa.func.timezone("UTC", began), sa.literal('YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))


def _later(seconds: float) -> str:
    moment = datetime.fromisoformat(now()) + timedelta(seconds=seconds)
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _shown(quota: Quota, amount: int) -> str:
    if quota is Quota.MONEY_PER_MONTH:
        return f"${amount / NANO:,.6f}"
    return quota.shown(amount)


_QUOTAS = {"nano_usd": Quota.MONEY_PER_MONTH, "tokens": Quota.TOKENS_PER_DAY}
"""The quotas that are shared out, by the name of their amount."""
