"""The virtual time of fair queueing, which `fairness` explains, and the priorities of jobs."""

from __future__ import annotations

import sqlalchemy as sa

from assay_orchestrator.store import schema

_LOWEST_PRIORITY = -(2**31) + 1
_CLOCK = 1


def virtual_time(connection: sa.Connection) -> float:
    """Return the tag of the last started shard."""
    clock = schema.fair_clock
    return float(connection.execute(sa.select(clock.c.virtual_time).where(clock.c.clock_id == _CLOCK)).scalar_one())


def advance(connection: sa.Connection, tag: float) -> None:
    """Advance the virtual time to the tag of a started shard, unless it is already later."""
    clock = schema.fair_clock
    connection.execute(
        clock.update().where(clock.c.clock_id == _CLOCK, clock.c.virtual_time < tag).values(virtual_time=tag)
    )


def priority_of(tag: float) -> int:
    """Return the priority of a job with a shard's finish tag: the lowest tag has the highest priority."""
    return max(_LOWEST_PRIORITY, -int(tag))
