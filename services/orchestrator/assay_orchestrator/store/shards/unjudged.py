"""Queries about shards that are answered but await verdicts.

A shard whose verdicts are unavailable is `unjudged`: no worker takes it until its run is resumed, or another verdict of
the run arrives. Meanwhile the run's other shards are answered, and once they all are, the run pauses. A shard with
ordered verdicts is `ordered`: it is polled once all other shards of its run are answered and ordered too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay_orchestrator.store import schema
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.runs.lifecycle import RUNNABLE_PHASES, Command
from assay_orchestrator.store.runs.run_conditions import is_active

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay_orchestrator.store.runs.runs import RunRecord
    from assay_orchestrator.store.shards.shards import Shard

_UNJUDGED = "unjudged"
_ORDERED = "ordered"


def mark_unjudged(connection: sa.Connection, shard: Shard, trouble: str) -> None:
    """Release a taken shard whose verdicts are unavailable; its run shows the reason."""
    _leave(connection, shard, _UNJUDGED)
    owners = schema.runs
    connection.execute(owners.update().where(owners.c.run_id == shard.run_id).values(state_message=trouble))


def mark_ordered(connection: sa.Connection, shard: Shard) -> None:
    """Release a taken shard whose verdicts are ordered."""
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


def release_shards(connection: sa.Connection, run_id: str, *, states: Sequence[str] = (_UNJUDGED, _ORDERED)) -> None:
    """Return shards that await verdicts to waiting: their verdicts are requested again."""
    table = schema.shards
    connection.execute(
        table.update().where(table.c.run_id == run_id, table.c.state.in_(states)).values(state="waiting")
    )


def release_unjudged(connection: sa.Connection, run_id: str) -> None:
    """Return unjudged shards to waiting: the judge has answered for their run."""
    release_shards(connection, run_id, states=(_UNJUDGED,))


def await_batch(connection: sa.Connection, run_id: str) -> bool:
    """Show that a run awaits a batch if nothing else of it is left to do.

    Returns:
        Whether that is so: its verdicts must be polled again later.
    """
    run = _running(connection, run_id)
    states = _states(connection, run_id)
    if run is None or _ORDERED not in states or states - {_ORDERED, _UNJUDGED, "done"}:
        return False
    message = f"every answer is stored, {_rows_wait(run)} verdicts of a batch"
    if _UNJUDGED not in states and run.state_message != message:  # otherwise it shows what else it awaits
        runs.apply_command(connection, run_id, Command.AWAIT_BATCH, message=message)
    return True


def requeue_ordered(connection: sa.Connection, run_id: str) -> bool:
    """Return shards with ordered verdicts to waiting; return whether their run is active."""
    if _running(connection, run_id) is None:
        return False
    release_shards(connection, run_id, states=(_ORDERED,))
    return True


def list_awaiting(connection: sa.Connection) -> list[str]:
    """Return the active runs that have shards with ordered verdicts."""
    table, owners = schema.shards, schema.runs
    query = (
        sa.select(table.c.run_id)
        .join(owners, owners.c.run_id == table.c.run_id)
        .where(table.c.state == _ORDERED, is_active())
        .distinct()
    )
    return list(connection.execute(query).scalars())


def pause_if_stuck(connection: sa.Connection, run_id: str) -> str:
    """Pause a run that has only unjudged shards left.

    Returns:
        Why it is paused, as a sentence; empty if it is not.
    """
    run = _running(connection, run_id)
    states = _states(connection, run_id)
    if run is None or _UNJUDGED not in states or states - {_UNJUDGED, "done"}:
        return ""
    stored = "every answer is stored" if _has_answers(connection, run_id) else "no case was asked"
    message = f"{stored}, {_rows_wait(run)} a verdict: {run.state_message}"
    runs.apply_command(connection, run_id, Command.PAUSE_UNJUDGED, message=message)
    return message


def _running(connection: sa.Connection, run_id: str) -> RunRecord | None:
    """Lock a run; return it if it is running and not pausing."""
    if runs.lock_phase(connection, run_id) not in RUNNABLE_PHASES:
        return None
    return runs.load_run(connection, run_id)


def _states(connection: sa.Connection, run_id: str) -> set[str]:
    table = schema.shards
    return set(connection.execute(sa.select(table.c.state).where(table.c.run_id == run_id).distinct()).scalars())


def _has_answers(connection: sa.Connection, run_id: str) -> bool:
    """Return whether a run has an answer or a result: if the preflight check refuses the judge, no case is asked."""
    tables = (schema.answers, schema.results)
    query = sa.select(sa.or_(*(sa.exists().where(table.c.run_id == run_id) for table in tables)))
    return bool(connection.execute(query).scalar_one())


def _rows_wait(run: RunRecord) -> str:
    waiting = run.total_count - run.finished_count
    return "1 row awaits" if waiting == 1 else f"{waiting} rows await"
