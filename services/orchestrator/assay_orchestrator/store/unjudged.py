"""Queries about shards that are answered but await verdicts.

One whose verdicts cannot be had now is `unjudged`: nobody takes it until its run is resumed, or a verdict of the run
comes after all. Meanwhile the run's other shards are answered, and once they all are, it pauses. One whose verdicts are
ordered is `ordered`: it is polled once all others of its run are answered and ordered too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.model.run import PauseCause, RunState
from assay.storage.texts import json_text
from assay_orchestrator.store import runs, schema, shards
from assay_orchestrator.store.lifecycle import ACTIVE_STATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay_orchestrator.store.runs import RunRecord
    from assay_orchestrator.store.shards import Shard

__all__ = [
    "await_batch",
    "change_spend_cap",
    "list_awaiting",
    "park",
    "pause_if_stuck",
    "release",
    "release_unjudged",
    "requeue_ordered",
    "set_aside",
]  # fmt: skip

_UNJUDGED = "unjudged"
_ORDERED = "ordered"


def park(connection: sa.Connection, shard: Shard, trouble: str) -> None:
    """Set a shard aside of which rows await verdicts, and let its run say why; whoever has it must have the right."""
    _leave(connection, shard, _UNJUDGED)
    owners = schema.runs
    connection.execute(owners.update().where(owners.c.run_id == shard.run_id).values(state_reason=trouble))


def set_aside(connection: sa.Connection, shard: Shard) -> None:
    """Set a shard aside of which rows await verdicts that are ordered; whoever has it must have the right."""
    _leave(connection, shard, _ORDERED)


def _leave(connection: sa.Connection, shard: Shard, state: str) -> None:
    table = schema.shards
    connection.execute(
        table.update()
        .where(
            table.c.run_id == shard.run_id,
            table.c.shard_index == shard.shard_index,
            table.c.epoch == shard.epoch,
            table.c.state == "taken",
        )
        .values(state=state, slots=0)
    )


def release(connection: sa.Connection, run_id: str, *, states: Sequence[str] = (_UNJUDGED, _ORDERED)) -> None:
    """Let shards that were set aside wait again: their verdicts are to be asked for once more."""
    table = schema.shards
    connection.execute(
        table.update().where(table.c.run_id == run_id, table.c.state.in_(states)).values(state="waiting")
    )


def release_unjudged(connection: sa.Connection, run_id: str) -> None:
    """Let shards wait again whose verdicts could not be had: one of their run has come."""
    release(connection, run_id, states=(_UNJUDGED,))


def await_batch(connection: sa.Connection, run_id: str) -> bool:
    """Say of a run of which nothing is left to do before ordered verdicts come that it awaits them.

    Returns:
        Whether that is so: then poll again later.
    """
    run = _going(connection, run_id)
    states = _states(connection, run_id)
    if run is None or _ORDERED not in states or states - {_ORDERED, _UNJUDGED, "done"}:
        return False
    reason = f"every answer is stored, {_rows_wait(run)} verdicts of a batch"
    if _UNJUDGED not in states and run.state_reason != reason:  # else it says what else it waits for
        runs.change_state(connection, run_id, RunState.RUNNING, reason=reason)
    return True


def requeue_ordered(connection: sa.Connection, run_id: str) -> bool:
    """Let shards with ordered verdicts wait for a worker again; return whether their run is active."""
    if _going(connection, run_id) is None:
        return False
    release(connection, run_id, states=(_ORDERED,))
    return True


def list_awaiting(connection: sa.Connection) -> list[str]:
    """Return the active runs that have shards with ordered verdicts."""
    table, owners = schema.shards, schema.runs
    query = (
        sa.select(table.c.run_id)
        .join(owners, owners.c.run_id == table.c.run_id)
        .where(table.c.state == _ORDERED, owners.c.state.in_([state.value for state in ACTIVE_STATES]))
        .distinct()
    )
    return list(connection.execute(query).scalars())


def pause_if_stuck(connection: sa.Connection, run_id: str) -> str:
    """Pause a run of which nothing is left to do but what awaits verdicts.

    Returns:
        Why it is paused now, for people; empty where it is not.
    """
    run = _going(connection, run_id)
    states = _states(connection, run_id)
    if run is None or _UNJUDGED not in states or states - {_UNJUDGED, "done"}:
        return ""
    reason = f"every answer is stored, {_rows_wait(run)} a verdict: {run.state_reason}"
    runs.change_state(connection, run_id, RunState.PAUSED, reason=reason, cause=PauseCause.JUDGE)
    return reason


def _going(connection: sa.Connection, run_id: str) -> RunRecord | None:
    """Return a run that goes on and is not about to pause; it is locked."""
    shards.lock_run(connection, run_id)
    run = runs.get(connection, run_id)
    return None if run is None or run.state not in ACTIVE_STATES or run.pause_cause is not None else run


def _states(connection: sa.Connection, run_id: str) -> set[str]:
    table = schema.shards
    return set(connection.execute(sa.select(table.c.state).where(table.c.run_id == run_id).distinct()).scalars())


def _rows_wait(run: RunRecord) -> str:
    waiting = run.total_count - run.finished_count
    return "1 row awaits" if waiting == 1 else f"{waiting} rows await"


def change_spend_cap(connection: sa.Connection, run_id: str, usd: float | None) -> None:
    """Give the judge of a run another spend cap; None for no cap."""
    shards.lock_run(connection, run_id)
    run = runs.get(connection, run_id)
    if run is not None and run.spec.get("judge") is not None:
        spec = {**run.spec, "judge": {**run.spec["judge"], "spend_cap_usd": usd}}
        connection.execute(
            schema.runs.update().where(schema.runs.c.run_id == run_id).values(spec_json=json_text(spec))
        )  # fmt: skip
