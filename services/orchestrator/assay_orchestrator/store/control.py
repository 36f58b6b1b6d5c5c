"""The control operations of a run: cancel, pause, resume, conclude, reopen.

Each is one transaction that locks the run's row, looks its transition up in the table of `lifecycle`, and stores it
with what belongs to it. A run that has succeeded without errors that can be retried stays as it is. Reopening is for
shards that are done and lack rows: they wait again. Deleting is `deletions.begin_deletion`. What a client requests
takes its scope; concluding, reopening and pausing for a quota are work in the background.
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

    from assay.model.run import SpendCap
    from assay.model.scope import Scope
    from assay_orchestrator.store.runs.runs import RunRecord
    from assay_orchestrator.store.shards.shards import ActiveShard


@dataclass(frozen=True, slots=True)
class Resumption:
    """How a run is to be resumed.

    Args:
        retry_errors: Whether rows with errors are to be retried.
        spend_cap: Another cap on what it may spend on judging; None to keep its cap.
        max_attempts: Rows with this many attempts keep their result.
        lost: Shards of it that no job belongs to any more.
    """

    retry_errors: bool = False
    spend_cap: SpendCap | None = None
    max_attempts: int = 3
    lost: Sequence[ActiveShard] = ()


def cancel(connection: sa.Connection, scope: Scope, run_id: str, *, reason: str = "") -> bool:
    """End a run; return False where there is no such run.

    Args:
        connection: In whose transaction.
        scope: What the caller reaches.
        run_id: The run.
        reason: Why, for its watchers; empty where its owner does.

    Raises:
        WrongStateError: The run has ended in another way.
    """
    run = runs.lock_run(connection, scope, run_id)
    if run is None:
        return False
    require_transition(run_id, run.phase, Command.CANCEL)
    runs.apply_command(connection, run_id, Command.CANCEL, reason=reason)
    audit.record(connection, scope.call, team=scope.team, resource=run_id)
    return True


def pause(
    connection: sa.Connection, scope: Scope, run_id: str, *, reason: str = runs.PAUSED_BY_OWNER
) -> RunState | None:
    """Pause a run: at once where no shard of it is queued or taken, else with the last of them.

    Args:
        connection: The transaction.
        scope: Whose run it is.
        run_id: The run.
        reason: PAUSED_BY_OWNER or PAUSED_TEAM_DISABLED.

    Returns:
        Its state now; None where there is no such run.

    Raises:
        WrongStateError: The run has ended.
    """
    run = runs.lock_run(connection, scope, run_id)
    if run is None:
        return None
    require_transition(run_id, run.phase, Command.PAUSE)
    state = _pause(connection, run, reason)
    audit.record(connection, scope.call, team=scope.team, resource=run_id)
    return state


def _pause(connection: sa.Connection, run: RunRecord, reason: str) -> RunState:
    run_id = run.run_id
    if run.pause_cause is not PauseCause.OWNER:
        runs.apply_command(connection, run_id, Command.PAUSE, reason=reason)
    if run.phase is Phase.PAUSED:
        return RunState.PAUSED
    shards.release_queued(connection, run_id)
    return RunState.PAUSED if shards.finish_pause(connection, run_id) else run.state


def pause_for_quota(connection: sa.Connection, run_id: str, reason: str) -> RunState | None:
    """Pause a run whose team has reached a quota, as `pause` does; return its state, None where it is not to pause."""
    if runs.apply_command(connection, run_id, Command.PAUSE_QUOTA, reason=reason) is None:
        return None
    shards.release_queued(connection, run_id)
    return RunState.PAUSED if shards.finish_pause(connection, run_id) else RunState.RUNNING


def resume(connection: sa.Connection, scope: Scope, run_id: str, wanted: Resumption) -> bool | None:
    """Bring a run into RUNNING; what it does next is the caller's to enqueue, in the same transaction.

    Returns:
        Whether it is running now; False where it has ended and has no errors to retry, None where there is no
        such run.

    Raises:
        WrongStateError: The run has ended, or is running while its errors or its cap are to change.
    """
    if runs.get_run(connection, scope, run_id) is None:  # before locks, which would show that there is such a run
        return None
    shards.lock_sharing(connection, run_id)
    run = runs.lock_run(connection, scope, run_id)
    if run is None:
        return None
    for one in wanted.lost:
        shards.release_orphan(connection, one)
    if run.state in ACTIVE_STATES:
        _require_no_change(connection, run, wanted)
        runs.apply_command(connection, run_id, Command.RESUME)
    elif not _restart(connection, run, wanted):
        return False
    unjudged.release_shards(connection, run_id)
    audit.record(connection, scope.call, team=scope.team, resource=run_id)
    return True


def conclude(
    connection: sa.Connection, run_id: str, sequence: int, summary: dict[str, Any], *, reason: str = ""
) -> bool:
    """End a run as SUCCEEDED, unless it has moved since its summary was folded.

    Args:
        connection: In whose transaction.
        sequence: Its last event when the summary was folded.
        reason: Why it has ended, for people; empty where all rows are there.

    Returns:
        Whether the run has ended now.
    """
    run = _locked(connection, run_id)
    if run is None or run.last_sequence != sequence or not shards.all_done(connection, run_id):
        return False
    return runs.apply_command(connection, run_id, Command.CONCLUDE, reason=reason, summary=summary) is not None


def reopen_incomplete(connection: sa.Connection, run_id: str) -> bool:
    """Let the shards of an active run that are done and lack rows wait again, and count its rows anew.

    What it does next is the caller's to enqueue, in the same transaction.

    Returns:
        Whether there are such shards; False also where there is no such run or it is not active.

    Raises:
        WrongStateError: Rows are missing that belong to no shard.
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


def _restart(connection: sa.Connection, run: RunRecord, wanted: Resumption) -> bool:
    """Bring a run that is paused or has ended into RUNNING; return False where there is no reason to."""
    command = Command.RETRY if wanted.retry_errors else Command.CHANGE_CAP if wanted.spend_cap else Command.RESUME
    require_transition(run.run_id, run.phase, command)
    has_errors = wanted.retry_errors and attempts.has_errors(connection, run.run_id, wanted.max_attempts)
    if run.state is RunState.SUCCEEDED and not has_errors:
        return False
    if has_errors:
        attempts.request_retry(connection, run.run_id)
    if wanted.spend_cap is not None:
        unjudged.change_spend_cap(connection, run.run_id, wanted.spend_cap.usd)
    fairness.reset_tags(connection, run.run_id)
    runs.apply_command(connection, run.run_id, command)
    return True


def _require_no_change(connection: sa.Connection, run: RunRecord, wanted: Resumption) -> None:
    """Raise where an active run is to change; a repeated request changes nothing."""
    if wanted.retry_errors and not attempts.is_retry_requested(connection, run.run_id):
        raise refusal(run.run_id, run.phase, Command.RETRY)
    if wanted.spend_cap is not None and wanted.spend_cap.usd != run.spec["judge"].get("spend_cap_usd"):
        raise refusal(run.run_id, run.phase, Command.CHANGE_CAP)


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
