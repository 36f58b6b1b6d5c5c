"""The control operations of a run: what each does in which state.

Each is one transaction that locks the run's row, checks its state and changes it. Of two operations at two processes
the second therefore sees what the first left, as if they came one after the other.

| operation      | running         | pausing   | paused    | succeeded | failed    | cancelled |
|----------------|-----------------|-----------|-----------|-----------|-----------|-----------|
| pause          | pausing, paused | no change | paused    | refused   | refused   | refused   |
| resume         | no change       | running   | running   | refused   | refused   | refused   |
| retry errors   | refused         | refused   | running   | running   | running   | refused   |
| change the cap | refused         | refused   | running   | refused   | refused   | refused   |
| cancel         | cancelled       | cancelled | cancelled | refused   | refused   | no change |
| conclude       | succeeded       | succeeded | no change | no change | no change | no change |
| reopen         | running         | pausing   | no change | no change | no change | no change |
| delete         | refused         | refused   | deleted   | deleted   | deleted   | deleted   |

A run that is pending is as one that is running. One that has succeeded without errors that can be retried stays as
it is. One whose rows cannot be stored is pausing, whatever it is shown as. Reopening is for shards that are done and
lack rows: they wait again. What a defect does to a run is `runs.stop`, what a database that cannot store does is
`runs.pause_for_storage`, deleting is `deletions.begin`: all check the state in their transaction too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import WrongStateError
from assay.model.run import PauseCause, RunState
from assay_orchestrator.store import attempts, fairness, results, runs, shards, unjudged
from assay_orchestrator.store.lifecycle import ACTIVE_STATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sqlalchemy as sa

    from assay.model.run import SpendCap
    from assay_orchestrator.store.runs import RunRecord
    from assay_orchestrator.store.shards import ActiveShard

__all__ = ["Resumption", "cancel", "conclude", "pause", "reopen_incomplete", "resume"]


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


def cancel(connection: sa.Connection, run_id: str) -> bool:
    """End a run for good; return False where there is no such run.

    Raises:
        WrongStateError: The run has ended in another way.
    """
    run = _locked(connection, run_id)
    if run is None:
        return False
    if run.state is not RunState.CANCELLED:
        _require_unfinished(run)
        runs.change_state(connection, run_id, RunState.CANCELLED)
    return True


def pause(connection: sa.Connection, run_id: str) -> RunState | None:
    """Pause a run: at once where no shard of it is queued or taken, else with the last of them.

    Returns:
        Its state now; None where there is no such run.

    Raises:
        WrongStateError: The run has ended.
    """
    run = _locked(connection, run_id)
    if run is None:
        return None
    _require_unfinished(run)
    if run.state is RunState.PAUSED:
        if run.pause_cause is not PauseCause.OWNER:
            runs.change_state(connection, run_id, RunState.PAUSED, reason=runs.PAUSED_BY_OWNER, cause=PauseCause.OWNER)
        return RunState.PAUSED
    runs.request_pause(connection, run_id)
    shards.release_queued(connection, run_id)
    return RunState.PAUSED if shards.finish_pause(connection, run_id) else run.state


def resume(connection: sa.Connection, run_id: str, wanted: Resumption) -> bool | None:
    """Bring a run into RUNNING; what it does next is the caller's to enqueue, in the same transaction.

    Returns:
        Whether it is running now; False where it has ended and has no errors to retry, None where there is no
        such run.

    Raises:
        WrongStateError: The run has ended, or is running while its errors or its cap are to change.
    """
    shards.lock_sharing(connection, run_id)
    run = _locked(connection, run_id)
    if run is None:
        return None
    for one in wanted.lost:
        shards.release_orphan(connection, one)
    if run.state in ACTIVE_STATES:
        _require_no_change(connection, run, wanted)
        if run.pause_cause is not None:
            runs.change_state(connection, run_id, RunState.RUNNING)
    elif not _restart(connection, run, wanted):
        return False
    unjudged.release_shards(connection, run_id)
    return True


def conclude(connection: sa.Connection, run_id: str, sequence: int, summary: dict[str, Any]) -> bool:
    """End a run as SUCCEEDED, unless it has moved since its summary was folded.

    Args:
        connection: In whose transaction.
        run_id: The run.
        sequence: Its last event when the summary was folded.
        summary: The summary.

    Returns:
        Whether the run has ended now.
    """
    run = _locked(connection, run_id)
    if run is None or run.last_sequence != sequence or not shards.all_done(connection, run_id):
        return False
    return runs.stop(connection, run_id, RunState.SUCCEEDED, summary=summary)


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
    if run is None or run.state not in ACTIVE_STATES:
        return False
    if shards.reopen_incomplete(connection, run_id):
        results.store_recount(connection, run_id)
        return True
    if shards.all_done(connection, run_id):
        _require_complete(connection, run)
    return False


def _restart(connection: sa.Connection, run: RunRecord, wanted: Resumption) -> bool:
    """Bring a run that is paused or has ended into RUNNING; return False where there is no reason to."""
    if run.state is RunState.CANCELLED and wanted.retry_errors:
        raise WrongStateError(f"run {run.run_id} was cancelled for good: start a new one", reason="RUN_FINISHED")
    if not wanted.retry_errors:
        _require_unfinished(run)
    has_errors = wanted.retry_errors and attempts.has_errors(connection, run.run_id, wanted.max_attempts)
    if run.state is RunState.SUCCEEDED and not has_errors:
        return False
    if not shards.have_shards(connection, run.run_id):
        repeats = int(run.spec["repeats"])
        shards.create_shards(connection, run.run_id, run.total_count // repeats, repeats)
    if has_errors:
        attempts.request_retry(connection, run.run_id)
    if wanted.spend_cap is not None:
        unjudged.change_spend_cap(connection, run.run_id, wanted.spend_cap.usd)
    fairness.reset_tags(connection, run.run_id)
    runs.change_state(connection, run.run_id, RunState.RUNNING)
    return True


def _require_no_change(connection: sa.Connection, run: RunRecord, wanted: Resumption) -> None:
    """Raise where a run that is running is to change; a repeated request changes nothing."""
    if wanted.retry_errors and not attempts.is_retry_requested(connection, run.run_id):
        raise WrongStateError(
            f"run {run.run_id} is running: pause it, or wait for its end, before its errors are retried",
            reason="RUN_ACTIVE",
        )
    if wanted.spend_cap is not None and wanted.spend_cap.usd != run.spec["judge"].get("spend_cap_usd"):
        raise WrongStateError(
            f"run {run.run_id} is running: pause it before its spend cap is changed", reason="RUN_ACTIVE"
        )


def _require_unfinished(run: RunRecord) -> None:
    if run.finished:
        raise WrongStateError(f"run {run.run_id} has already {run.state.value}", reason="RUN_FINISHED")


def _require_complete(connection: sa.Connection, run: RunRecord) -> None:
    stored = results.count_finished(connection, run.run_id)
    if stored != run.total_count:
        raise WrongStateError(
            f"{stored} of {run.total_count} rows are stored and no shard lacks any: the database is damaged; "
            "start a new run",
            reason="ROWS_MISSING",
        )


def _locked(connection: sa.Connection, run_id: str) -> RunRecord | None:
    shards.lock_run(connection, run_id)
    return runs.get_run(connection, run_id)
