"""The control operations of a run: cancel, pause, resume, conclude, reopen.

Each is one transaction that locks the run's row, looks its transition up in the table of `lifecycle`, and stores it
with everything that belongs to it. A run that has completed without retryable errors stays as it is. Reopening applies
to shards that are done but lack rows: they wait again. Deleting is `deletions.begin_deletion`. Client requests carry a
scope; concluding, reopening and pausing for a quota are background work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import WrongStateError
from assay.model.run import PauseCause, RunState
from assay_orchestrator.store.rows import attempts, results
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.runs.lifecycle import (
    ACTIVE_STATES,
    TRANSITIONS,
    Command,
    Phase,
    refusal,
    require_transition,
)
from assay_orchestrator.store.shards import fairness, shards, unjudged
from assay_orchestrator.store.teams import audit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sqlalchemy as sa

    from assay.model.scope import Scope
    from assay_orchestrator.store.runs.runs import RunRecord
    from assay_orchestrator.store.shards.shards import ActiveShard


@dataclass(frozen=True, slots=True)
class Resumption:
    """How to resume a run.

    Args:
        retry_errors: Whether to retry rows with errors.
        max_attempts: Rows with this many attempts keep their result.
        lost: Shards of the run that no longer have a job.
    """

    retry_errors: bool = False
    max_attempts: int = 3
    lost: Sequence[ActiveShard] = ()


def cancel(connection: sa.Connection, scope: Scope, run_id: str, *, message: str = "") -> bool:
    """End a run; return False if there is no such run.

    Args:
        connection: The transaction.
        scope: The scope of the caller.
        run_id: The run.
        message: Why, as its watchers see it; empty if its owner cancels it.

    Raises:
        WrongStateError: The run has ended in another state.
    """
    run = runs.lock_run(connection, scope, run_id)
    if run is None:
        return False
    require_transition(run_id, run.phase, Command.CANCEL)
    runs.apply_command(connection, run_id, Command.CANCEL, message=message)
    audit.record(connection, scope.call, team=scope.team, resource=run_id)
    return True


def pause(
    connection: sa.Connection, scope: Scope, run_id: str, *, message: str = runs.PAUSED_BY_OWNER
) -> RunState | None:
    """Pause a run: at once if it has no queued or taken shard, otherwise with the last of them.

    Args:
        connection: The transaction.
        scope: The scope of the run.
        run_id: The run.
        message: PAUSED_BY_OWNER or PAUSED_TEAM_DISABLED.

    Returns:
        The run's new state; None if there is no such run.

    Raises:
        WrongStateError: The run has ended.
    """
    run = runs.lock_run(connection, scope, run_id)
    if run is None:
        return None
    require_transition(run_id, run.phase, Command.PAUSE)
    state = _pause(connection, run, message)
    audit.record(connection, scope.call, team=scope.team, resource=run_id)
    return state


def _pause(connection: sa.Connection, run: RunRecord, message: str) -> RunState:
    run_id = run.run_id
    if run.pause_cause is not PauseCause.OWNER:
        runs.apply_command(connection, run_id, Command.PAUSE, message=message)
    if run.phase is Phase.PAUSED:
        return RunState.PAUSED
    # Workers keep the shards that they have taken: their questions in flight are paid for.
    shards.release_queued(connection, run_id)
    return RunState.PAUSED if shards.finish_pause(connection, run_id) else RunState.PAUSING


def pause_for_quota(connection: sa.Connection, run_id: str, message: str) -> RunState | None:
    """Pause a run whose team has reached a quota, as `pause`; return its state, or None if it must not pause."""
    if runs.apply_command(connection, run_id, Command.PAUSE_QUOTA, message=message) is None:
        return None
    shards.release_queued(connection, run_id)
    return RunState.PAUSED if shards.finish_pause(connection, run_id) else RunState.PAUSING


def resume(connection: sa.Connection, scope: Scope, run_id: str, resumption: Resumption) -> bool | None:
    """Bring a run into RUNNING; the caller enqueues its next jobs in the same transaction.

    Returns:
        Whether it is running; False if it has ended and has no errors to retry, None if there is no such run.

    Raises:
        WrongStateError: The run has ended, or it is running and the call retries errors.
    """
    # Checked before the locks, which would reveal that the run exists.
    if runs.get_run(connection, scope, run_id) is None:
        return None
    shards.lock_sharing(connection, run_id)
    run = runs.lock_run(connection, scope, run_id)
    if run is None:
        return None
    for shard in resumption.lost:
        shards.release_orphan(connection, shard)
    if run.state in ACTIVE_STATES:
        if resumption.retry_errors and not attempts.is_retry_requested(connection, run_id):  # a repeated request
            raise refusal(run_id, run.phase, Command.RETRY)
        runs.apply_command(connection, run_id, Command.RESUME)
    elif not _restart(connection, run, resumption):
        return False
    unjudged.release_shards(connection, run_id)
    audit.record(connection, scope.call, team=scope.team, resource=run_id)
    return True


def conclude(
    connection: sa.Connection, run_id: str, sequence: int, summary: dict[str, Any], *, message: str = ""
) -> bool:
    """End a run as COMPLETED, unless it has moved since its summary was folded.

    Args:
        connection: The transaction.
        run_id: The run.
        sequence: Its last event when the summary was folded.
        summary: Its summary.
        message: Why it has ended, as a sentence; empty if all rows are stored.

    Returns:
        Whether the run has ended now.
    """
    run = _locked(connection, run_id)
    if run is None or run.last_sequence != sequence or not shards.all_done(connection, run_id):
        return False
    return runs.apply_command(connection, run_id, Command.CONCLUDE, message=message, summary=summary) is not None


def reopen_incomplete(connection: sa.Connection, run_id: str) -> bool:
    """Return the done shards of an active run that lack rows to waiting, and recount the run's rows.

    The caller enqueues its next jobs in the same transaction.

    Returns:
        Whether there are such shards; False also if there is no such run or it is not active.

    Raises:
        WrongStateError: The missing rows belong to no shard.
    """
    shards.lock_sharing(connection, run_id)
    run = _locked(connection, run_id)
    if run is None or (run.phase, Command.REOPEN) not in TRANSITIONS:
        return False
    if shards.reopen_incomplete(connection, run_id):
        results.remove_orphaned_values(connection, run_id)
        results.store_recount(connection, run_id)
        return True
    if shards.all_done(connection, run_id):
        _require_complete(connection, run)
    return False


def _restart(connection: sa.Connection, run: RunRecord, resumption: Resumption) -> bool:
    """Bring a run that is paused or has ended into RUNNING; return False if there is no reason to."""
    command = Command.RETRY if resumption.retry_errors else Command.RESUME
    require_transition(run.run_id, run.phase, command)
    has_errors = resumption.retry_errors and attempts.has_errors(connection, run.run_id, resumption.max_attempts)
    if run.state is RunState.COMPLETED and not has_errors:
        return False
    if has_errors:
        attempts.request_retry(connection, run.run_id)
    fairness.reset_tags(connection, run.run_id)
    runs.apply_command(connection, run.run_id, command)
    return True


def _require_complete(connection: sa.Connection, run: RunRecord) -> None:
    stored = results.count_finished(connection, run.run_id)
    if stored != run.total_count:
        raise WrongStateError(
            f"{stored} of {run.total_count} rows are stored and no shard lacks any: the database is damaged; "
            "start a new run",
            reason="ROWS_MISSING",
        )


def _locked(connection: sa.Connection, run_id: str) -> RunRecord | None:
    runs.lock_phase(connection, run_id)
    return runs.load_run(connection, run_id)
