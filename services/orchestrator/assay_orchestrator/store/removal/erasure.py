"""Queries that delete all data of a team, table by table, and count what remains.

The schema shows which tables contain team data: those with a column `team`, and those whose rows belong to a run or an
upload. A test fails for any other table that is not listed here as free of team data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.storage.times import now
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.teams import tokens
from assay_orchestrator.store.teams.tokens import TeamRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.scope import Scope

KEPT = frozenset({"teams", "audit_entries", "erasures"})
"""What remains of a deleted team: its name, which no other team may get, its audit, and how much was deleted."""
_OF_NO_TEAM = frozenset({"fair_clock", "signing_keys", "write_marks"})

_teams, _erasures = schema.teams, schema.erasures


@dataclass(frozen=True, slots=True)
class StoreCount:
    """How much data of a team a store deleted and still has.

    Args:
        store: A table, or a part of another service.
        deleted: The number of deleted entries.
        remaining: The number of entries at the last count; None before the first.
    """

    store: str
    deleted: int
    remaining: int | None = None


def parts_of_runs() -> list[sa.Table]:
    """Return the tables whose rows belong to a team through their run or upload; they are deleted first."""
    return [table for table in reversed(schema.metadata.sorted_tables) if "team" not in table.c and _is_owned(table)]


def tables_of_teams() -> list[sa.Table]:
    """Return the tables with a column `team` that are erased, referring tables first."""
    return [table for table in reversed(schema.metadata.sorted_tables) if "team" in table.c and table.name not in KEPT]


def _is_owned(table: sa.Table) -> bool:
    if table.name in _OF_NO_TEAM:
        return False
    if "run_id" in table.c or "upload_id" in table.c:
        return True
    raise AssertionError(
        f"the rows of {table.name} have no known owner: give it a column `team` or `run_id`, or list it in `erasure`"
    )


def begin_erasure(connection: sa.Connection, team: str) -> tuple[TeamRecord, bool]:
    """Mark a team as deleted: nothing is stored for it any more. A deleted team stays deleted.

    Returns:
        The team, and whether this call deleted it.

    Raises:
        NotFoundError: There is no such team.
    """
    # No run is being created and no upload is ending now; later ones see that the team is deleted.
    runs.lock_creation(connection)
    moment = now()
    new = (_teams.c.team == team) & _teams.c.deleted_at.is_(None)
    marked = connection.execute(sa.update(_teams).where(new).values(disabled_at=moment, deleted_at=moment)).rowcount
    return tokens.get_team(connection, team, even_deleted=True), bool(marked)


def list_unfinished(connection: sa.Connection) -> list[TeamRecord]:
    """Return the deleted teams that may still have data, in the order of their deletion."""
    query = sa.select(_teams).where(_teams.c.deleted_at.is_not(None), _teams.c.erased_at.is_(None))
    return [TeamRecord(**row) for row in connection.execute(query.order_by(_teams.c.deleted_at)).mappings()]


def list_run_ids(connection: sa.Connection, scope: Scope, *, unfinished: bool = False) -> list[str]:
    """Return the runs of a scope; with `unfinished`, only those that have not ended."""
    table = schema.runs
    query = sa.select(table.c.run_id).where(table.c.team == scope.team)
    if unfinished:
        query = query.where(table.c.state.in_(("pending", "running", "pausing", "paused")))
    return list(connection.execute(query).scalars())


def erase_some(connection: sa.Connection, scope: Scope, table: sa.Table, limit: int) -> int:
    """Delete up to `limit` rows of a table that belong to a scope's teams; return how many."""
    keys = list(table.primary_key.columns)
    chosen = sa.select(*keys).where(_is_of(table, scope)).limit(limit)
    gone = connection.execute(table.delete().where(sa.tuple_(*keys).in_(chosen))).rowcount
    if gone:
        add_deleted(connection, scope.team, table.name, gone)
    return gone


def erase_tables_of_teams(connection: sa.Connection, scope: Scope) -> bool:
    """Delete the data stored under a team's own name, once no data of its runs remains; return whether that is so."""
    for table in parts_of_runs():
        remaining = _count(connection, scope, table)
        note_remaining(connection, scope.team, table.name, remaining)
        if remaining:
            return False
    for table in tables_of_teams():
        gone = connection.execute(table.delete().where(_is_of(table, scope))).rowcount
        add_deleted(connection, scope.team, table.name, gone)
        note_remaining(connection, scope.team, table.name, _count(connection, scope, table))
    return True


def finish_erasure(connection: sa.Connection, scope: Scope) -> bool:
    """Record that no data of a team remains, if that is so; return whether it is."""
    remaining = [count.remaining for count in list_counts(connection, scope.team)]
    local = sum(_count(connection, scope, table) for table in (*parts_of_runs(), *tables_of_teams()))
    if local or any(remaining) or None in remaining:
        return False
    connection.execute(sa.update(_teams).where(_teams.c.team == scope.team).values(erased_at=now()))
    return True


def list_counts(connection: sa.Connection, team: str) -> list[StoreCount]:
    """Return how much of a team was deleted, by store."""
    query = sa.select(_erasures).where(_erasures.c.team == team).order_by(_erasures.c.store)
    return [StoreCount(row.store, row.deleted_count, row.remaining_count) for row in connection.execute(query)]


def add_deleted(connection: sa.Connection, team: str, store: str, count: int) -> None:
    """Add to the number of entries deleted from a store."""
    is_stored = (_erasures.c.team == team) & (_erasures.c.store == store)
    added = sa.update(_erasures).where(is_stored).values(deleted_count=_erasures.c.deleted_count + count)
    if not connection.execute(added).rowcount:
        connection.execute(sa.insert(_erasures).values(team=team, store=store, deleted_count=count))


def note_remaining(connection: sa.Connection, team: str, store: str, count: int | None) -> None:
    """Record how much data of a team a store currently has; None if the store does not answer."""
    add_deleted(connection, team, store, 0)
    is_stored = (_erasures.c.team == team) & (_erasures.c.store == store)
    connection.execute(sa.update(_erasures).where(is_stored).values(remaining_count=count))


def note_answered(connection: sa.Connection, team: str, service: str) -> None:
    """Remove the record that a service did not answer: it has answered now."""
    connection.execute(_erasures.delete().where(_erasures.c.team == team, _erasures.c.store == service))


def _count(connection: sa.Connection, scope: Scope, table: sa.Table) -> int:
    query = sa.select(sa.func.count()).select_from(table).where(_is_of(table, scope))
    return connection.execute(query).scalar_one()


def _is_of(table: sa.Table, scope: Scope) -> sa.ColumnElement[bool]:
    """Return the condition that a row belongs to a scope's teams."""
    if "team" in table.c:
        return table.c.team == scope.team
    name = "run_id" if "run_id" in table.c else "upload_id"
    owners: Sequence[sa.Table] = [owner for owner in tables_of_teams() if name in owner.c]
    owned = (sa.select(owner.c[name]).where(owner.c.team == scope.team, owner.c[name].is_not(None)) for owner in owners)
    return table.c[name].in_(sa.union(*owned))
