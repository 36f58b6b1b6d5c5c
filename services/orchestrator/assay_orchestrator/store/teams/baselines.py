"""Baselines: a team's names for runs that other runs are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.errors import NotFoundError, OverloadedError, WrongStateError
from assay.model.baseline import MOST_BASELINES, Baseline, named
from assay.storage.times import now
from assay_orchestrator.store import schema
from assay_orchestrator.store.teams import audit, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.scope import Scope

_table = schema.baselines


def set_baseline(connection: sa.Connection, scope: Scope, name: str, run_id: str) -> Baseline:
    """Point a baseline name at a run, replacing the run it named before.

    Raises:
        OverloadedError: The team has too many names.
    """
    tokens.require_not_deleted(connection, scope.team)
    own = (_table.c.team == scope.team) & (_table.c.name == name)
    set_at = now()
    # Counted only for a new name: a team at the limit may still move its baselines.
    if not connection.execute(sa.update(_table).where(own).values(run_id=run_id, set_at=set_at)).rowcount:
        name_count = connection.execute(sa.select(sa.func.count()).where(_table.c.team == scope.team)).scalar_one()
        if name_count >= MOST_BASELINES:
            raise OverloadedError(
                f"there are {name_count:,} baselines: delete one with `assay baseline delete NAME`",
                reason="TOO_MANY_BASELINES",
            )
        connection.execute(sa.insert(_table).values(team=scope.team, name=name, run_id=run_id, set_at=set_at))
    audit.record(connection, scope.call, team=scope.team, resource=name)
    return Baseline(name, run_id, set_at, exists=True)


def list_baselines(connection: sa.Connection, scope: Scope, after: str, count: int) -> Sequence[Baseline]:
    """Return up to `count` baselines of a team that follow a name, by name."""
    runs = schema.runs
    # By code points, as SQLite does by default.
    name = sa.collate(_table.c.name, "C") if connection.dialect.name == "postgresql" else _table.c.name
    baseline_rows = connection.execute(
        sa.select(_table.c.name, _table.c.run_id, _table.c.set_at, runs.c.run_id.label("stored"))
        .outerjoin(runs, (runs.c.run_id == _table.c.run_id) & (runs.c.team == scope.team))
        .where(_table.c.team == scope.team, name > after)
        .order_by(name)
        .limit(count)
    )
    return [Baseline(row.name, row.run_id, row.set_at, exists=row.stored is not None) for row in baseline_rows]


def names_of(connection: sa.Connection, scope: Scope, run_id: str) -> list[str]:
    """Return the names of the baselines that point at a run, sorted."""
    own = (_table.c.team == scope.team) & (_table.c.run_id == run_id)
    return list(connection.execute(sa.select(_table.c.name).where(own).order_by(_table.c.name)).scalars())


def require_unnamed(connection: sa.Connection, scope: Scope, run_id: str) -> None:
    """Raise if a baseline names a run.

    Raises:
        WrongStateError: A baseline names it.
    """
    if names := names_of(connection, scope, run_id):
        raise WrongStateError(f"run {run_id} is {named(names)}: it is kept", reason="RUN_IS_BASELINE")


def delete_baseline(connection: sa.Connection, scope: Scope, name: str) -> None:
    """Delete a baseline name.

    Raises:
        NotFoundError: The team has no such name.
    """
    gone = connection.execute(sa.delete(_table).where((_table.c.team == scope.team) & (_table.c.name == name)))
    if not gone.rowcount:
        raise NotFoundError(
            f"there is no baseline {name!r}: `assay baseline list` lists the names", reason="BASELINE_NOT_FOUND"
        )
    audit.record(connection, scope.call, team=scope.team, resource=name)
