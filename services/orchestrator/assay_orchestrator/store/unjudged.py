"""Queries about shards that are answered but await verdicts that cannot be had now.

Such a shard is `unjudged`: nobody takes it until its run is resumed. Meanwhile the run's other shards are answered, and
once they all are, it pauses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.results import PauseCause, RunState
from assay_orchestrator.store import runs, schema, shards
from assay_orchestrator.store.texts import json_text

if TYPE_CHECKING:
    from assay_orchestrator.store.shards import Shard

__all__ = ["change_spend_cap", "park", "pause_if_stuck", "release"]

_UNJUDGED = "unjudged"


def park(connection: sa.Connection, shard: Shard, trouble: str) -> None:
    """Set a shard aside of which rows await verdicts, and let its run say why; whoever has it must have the right."""
    table, owners = schema.shards, schema.runs
    connection.execute(
        table.update()
        .where(
            table.c.run_id == shard.run_id,
            table.c.shard_index == shard.shard_index,
            table.c.epoch == shard.epoch,
            table.c.state == "taken",
        )
        .values(state=_UNJUDGED, slots=0)
    )
    connection.execute(owners.update().where(owners.c.run_id == shard.run_id).values(state_reason=trouble))


def release(connection: sa.Connection, run_id: str) -> None:
    """Let shards that were set aside wait again: their verdicts are to be asked for once more."""
    table = schema.shards
    connection.execute(
        table.update().where(table.c.run_id == run_id, table.c.state == _UNJUDGED).values(state="waiting")
    )


def pause_if_stuck(connection: sa.Connection, run_id: str) -> str:
    """Pause a run of which nothing is left to do but what awaits verdicts.

    Returns:
        Why it is paused now, for people; empty where it is not.
    """
    shards.lock_run(connection, run_id)
    run = runs.get(connection, run_id)
    if run is None or run.state not in runs.GOING or run.pause_cause is not None:
        return ""
    table = schema.shards
    states = set(
        connection.execute(sa.select(table.c.state).where(table.c.run_id == run_id).distinct()).scalars()
    )  # fmt: skip
    if _UNJUDGED not in states or states - {_UNJUDGED, "done"}:
        return ""
    waiting = run.total_count - run.finished_count
    rows = "1 row awaits" if waiting == 1 else f"{waiting} rows await"
    reason = f"every answer is stored, {rows} a verdict: {run.state_reason}"
    runs.change_state(connection, run_id, RunState.PAUSED, reason=reason, cause=PauseCause.JUDGE)
    return reason


def change_spend_cap(connection: sa.Connection, run_id: str, usd: float | None) -> None:
    """Give the judge of a run another spend cap; None for no cap."""
    shards.lock_run(connection, run_id)
    run = runs.get(connection, run_id)
    if run is not None and run.spec.get("judge") is not None:
        spec = {**run.spec, "judge": {**run.spec["judge"], "spend_cap_usd": usd}}
        connection.execute(
            schema.runs.update().where(schema.runs.c.run_id == run_id).values(spec_json=json_text(spec))
        )  # fmt: skip
