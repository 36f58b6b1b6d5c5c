"""How much is queued and running overall: four short queries over unfinished work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.model.run import RunState
from assay_orchestrator.store import schema
from assay_orchestrator.store.processes import running_processes
from assay_orchestrator.store.runs.run_conditions import is_runnable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_UNFINISHED = (RunState.PENDING.value, RunState.RUNNING.value, RunState.PAUSING.value, RunState.PAUSED.value)


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Runs of a team in one state.

    Args:
        team: The team.
        state: Their state.
        cause: The cause of their pause; empty for none.
        count: The number of runs.
        unfinished_rows: Their rows without a result.
    """

    team: str
    state: str
    cause: str
    count: int
    unfinished_rows: int


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The figures of unfinished work.

    Args:
        runs: By team, state and cause of a pause.
        shards: The unfinished shards of active runs, by state.
        oldest_pending_at: When the oldest run that no worker has started was created, ISO 8601; empty for none.
        processes: Live orchestrators.
    """

    runs: Sequence[RunFigures]
    shards: Mapping[str, int]
    oldest_pending_at: str
    processes: int


def read_queue_figures(connection: sa.Connection) -> QueueFigures:
    """Return the figures of unfinished work."""
    runs, shards = schema.runs.c, schema.shards.c
    labels = (runs.team, runs.state, runs.pause_cause)
    unfinished = sa.func.sum(runs.total_count - runs.finished_count)
    by_run = sa.select(*labels, sa.func.count(), unfinished).where(runs.state.in_(_UNFINISHED)).group_by(*labels)
    by_shard = (
        sa.select(shards.state, sa.func.count())
        .select_from(schema.shards.join(schema.runs, shards.run_id == runs.run_id))
        .where(is_runnable(), shards.state.in_(("waiting", "queued", "taken")))
        .group_by(shards.state)
    )
    oldest = sa.select(sa.func.min(runs.created_at)).where(runs.state == RunState.PENDING.value)
    is_shared = connection.dialect.name == "postgresql"
    return QueueFigures(
        runs=[
            RunFigures(team, state, cause, count, int(rows))
            for team, state, cause, count, rows in connection.execute(by_run)
        ],
        shards={str(state): count for state, count in connection.execute(by_shard)},
        oldest_pending_at=connection.execute(oldest).scalar() or "",
        processes=len(running_processes(connection)) if is_shared else 1,
    )
