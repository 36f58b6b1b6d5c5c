"""Queries about shards: the parts of a run that workers take.

A shard waits, is queued (a job says that a worker should take it), is taken by one, or is done. What is done is known
by its results alone; a job is only a hint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.errors import AssayError
from assay.model.run import PauseCause, RunState
from assay_orchestrator.store import fair_clock, runs, schema
from assay_orchestrator.store.lifecycle import ACTIVE_STATES

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HELD", "SUMMARY", "FencedError", "Held", "RunStoppedError", "Shard", "ShardJob"]

SUMMARY = -1
"""The index of the job that ends a run: every shard is done, the summary is to be folded."""

_SHARD_ROWS = 1000
_GOING = tuple(state.value for state in ACTIVE_STATES)
HELD = ("queued", "taken")
"""States of shards that have a job, or should."""


class FencedError(AssayError):
    """Another worker has the shard: nothing more of it may be stored here."""

    reason = "FENCED"


class RunStoppedError(AssayError):
    """The run was cancelled or deleted, or has ended: nothing more of it is wanted."""

    reason = "RUN_STOPPED"


@dataclass(frozen=True, slots=True)
class ShardJob:
    """A hint that a shard needs work.

    Args:
        run_id: The run.
        shard_index: Which part of it, or SUMMARY.
        priority: The highest is served first.
        hosted: Whether only a process to which the run's clients are attached can do it.
        ticket: For which of the times that the shard was queued it was made; a job from an earlier one is no good.
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
        shard_index: Which part of it.
        first_case: Position of its first case in the dataset.
        case_count: Its cases.
        epoch: The worker's right to store its rows: it ends when the shard is started again.
        slots: How many questions of it may be in flight at once.
        journaled: Whether a worker that had it was lost: attempts at its rows are then journaled, so that a row which
            kills its worker is known after some kills.
        retry_errors: Whether its rows with errors are to be archived first.
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
class Held:
    """A shard that is queued or taken, as it stood at a moment."""

    job: ShardJob
    epoch: int


def create(connection: sa.Connection, run_id: str, case_count: int, repeats: int, *, rows: int = _SHARD_ROWS) -> None:
    """Divide a run into shards of equal size and at most so many rows, all of them waiting.

    Starting and ending a shard takes some statements: with fewer rows they would be felt.
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


def start(connection: sa.Connection, run_id: str, shard_index: int, ticket: int) -> Shard | None:
    """Take a queued shard: whoever had it before has lost the right to store its rows.

    Args:
        connection: In whose transaction.
        run_id: The run.
        shard_index: Which part of it.
        ticket: That of the job. One that comes again has the shard again; one that is out of date must not take it
            from whoever has it by now.

    Returns:
        The shard, or None where there is nothing to do: it is done, or its run does not go on.
    """
    run = lock_run(connection, run_id)
    if run is None:
        return None
    if run.state not in _GOING or run.pause_cause:
        give_back(connection, run_id, shard_index)
        return None
    table = schema.shards
    shard = connection.execute(
        table.update()
        .where(
            table.c.run_id == run_id,
            table.c.shard_index == shard_index,
            table.c.ticket == ticket,
            table.c.state.in_(HELD),
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


def check(connection: sa.Connection, run_id: str, epochs: Mapping[int, int], *, keep: bool = True) -> dict[int, int]:
    """Raise unless whoever holds these epochs may still work on these shards.

    Args:
        connection: In whose transaction.
        run_id: The run.
        epochs: By shard.
        keep: Whether nobody may take them until the commit, so that rows of them can be stored.

    Returns:
        How many questions of each may be in flight by now.

    Raises:
        FencedError: A shard was started again by somebody else.
        RunStoppedError: The run was deleted.
    """
    table = schema.shards
    query = sa.select(table.c.shard_index, table.c.epoch, table.c.slots).where(
        table.c.run_id == run_id, table.c.shard_index.in_(list(epochs))
    )
    found = connection.execute(query.with_for_update(read=True) if keep else query).all()
    stored = {row.shard_index: row.epoch for row in found}
    if epochs and not stored:
        raise RunStoppedError(f"run {run_id} was deleted")
    if stored != dict(epochs):
        raise FencedError(f"another worker has the shards that this one had: run={run_id}")
    return {row.shard_index: row.slots for row in found}


def lock_run(connection: sa.Connection, run_id: str) -> Any:
    """Keep everyone else from changing a run until the commit; return its state and what it is paused for.

    Always taken before locks of the run's shards: two that went the other way round would wait for each other.
    """
    table = schema.runs
    query = sa.select(table.c.state, table.c.pause_cause).where(table.c.run_id == run_id)
    return connection.execute(query.with_for_update()).one_or_none()  # SQLite writes one transaction at a time


def require_going(connection: sa.Connection, run_id: str) -> None:
    """Keep everyone else from changing a run until the commit, if results of it are still wanted.

    Raises:
        RunStoppedError: They are not.
    """
    run = lock_run(connection, run_id)
    if run is None or run.state not in _GOING:
        raise RunStoppedError(f"run {run_id} has {run.state if run is not None else 'been deleted'}")


def lock_sharing(connection: sa.Connection, run_id: str) -> None:
    """Lock a run and those that share a limited agent with it, in an order that is the same for all."""
    if connection.dialect.name == "sqlite":
        return
    table = schema.runs
    key = sa.select(table.c.agent_key).where(table.c.run_id == run_id, table.c.agent_key != "").scalar_subquery()
    connection.execute(
        sa.select(table.c.run_id)
        .where(sa.or_(table.c.run_id == run_id, sa.and_(table.c.agent_key == key, table.c.state.in_(_GOING))))
        .order_by(table.c.run_id)
        .with_for_update()
    )


def give_back(connection: sa.Connection, run_id: str, shard_index: int, epoch: int | None = None) -> None:
    """Let a queued shard wait again; with an epoch, only if it is still the shard's."""
    table = schema.shards
    where: list[sa.ColumnElement[bool]] = [
        table.c.run_id == run_id,
        table.c.shard_index == shard_index,
        table.c.state.in_(HELD),
    ]
    if epoch is not None:
        where.append(table.c.epoch == epoch)
    connection.execute(table.update().where(*where).values(state="waiting", slots=0))


def give_back_all(connection: sa.Connection) -> None:
    """Let every shard that is not done wait again: whoever had them is gone."""
    table = schema.shards
    connection.execute(
        table.update().where(table.c.state.in_(HELD)).values(state="waiting", slots=0, careful=_was_lost(table))
    )


def take_back(connection: sa.Connection, run_id: str) -> None:
    """Let the queued shards of a run wait again; those that a worker has taken stay taken."""
    table = schema.shards
    connection.execute(
        table.update().where(table.c.run_id == run_id, table.c.state == "queued").values(state="waiting", slots=0)
    )


def pause_if_wanted(connection: sa.Connection, run_id: str) -> bool:
    """Pause a run whose owner wants it paused, once nobody has a shard of it; return whether that was now."""
    lock_run(connection, run_id)
    run = runs.get(connection, run_id)
    if run is None or run.state not in ACTIVE_STATES or run.pause_cause is not PauseCause.OWNER:
        return False
    table = schema.shards
    held = sa.exists().where(table.c.run_id == run_id, table.c.state.in_(HELD))
    if connection.execute(sa.select(held)).scalar_one() or all_done(connection, run_id):
        return False
    runs.change_state(connection, run_id, RunState.PAUSED, reason=runs.PAUSED_BY_OWNER, cause=PauseCause.OWNER)
    return True


def complete(connection: sa.Connection, shard: Shard) -> bool:
    """Mark a shard done if every row of it has a result; return whether that is so.

    One whose errors are to be tried again since it was started is not.

    Raises:
        FencedError: It was started again by somebody else.
    """
    lock_sharing(connection, shard.run_id)
    check(connection, shard.run_id, {shard.shard_index: shard.epoch})
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
    """Let the shards of a run that are done and lack rows wait again; return how many those are."""
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
        sa.select(sa.func.count())
        .select_from(results)
        .where(
            results.c.run_id == table.c.run_id,
            results.c.case_index >= table.c.first_case,
            results.c.case_index < table.c.first_case + table.c.case_count,
        )
        .correlate(table)
        .scalar_subquery()
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


def have_shards(connection: sa.Connection, run_id: str) -> bool:
    """Return whether a run was divided already: those of earlier versions were not."""
    table = schema.shards
    return bool(connection.execute(sa.select(sa.exists().where(table.c.run_id == run_id))).scalar_one())


def list_held(connection: sa.Connection, run_id: str | None = None) -> list[Held]:
    """Return the shards, of one run or of all that go on, for which there should be a job once it goes on."""
    table, owners = schema.shards, schema.runs
    query = (
        sa.select(table.c.run_id, table.c.shard_index, table.c.tag, table.c.epoch, table.c.ticket, owners.c.hosted)
        .join(owners, owners.c.run_id == table.c.run_id)
        .where(table.c.state.in_(HELD))
    )
    # A run that stands still may hold one too: its start was to be stored, and the store failed.
    query = query.where(owners.c.state.in_(_GOING) if run_id is None else table.c.run_id == run_id)
    return [
        Held(ShardJob(row.run_id, row.shard_index, fair_clock.priority_of(row.tag), row.hosted, row.ticket), row.epoch)
        for row in connection.execute(query).all()
    ]


def give_back_lost(connection: sa.Connection, held: Held) -> None:
    """Let a shard wait again that nobody has; one that somebody was given since is left alone."""
    table = schema.shards
    connection.execute(
        table.update()
        .where(
            table.c.run_id == held.job.run_id,
            table.c.shard_index == held.job.shard_index,
            table.c.state.in_(HELD),
            table.c.epoch == held.epoch,
            table.c.ticket == held.job.ticket,
        )
        .values(state="waiting", slots=0, careful=_was_lost(table))
    )


def _was_lost(table: sa.Table) -> sa.ColumnElement[bool]:
    """Return whether whoever had a shard did not give it back."""
    return sa.or_(table.c.careful, table.c.state == "taken")
