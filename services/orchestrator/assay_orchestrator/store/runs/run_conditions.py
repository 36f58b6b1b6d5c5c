"""SQL conditions on runs: whether a scope reaches them, and their state as in `lifecycle`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.model.run import PauseCause
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs.lifecycle import ACTIVE_STATES, PHASES_AT_REST

if TYPE_CHECKING:
    import sqlalchemy as sa

    from assay.model.scope import Scope


def is_reached(scope: Scope) -> sa.ColumnElement[bool]:
    """Whether a run belongs to a team that a scope reaches."""
    return schema.runs.c.team == scope.team


def is_active() -> sa.ColumnElement[bool]:
    """Whether a run has not ended and is not paused."""
    return schema.runs.c.state.in_([state.value for state in ACTIVE_STATES])


def is_runnable() -> sa.ColumnElement[bool]:
    """Whether workers take a run's shards: it is active, not pausing, and not waiting for storage."""
    return is_active() & (schema.runs.c.pause_cause == "")


def waits_for_storage() -> sa.ColumnElement[bool]:
    """Whether the rows of a run could not be stored."""
    return is_active() & (schema.runs.c.pause_cause == PauseCause.STORAGE.value)


def is_at_rest() -> sa.ColumnElement[bool]:
    """Whether a run is paused or has ended."""
    return schema.runs.c.state.in_([phase.value for phase in PHASES_AT_REST])
