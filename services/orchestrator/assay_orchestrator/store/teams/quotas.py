"""The quotas of teams: limits, use, and errors when one is reached."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.errors import OverloadedError
from assay.identity.quotas import Quota
from assay.storage.times import now
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.runs.lifecycle import ACTIVE_STATES
from assay_orchestrator.store.runs.run_conditions import is_active, is_runnable
from assay_orchestrator.store.teams import spending

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from assay.model.scope import Scope

REASON = "QUOTA_REACHED"
BUDGETS = (Quota.STORED_BYTES, Quota.TOKENS_PER_DAY, Quota.MONEY_PER_MONTH)
"""The quotas that running runs use up: a run pauses when one is reached."""

ALL_TEAMS = "*"
"""In place of a team: the quotas of teams without their own. No team has this name."""

DEFAULTS = {Quota.REQUESTS_PER_MINUTE: 6_000}
"""The defaults for teams without a limit from the operator: ten times what a busy team's clients need."""

_quotas = schema.quotas
_ACTIVE_RETRY_S = 10.0
_LEASES_PER_MINUTE = 20


@dataclass(frozen=True, slots=True)
class Use:
    """A team's use of a quota, in the quota's unit; the limit is None if there is none."""

    quota: Quota
    used: int
    limit: int | None


def set_quotas(
    connection: sa.Connection, team: str, amounts: Mapping[Quota, int], cleared: Collection[Quota] = ()
) -> None:
    """Set and remove quotas of a team, or of `ALL_TEAMS`, for the teams without their own."""
    changed = [quota.value for quota in {*amounts, *cleared}]
    connection.execute(_quotas.delete().where(_quotas.c.team == team, _quotas.c.quota.in_(changed)))
    if amounts:
        rows = [{"team": team, "quota": quota.value, "amount": amount} for quota, amount in amounts.items()]
        connection.execute(_quotas.insert(), rows)


def own_quotas(connection: sa.Connection, team: str) -> dict[Quota, int]:
    """Return the quotas set for a team itself."""
    rows = connection.execute(sa.select(_quotas.c.quota, _quotas.c.amount).where(_quotas.c.team == team))
    return {_BY_NAME[row.quota]: row.amount for row in rows if row.quota in _BY_NAME}


def read_quotas(connection: sa.Connection, team: str) -> dict[Quota, int]:
    """Return the quotas that apply to a team: its own, else those of all teams."""
    return DEFAULTS | own_quotas(connection, ALL_TEAMS) | own_quotas(connection, team)


def is_limited(connection: sa.Connection, *quotas: Quota) -> sa.ColumnElement[bool]:
    """Return the condition that a run's team has at least one of some quotas."""
    names = [quota.value for quota in quotas]
    teams = set(connection.execute(sa.select(_quotas.c.team).where(_quotas.c.quota.in_(names))).scalars())
    if ALL_TEAMS in teams:
        return sa.true()
    return schema.runs.c.team.in_(teams)


def use_of(connection: sa.Connection, team: str, quota: Quota) -> int:
    """Return a team's current use of a quota."""
    return _USES[quota](connection, team)


def queued_rows(connection: sa.Connection, team: str) -> int:
    """Return the number of unfinished rows in a team's active runs."""
    table = schema.runs.c
    waiting = sa.func.coalesce(sa.func.sum(table.total_count - table.finished_count), 0)
    return int(connection.execute(sa.select(waiting).where(table.team == team, is_active())).scalar_one())


def require_run(connection: sa.Connection, team: str) -> None:
    """Raise unless another run of a team may be active; until the commit no other process starts one.

    Raises:
        OverloadedError: A quota is reached; names the quota and its use.
    """
    runs.lock_creation(connection)
    limits = read_quotas(connection, team)
    for quota in (Quota.ACTIVE_RUNS, *BUDGETS):
        if quota in limits and (used := use_of(connection, team, quota)) >= limits[quota]:
            raise reached(team, Use(quota, used, limits[quota]))


def require_resumption(connection: sa.Connection, scope: Scope, run_id: str) -> None:
    """Raise unless a run may resume: an inactive run needs a place among the team's active runs.

    Raises:
        OverloadedError: As in `require_run`.
    """
    run = runs.get_run(connection, scope, run_id)
    if run is None:
        return
    if run.state in ACTIVE_STATES:
        if over := over_budget(connection, run.team):
            raise reached(run.team, over)
    else:
        require_run(connection, run.team)


def require_bytes(connection: sa.Connection, team: str, more: int) -> None:
    """Raise unless a team may store this many more bytes.

    Raises:
        OverloadedError: The quota is reached.
    """
    limit = read_quotas(connection, team).get(Quota.STORED_BYTES)
    if limit is not None and (used := use_of(connection, team, Quota.STORED_BYTES)) + more > limit:
        raise reached(team, Use(Quota.STORED_BYTES, used + more, limit))


def over_budget(connection: sa.Connection, team: str) -> Use | None:
    """Return a quota that a team's runs have used up; None if all have room."""
    limits = read_quotas(connection, team)
    for quota in BUDGETS:
        if quota in limits and (used := use_of(connection, team, quota)) >= limits[quota]:
            return Use(quota, used, limits[quota])
    return None


def runs_over_budget(connection: sa.Connection) -> list[tuple[str, Use]]:
    """Return the runnable runs whose team has used up a quota, with that quota."""
    table = schema.runs.c
    query = sa.select(table.run_id, table.team).where(is_limited(connection, *BUDGETS), is_runnable())
    run_rows = connection.execute(query.order_by(table.run_id)).all()
    over = {team: over_budget(connection, team) for team in {row.team for row in run_rows}}
    return [(row.run_id, use) for row in run_rows if (use := over[row.team]) is not None]


def take_requests(connection: sa.Connection, team: str, limit: int) -> int:
    """Take some of the current minute's requests for a process; return how many, 0 if none are left.

    Each process takes a portion at a time: together they stay within the limit, and few calls query the database.
    """
    table, minute = schema.requests, now()[:16]
    # PostgreSQL must find a row to lock: otherwise two processes would both see a minute without a row.
    _ensure_requests(connection, team)
    row = connection.execute(
        sa.select(table.c.minute, table.c.taken).where(table.c.team == team).with_for_update()
    ).one()
    # One row per team, reused every minute: rows of past minutes would have to be removed.
    taken_before = row.taken if row.minute == minute else 0
    count = min(max(1, limit // _LEASES_PER_MINUTE), max(0, limit - taken_before))
    values = {"minute": minute, "taken": taken_before + count}
    connection.execute(table.update().where(table.c.team == team).values(values))
    return count


def _ensure_requests(connection: sa.Connection, team: str) -> None:
    table = schema.requests
    missing = ~sa.exists().where(table.c.team == team)
    row = sa.select(sa.literal(team, table.c.team.type), sa.literal(""), sa.literal(0)).where(missing)
    try:
        with connection.begin_nested():
            connection.execute(table.insert().from_select(["team", "minute", "taken"], row))
    except sa.exc.IntegrityError:
        pass  # another process has just created it


def reached(team: str, use: Use) -> OverloadedError:
    """Return the error for a reached quota."""
    return OverloadedError(sentence(team, use), reason=REASON, retry_after_s=retry_after_s(use.quota))


def sentence(team: str, use: Use) -> str:
    """Return which quota is reached, its use, and what helps."""
    quota, limit = use.quota, use.limit or 0
    return (
        f"the team {team!r} has reached its quota {quota.value}: {quota.shown(use.used)} of {quota.shown(limit)}; "
        f"{HELPS[quota]}, or ask the operator of this server for more"
    )


def too_fast(team: str, limit: int) -> str:
    """Return that requests arrive faster than the quota's pace, and what helps."""
    return (
        f"requests of the team {team!r} come faster than its quota {Quota.REQUESTS_PER_MINUTE.value} allows: "
        f"{Quota.REQUESTS_PER_MINUTE.shown(limit)} a minute, at a steady pace; send them more slowly, or ask the "
        "operator of this server for more"
    )


def minute_used_up(team: str, limit: int) -> str:
    """Return that the processes of an installation have taken all requests of a minute, and what helps.

    Processes take them in portions: the others do not know how many calls a process has admitted of its last portion.
    """
    return (
        f"the team {team!r} has reached its quota {Quota.REQUESTS_PER_MINUTE.value}: the "
        f"{Quota.REQUESTS_PER_MINUTE.shown(limit)} of this minute are assigned to the processes of this server; "
        f"{HELPS[Quota.REQUESTS_PER_MINUTE]}, or ask the operator of this server for more"
    )


def retry_after_s(quota: Quota) -> float:
    """Return after how many seconds a quota frees up by itself; 0 if time alone does not help."""
    moment = datetime.fromisoformat(now())
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if quota is Quota.TOKENS_PER_DAY:
        return (midnight + timedelta(days=1) - moment).total_seconds()
    if quota is Quota.MONEY_PER_MONTH:
        next_month = (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
        return (next_month - moment).total_seconds()
    if quota is Quota.REQUESTS_PER_MINUTE:
        return 60.0 - moment.second - moment.microsecond / 1e6
    return 0.0 if quota is Quota.STORED_BYTES else _ACTIVE_RETRY_S


def _active(connection: sa.Connection, team: str) -> int:
    query = sa.select(sa.func.count()).select_from(schema.runs).where(schema.runs.c.team == team, is_active())
    return int(connection.execute(query).scalar_one())


def _questions(connection: sa.Connection, team: str) -> int:
    shards, table = schema.shards.c, schema.runs.c
    query = sa.select(sa.func.coalesce(sa.func.sum(shards.slots), 0)).select_from(
        schema.shards.join(schema.runs, table.run_id == shards.run_id)
    )
    return int(connection.execute(query.where(table.team == team, is_active())).scalar_one())


def _requests(connection: sa.Connection, team: str) -> int:
    table = schema.requests.c
    query = sa.select(sa.func.coalesce(sa.func.sum(table.taken), 0))
    return int(connection.execute(query.where(table.team == team, table.minute == now()[:16])).scalar_one())


_BY_NAME = {quota.value: quota for quota in Quota}
_USES: Mapping[Quota, Callable[[sa.Connection, str], int]] = {
    Quota.ACTIVE_RUNS: _active,
    Quota.CONCURRENT_QUESTIONS: _questions,
    Quota.STORED_BYTES: spending.bytes_stored,
    Quota.REQUESTS_PER_MINUTE: _requests,
    Quota.TOKENS_PER_DAY: spending.tokens_of_day,
    Quota.MONEY_PER_MONTH: spending.money_of_month,
}
HELPS = {
    Quota.ACTIVE_RUNS: "wait until a run has ended, or pause one",
    Quota.CONCURRENT_QUESTIONS: "wait until questions have ended",
    Quota.STORED_BYTES: "delete runs or datasets",
    Quota.REQUESTS_PER_MINUTE: "try again in the next minute",
    Quota.TOKENS_PER_DAY: "wait until midnight UTC",
    Quota.MONEY_PER_MONTH: "wait until the next month (UTC)",
}
"""What helps a team that has reached a quota."""
