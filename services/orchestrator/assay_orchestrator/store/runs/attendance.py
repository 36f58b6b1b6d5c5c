"""Queries about runs with attached hosts of their agents and metrics, across all processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from assay.model.run import PauseCause
from assay.storage.times import now
from assay.wire.run import SETTINGS
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.runs.lifecycle import Command
from assay_orchestrator.store.runs.run_conditions import is_active, is_runnable

if TYPE_CHECKING:
    from collections.abc import Collection

    from assay.model.scope import Scope


def attend(connection: sa.Connection, scope: Scope, run_id: str) -> bool:
    """Record that a client hosts the agent of a run.

    Returns:
        Whether the run is paused for lack of a host, so that it must be resumed.
    """
    run = runs.lock_run(connection, scope, run_id)
    if run is not None and run.pause_cause is PauseCause.UNATTENDED:
        return True
    if run is not None:
        note_attended(connection, [run_id])
    return False


def note_attended(connection: sa.Connection, run_ids: Collection[str]) -> None:
    """Record that clients currently host the agents of some runs."""
    table = schema.runs
    connection.execute(table.update().where(table.c.run_id.in_(run_ids), is_active()).values(attended_at=now()))


def pause_unattended(connection: sa.Connection, limit_s: float) -> list[str]:
    """Pause the runs whose agents no client has hosted for this long; return them.

    Runs that await ordered verdicts need no client, and a run that has just stored results has one.
    """
    before = now(-limit_s)
    paused = []
    for run_id in _unattended(connection, before):
        # Checked again under the lock: a client may have attached since the list was read.
        runs.lock_phase(connection, run_id)
        if run_id in _unattended(connection, before) and runs.apply_command(
            connection, run_id, Command.PAUSE_UNATTENDED, message=_message(connection, run_id, limit_s)
        ):
            paused.append(run_id)
    return paused


def _unattended(connection: sa.Connection, before: str) -> list[str]:
    table, results = schema.runs, schema.results
    awaits_verdicts = sa.exists().where(schema.shards.c.run_id == table.c.run_id, schema.shards.c.state == "ordered")
    has_moved = sa.exists().where(results.c.run_id == table.c.run_id, results.c.created_at >= before)
    query = sa.select(table.c.run_id).where(
        table.c.hosted,
        is_runnable(),
        sa.func.coalesce(table.c.attended_at, table.c.created_at) < before,
        ~awaits_verdicts,
        ~has_moved,
    )
    return list(connection.execute(query).scalars())


def _message(connection: sa.Connection, run_id: str, limit_s: float) -> str:
    record = runs.load_run(connection, run_id)
    settings = SETTINGS.from_json(record.spec) if record is not None else None
    functions = settings.functions if settings is not None else ()
    missing = ["the run's agent"] if settings is None or settings.agent.is_hosted else []
    if functions:
        missing.append(f"its metrics in Python code ({', '.join(metric.name for metric in functions)})")
    return (
        f"no client has hosted {' and '.join(missing)} for {limit_s / 60:g} min: host {'them' if functions else 'it'} "
        f"again with `assay runs resume {run_id} --spec SPEC`"
    )
