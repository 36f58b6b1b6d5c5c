"""Allotments: what a process has taken of a team's money and tokens for one run, to spend without asking again.

A quota is shared out in parts. A part is taken in a transaction that sees, under the team's lock, what the team has
spent and what all its allotments still hold; together they never pass the quota. Rows that are stored move their cost
from the allotment to what is spent. An allotment is leased: what a process held that has ended is free again.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.identity.quotas import ALL_TEAMS, NANO, Quota
from assay.model.scope import LOCAL
from assay.records import dataclass
from assay.storage.times import now
from assay_orchestrator.store import quotas, schema, spending

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

LEASE_S = 60.0
"""How long an allotment is held that is not renewed, in seconds."""

CALLS_AT_ONCE = 64
"""An allotment is taken for as many calls, or an eighth of what is left where that is less."""

_SHARE = 8
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
    owners = quotas.owners(holder.team)
    limits = quotas.read_quotas(connection, holder.team)
    _lock(connection, owners[0])
    found = _sums(connection, owners, holder)
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
    is_own = (_table.c.run_id == holder.run_id) & (_table.c.holder == holder.name)
    connection.execute(_table.delete().where(is_own | _has_expired(owners)))
    if not granted:
        return UNLIMITED
    values = {name: granted.get(name, 0) for name in _QUOTAS}
    spent = {f"recorded_{name}": getattr(recorded, name) for name in _QUOTAS}
    connection.execute(
        _table.insert().values(
            run_id=holder.run_id, holder=holder.name, team=holder.team, expires_at=_later(LEASE_S), **values, **spent
        )
    )
    return Amount(**{name: granted.get(name, getattr(UNLIMITED, name)) for name in _QUOTAS})


def record(connection: sa.Connection, holder: Holder, recorded: Amount) -> None:
    """Note what of an allotment is stored as spent, in the transaction that stores it."""
    values = {f"recorded_{name}": getattr(recorded, name) for name in _QUOTAS}
    connection.execute(_table.update().where(_is_of(holder)).values(values))


def release(connection: sa.Connection, holder: Holder) -> None:
    """Give back what an allotment still holds."""
    connection.execute(_table.delete().where(_is_of(holder)))


def renew(connection: sa.Connection, names: Collection[str]) -> set[str]:
    """Renew the leases of some holders, by their names; return those that had not ended."""
    is_held = _table.c.holder.in_(names) & (_table.c.expires_at > now())
    renewed = _table.update().where(is_held).values(expires_at=_later(LEASE_S)).returning(_table.c.holder)
    return set(connection.execute(renewed).scalars())


def held_by_runs(connection: sa.Connection, teams: Sequence[str]) -> Amount:
    """Return what the allotments of teams hold."""
    row = connection.execute(sa.select(*(_held(name, _table.c.team.in_(teams)).label(name) for name in _QUOTAS))).one()
    return Amount(int(row.nano_usd), int(row.tokens))


def limited_teams(connection: sa.Connection) -> set[str]:
    """Return the teams that have a quota of money or tokens; `ALL_TEAMS` among them where all have."""
    table = schema.quotas.c
    names = [quota.value for quota in _QUOTAS.values()]
    found = set(connection.execute(sa.select(table.team).where(table.quota.in_(names)).distinct()).scalars())
    return {*found, *(owner for team in found if team in LOCAL.reads for owner in LOCAL.reads)}


def is_limited(team: str, limited: Collection[str]) -> bool:
    """Return whether a team is one of those with a quota of money or tokens."""
    return team in limited or ALL_TEAMS in limited


def _sums(connection: sa.Connection, teams: Sequence[str], holder: Holder) -> dict[str, int]:
    """Return what teams have spent and what allotments other than a holder's hold, all of one moment.

    One statement: between two, a row that is stored may move its cost from an allotment to what is spent.
    """
    others = _table.c.team.in_(teams) & ~_is_of(holder)
    held = [_held(name, others).label(f"held_{name}") for name in _QUOTAS]
    spent = [
        spending.money_query(teams).label("spent_nano_usd"),
        spending.tokens_query(teams).label("spent_tokens"),
    ]
    row = connection.execute(sa.select(*held, *spent)).one()
    return {name: int(value) for name, value in row._mapping.items()}  # noqa: SLF001 - the public name of a row's columns


def _held(name: str, where: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    left = _table.c[name] - _table.c[f"recorded_{name}"]
    positive = sa.case((left > 0, left), else_=0)
    query = sa.select(sa.func.coalesce(sa.func.sum(positive), 0)).where(where, _table.c.expires_at > now())
    return query.scalar_subquery()


def _is_of(holder: Holder) -> sa.ColumnElement[bool]:
    return (_table.c.run_id == holder.run_id) & (_table.c.holder == holder.name)


def _has_expired(teams: Sequence[str]) -> sa.ColumnElement[bool]:
    return _table.c.team.in_(teams) & (_table.c.expires_at <= now())


def _lock(connection: sa.Connection, team: str) -> None:
    """Let one transaction at a time take of a team's quotas."""
    if connection.dialect.name == "postgresql":  # SQLite writes one transaction at a time
        key = sa.func.hashtext(sa.func.current_schema() + sa.literal(f" {team}"))
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK, key)))


def _later(seconds: float) -> str:
    moment = datetime.fromisoformat(now()) + timedelta(seconds=seconds)
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _shown(quota: Quota, amount: int) -> str:
    if quota is Quota.MONEY_PER_MONTH:
        return f"${amount / NANO:,.6f}"
    return quota.shown(amount)


_QUOTAS = {"nano_usd": Quota.MONEY_PER_MONTH, "tokens": Quota.TOKENS_PER_DAY}
"""The quotas that are shared out, by the name of their amount."""
