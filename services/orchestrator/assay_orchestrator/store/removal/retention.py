"""Queries about the retention of teams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.model.run import FINISHED_STATES
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs import dataset_versions
from assay_orchestrator.store.teams import tokens
from assay_orchestrator.store.teams.tokens import TeamRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.model.scope import Scope

_MOST_DELETED = 1_000  # per pass; the next pass continues

_teams = schema.teams


def set_retention(connection: sa.Connection, team: str, days: Mapping[str, int | None]) -> TeamRecord:
    """Set after how many days a team's runs or audit entries are deleted, None for never; return the team.

    Args:
        connection: The transaction.
        team: The team.
        days: By "keep_runs_days" and "keep_audit_days"; an absent key keeps its value.

    Raises:
        NotFoundError: There is no such team.
    """
    own = (_teams.c.team == team) & _teams.c.deleted_at.is_(None)
    if days:
        connection.execute(sa.update(_teams).where(own).values(**days))
    return tokens.get_team(connection, team)


def list_teams(connection: sa.Connection) -> list[TeamRecord]:
    """Return the teams with a retention, including deleted ones, whose audit is kept."""
    has_one = _teams.c.keep_runs_days.is_not(None) | _teams.c.keep_audit_days.is_not(None)
    return [TeamRecord(**row) for row in connection.execute(sa.select(_teams).where(has_one)).mappings()]


def list_old_runs(connection: sa.Connection, scope: Scope, before: str) -> list[str]:
    """Return runs of a scope that ended before a time, oldest first, without baselines."""
    runs, baselines = schema.runs, schema.baselines
    is_baseline = sa.exists().where(baselines.c.team == scope.team, baselines.c.run_id == runs.c.run_id)
    query = sa.select(runs.c.run_id).where(
        runs.c.team == scope.team,
        runs.c.state.in_([state.value for state in FINISHED_STATES]),
        runs.c.ended_at < before,
        ~is_baseline,
    )
    return list(connection.execute(query.order_by(runs.c.ended_at).limit(_MOST_DELETED)).scalars())


def list_old_datasets(connection: sa.Connection, scope: Scope, before: str) -> list[str]:
    """Return datasets of a scope that no run uses and that were last uploaded before a time."""
    return dataset_versions.list_unused(connection, scope, before, _MOST_DELETED)
