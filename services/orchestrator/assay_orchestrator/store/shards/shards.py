"""Queries about shards: the parts of a run that workers take.

A shard waits, is queued (a job asks a worker to take it), is taken by a worker, or is done. Its results alone show what
is done; a job is only a hint.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.errors import AssayError
from assay.identity.quotas import Quota
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.runs.lifecycle import PHASES_AT_REST, RUNNABLE_PHASES, Phase
from assay_orchestrator.store.runs.run_conditions import is_active
from assay_orchestrator.store.shards import fair_clock
from assay_orchestrator.store.teams import quotas

if TYPE_CHECKING:
    from collections.abc import Mapping

SUMMARY = -1
"""The index of the job that ends a run: every shard is done, and the summary must be folded."""

SHARD_ROWS = 1000
GROUP_SHARD_ROWS = 50
"""Maximum rows of a shard in a run that advances with others: such runs may differ by some shards."""
STOPPING_SHARD_ROWS = 10
"""Maximum rows of a shard in a run that may stop early, unless more are in flight: rows ahead are not saved."""
IN_WORK = ("queued", "taken")
"""States of shards that have a job, or should have one: queued or taken."""


class FencedError(AssayError):
    """Another worker has the shard: this process must not store any more of its rows."""

    reason = "FENCED"


class RunStoppedError(AssayError):
    """The run was cancelled or deleted, or has ended: its results are dropped."""

    reason = "RUN_STOPPED"


@dataclass(frozen=True, slots=True)
class ShardJob:
    """A hint that a shard needs work.

    Args:
        run_id: The run.
        shard_index: The shard's index, or SUMMARY.
        priority: The highest is served first.
        hosted: Whether only a process with an attached client of the run can do it.
        ticket: How many times the shard had been queued when the job was created; an older ticket is stale.
    """

    run_id: str
    shard_index: int
    priority: int
    hosted: bool = False
    ticket: int = 0


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard that a worker has started.

    Args:
        run_id: The run.
        shard_index: Its index.
        first_case: Position of its first case in the dataset.
        case_count: The number of its cases.
        epoch: The worker's right to store its rows; it ends when the shard is started again.
        slots: How many of its questions may be in flight at once.
        journaled: Whether an earlier worker of it was lost: attempts at its rows are then journaled, to identify a row
            that kills its worker.
        retry_errors: Whether its rows with errors must be archived first.
    """

    run_id: str
    shard_index: int
    first_case: int
    case_count: int
    epoch: int
    slots: int
    journaled: bool = False
    retry_errors: bool = False


@dataclass(frozen=True, slots=True)
class ActiveShard:
    """A queued or taken shard, with its epoch when it was read."""

    job: ShardJob
    epoch: int


def create_shards(
    connection: sa.Connection, run_id: str, case_count: int, repeats: int, *, rows: int = SHARD_ROWS
) -> None:
    """Divide a run into waiting shards of equal size and at most `rows` rows.

    Starting and ending a shard takes several statements, so smaller shards would cost noticeably more.
    """
    most = max(1, rows // repeats)
    size = -(-case_count // max(1, -(-case_count // most)))
    connection.execute(
        schema.shards.insert(),
        [
            {
                "run_id": run_id,
                "shard_index": index,
                "first_case": first,
                "case_count": min(size, case_count - first),
                "row_count": min(size, case_count - first) * repeats,
            }
            for index, first in enumerate(range(0, case_count, size))
        ],
    )


def start_shard(connection: sa.Connection, run_id: str, shard_index: int, ticket: int) -> Shard | None:
    """Take a queued shard under a new epoch: a worker with an earlier epoch can no longer store its rows.

    Args:
        connection: The transaction.
        run_id: The run.
        shard_index: The shard's index.
        ticket: The job's ticket. A repeated job takes the shard again; a stale job must not take it from its worker.

    Returns:
        The shard, or None if there is nothing to do: it is done, or its run is not running.
    """
    phase = runs.lock_phase(connection, run_id)
    if phase is None:
        return None
    if phase not in RUNNABLE_PHASES:
        release_shard(connection, run_id, shard_index)
        return None
    table = schema.shards
    shard = connection.execute(
        table.update()
        .where(
            table.c.run_id == run_id,
            table.c.shard_index == shard_index,
            table.c.ticket == ticket,
            table.c.state.in_(IN_WORK),
        )
        .values(epoch=table.c.epoch + 1, state="taken", careful=_was_lost(table))
        .returning(table)
    ).one_or_none()
    if shard is None:
        return None
    fair_clock.advance(connection, shard.tag)
    return Shard(
        run_id, shard_index, shard.first_case, shard.case_count, shard.epoch, shard.slots, shard.careful,
        shard.retry_errors,
    )  # fmt: skip


def change_shard(connection: sa.Connection, run_id: str, shard_index: int, **values: object) -> None:
    """Change columns of a shard."""
    table = schema.shards
    connection.execute(
        table.update().where(table.c.run_id == run_id, table.c.shard_index == shard_index).values(**values)
    )


def is_in_shard(rows: sa.Table) -> sa.ColumnElement[bool]:
    """Return the condition that an entry of a table of rows belongs to a shard of its run."""
    table = schema.shards.c
    end = table.first_case + table.case_count
    return sa.and_(rows.c.run_id == table.run_id, rows.c.case_index >= table.first_case, rows.c.case_index < end)


def require_epochs(
    connection: sa.Connection, run_id: str, epochs: Mapping[int, int], *, keep: bool = True
) -> dict[int, int]:
    """Raise unless these shards still have these epochs.

    Args:
        connection: The transaction.
        run_id: The run.
        epochs: By shard.
        keep: Whether to lock the shards until the commit, so that their rows can be stored.

    Returns:
        The slots of each shard: how many of its questions may be in flight.

    Raises:
        FencedError: Another worker has restarted a shard.
        RunStoppedError: The run was deleted.
    """
    current = connection.execute(_epochs_query(locks=keep), {"of_run": run_id, "indexes": list(epochs)}).all()
    stored = {row.shard_index: row.epoch for row in current}
    if epochs and not stored:
        raise RunStoppedError(f"run {run_id} was deleted")
    if stored != dict(epochs):
        raise FencedError(f"another worker has the shards that this one had: run={run_id}")
    return {row.shard_index: row.slots for row in current}


@cache  # every batch of rows runs it, and building it takes several times as long
def _epochs_query(*, locks: bool) -> sa.Select[Any]:
    shards = schema.shards.c
    query = sa.select(shards.shard_index, shards.epoch, shards.slots).where(
        shards.run_id == sa.bindparam("of_run"), shards.shard_index.in_(sa.bindparam("indexes", expanding=True))
    )
    # A shared lock: batches of one shard need not wait for each other, only a new epoch waits for all of them.
    return query.with_for_update(read=True) if locks else query


def require_active(connection: sa.Connection, run_id: str, *, keep: bool = True) -> None:
    """Raise unless a run is active.

    Args:
        connection: The transaction.
        run_id: The run.
        keep: Whether to lock the run until the commit.

    Raises:
        RunStoppedError: The run is not active.
    """
    phase = runs.lock_phase(connection, run_id) if keep else runs.read_phase(connection, run_id)
    if phase is None or phase in PHASES_AT_REST:
        raise RunStoppedError(f"run {run_id} has {phase.value if phase is not None else 'been deleted'}")


def linked_runs(connection: sa.Connection, run_id: str) -> set[str]:
    """Return a run and the active runs whose next shards depend on it.

    They share a limited agent with it, belong to its group, or share a team with limited questions, directly or through
    another linked run. Every one of them yields the same set, so all lock the runs in the same order.
    """
    table = schema.runs
    visited, linked = set[str](), {run_id}
    is_limited = quotas.is_limited(connection, Quota.CONCURRENT_QUESTIONS)
    while linked != visited:
        visited = linked
        linking = sa.or_(table.c.agent_key != "", table.c.group_id != "", is_limited)
        rows = connection.execute(
            sa.select(table.c.agent_key, table.c.team, table.c.group_id).where(table.c.run_id.in_(visited), linking)
        ).all()
        if not rows:
            break
        keys = {row.agent_key for row in rows if row.agent_key}
        groups = [(row.team, row.group_id) for row in rows if row.group_id]
        teams = {row.team for row in rows}
        is_linked = sa.or_(
            table.c.agent_key.in_(keys),
            sa.tuple_(table.c.team, table.c.group_id).in_(groups),
            is_limited & table.c.team.in_(teams),
        )
        linked = visited | set(connection.execute(sa.select(table.c.run_id).where(is_linked, is_active())).scalars())
    return linked


def lock_sharing(connection: sa.Connection, run_id: str) -> None:
    """Lock a run and the active runs linked with it, in the order of their ids."""
    if connection.dialect.name == "sqlite":
        return
    table = schema.runs
    linked = linked_runs(connection, run_id)
    connection.execute(
        sa.select(table.c.run_id).where(table.c.run_id.in_(linked)).order_by(table.c.run_id).with_for_update()
    )


def release_shard(connection: sa.Connection, run_id: str, shard_index: int, epoch: int | None = None) -> None:
    """Return a queued or taken shard to waiting; with an epoch, only if the shard still has it."""
    table = schema.shards
    where: list[sa.ColumnElement[bool]] = [
        table.c.run_id == run_id,
        table.c.shard_index == shard_index,
        table.c.state.in_(IN_WORK),
    ]
    if epoch is not None:
        where.append(table.c.epoch == epoch)
    connection.execute(table.update().where(*where).values(state="waiting", slots=0))


def release_all(connection: sa.Connection) -> None:
    """Return every queued or taken shard to waiting: the process that had them has ended."""
    table = schema.shards
    connection.execute(
        table.update().where(table.c.state.in_(IN_WORK)).values(state="waiting", slots=0, careful=_was_lost(table))
    )


def release_queued(connection: sa.Connection, run_id: str) -> None:
    """Return the queued shards of a run to waiting; taken shards stay with their workers."""
    table = schema.shards
    connection.execute(
        table.update().where(table.c.run_id == run_id, table.c.state == "queued").values(state="waiting", slots=0)
    )


def finish_pause(connection: sa.Connection, run_id: str) -> str:
    """Pause a run that is pausing, once it has no queued or taken shard; return the reason, empty if not paused."""
    if runs.lock_phase(connection, run_id) is not Phase.PAUSING:
        return ""
    table = schema.shards
    has_work = sa.exists().where(table.c.run_id == run_id, table.c.state.in_(IN_WORK))
    # A run whose shards are all done is summarised instead: there is nothing left to resume.
    if connection.execute(sa.select(has_work)).scalar_one() or all_done(connection, run_id):
        return ""
    return runs.drain(connection, run_id)


def complete_shard(connection: sa.Connection, shard: Shard) -> bool:
    """Mark a shard done if every row of it has a result; return whether that is so.

    A shard whose failed rows were marked for retry since its start is not done.

    Raises:
        FencedError: Another worker has restarted it.
    """
    lock_sharing(connection, shard.run_id)
    require_epochs(connection, shard.run_id, {shard.shard_index: shard.epoch})
    table = schema.shards
    done = connection.execute(
        table.update()
        .where(
            table.c.run_id == shard.run_id,
            table.c.shard_index == shard.shard_index,
            table.c.row_count == _stored_count(table),
            ~table.c.retry_errors,
        )
        .values(state="done", slots=0)
    )
    return done.rowcount == 1


def reopen_incomplete(connection: sa.Connection, run_id: str) -> int:
    """Return a run's done shards that lack rows to waiting; return their number."""
    table = schema.shards
    reopened = connection.execute(
        table.update()
        .where(table.c.run_id == run_id, table.c.state == "done", table.c.row_count > _stored_count(table))
        .values(state="waiting")
    )
    return reopened.rowcount


def _stored_count(table: sa.Table) -> sa.ScalarSelect[int]:
    """Return how many rows of a shard have a result."""
    results = schema.results
    return (
        sa.select(sa.func.count()).select_from(results).where(is_in_shard(results)).correlate(table).scalar_subquery()
    )


def all_done(connection: sa.Connection, run_id: str) -> bool:
    """Return whether every shard of a run is done."""
    table = schema.shards
    unfinished = sa.exists().where(table.c.run_id == run_id, table.c.state != "done")
    return not connection.execute(sa.select(unfinished)).scalar_one()


def is_hosted(connection: sa.Connection, run_id: str) -> bool:
    """Return whether a client hosts the agent of a run."""
    table = schema.runs
    return bool(connection.execute(sa.select(table.c.hosted).where(table.c.run_id == run_id)).scalar_one_or_none())


def list_active(connection: sa.Connection, run_id: str | None = None) -> list[ActiveShard]:
    """Return the queued and taken shards of one run, or of all active runs."""
    table, owners = schema.shards, schema.runs
    query = (
        sa.select(table.c.run_id, table.c.shard_index, table.c.tag, table.c.epoch, table.c.ticket, owners.c.hosted)
        .join(owners, owners.c.run_id == table.c.run_id)
        .where(table.c.state.in_(IN_WORK))
    )
    # A run that is not active may have such a shard too: the store failed before recording its start.
    query = query.where(is_active() if run_id is None else table.c.run_id == run_id)
    return [
        ActiveShard(
            ShardJob(row.run_id, row.shard_index, fair_clock.priority_of(row.tag), row.hosted, row.ticket), row.epoch
        )
        for row in connection.execute(query).all()
    ]


def release_orphan(connection: sa.Connection, orphan: ActiveShard) -> None:
    """Return an orphaned shard to waiting, unless a worker has taken it since it was read."""
    table = schema.shards
    connection.execute(
        table.update()
        .where(
            table.c.run_id == orphan.job.run_id,
            table.c.shard_index == orphan.job.shard_index,
            table.c.state.in_(IN_WORK),
            table.c.epoch == orphan.epoch,
            table.c.ticket == orphan.job.ticket,
        )
        .values(state="waiting", slots=0, careful=_was_lost(table))
    )


def _was_lost(table: sa.Table) -> sa.ColumnElement[bool]:
    """Return whether a shard's worker was lost: the shard was taken and not released."""
    return sa.or_(table.c.careful, table.c.state == "taken")
