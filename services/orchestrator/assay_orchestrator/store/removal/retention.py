"""Queries about what teams do not keep for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.errors import NotFoundError
from assay.model.run import FINISHED_STATES
from assay_orchestrator.store import schema
from assay_orchestrator.store.teams.tokens import TeamRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.model.scope import Scope

_MOST_RUNS = 1_000  # of one look; the next one continues

_teams = schema.teams


def set_retention(connection: sa.Connection, team: str, days: Mapping[str, int | None]) -> TeamRecord:
    """Set after how many days runs or audit entries of a team are deleted; None for never. Return the team.

    Args:
        connection: In whose transaction.
        team: The team.
        days: By "keep_runs_days" and "keep_audit_days"; what is missing stays as it is.

    Raises:
        NotFoundError: There is no such team.
    """
    own = (_teams.c.team == team) & _teams.c.deleted_at.is_(None)
    if days:
        connection.execute(sa.update(_teams).where(own).values(**days))
    found = connection.execute(sa.select(_teams).where(own)).mappings().one_or_none()
    if found is None:
        raise NotFoundError(
            f"there is no team {team!r}: `assay admin teams list` shows those there are", reason="TEAM_NOT_FOUND"
        )
    return TeamRecord(**found)


def list_teams(connection: sa.Connection) -> list[TeamRecord]:
    """Return the teams with a retention; deleted ones, too: their audit stays."""
    has_one = _teams.c.keep_runs_days.is_not(None) | _teams.c.keep_audit_days.is_not(None)
    return [TeamRecord(**row) for row in connection.execute(sa.select(_teams).where(has_one)).mappings()]


def list_old_runs(connection: sa.Connection, scope: Scope, before: str) -> list[str]:
    """Return runs of a scope that ended before a moment, the oldest first; those that are baselines are left out."""
    runs, baselines = schema.runs, schema.baselines
    is_baseline = sa.exists().where(baselines.c.team == scope.team, baselines.c.run_id == runs.c.run_id)
    query = sa.select(runs.c.run_id).where(
        runs.c.team == scope.team,
        runs.c.state.in_([state.value for state in FINISHED_STATES]),
        runs.c.ended_at < before,
        ~is_baseline,
    )
    return list(connection.execute(query.order_by(runs.c.ended_at).limit(_MOST_RUNS)).scalars())
