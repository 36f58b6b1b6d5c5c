"""Shards that await verdicts, and runs that pause: what the store says of them, on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from assay.model.answers.agent_response import AgentStatus
from assay.model.run import CaseResult, DatasetRef, PauseCause, RunState
from assay.model.scope import LOCAL
from assay_orchestrator.store.rows import results
from assay_orchestrator.store.runs import datasets, lifecycle, runs
from assay_orchestrator.store.runs.runs import RunRecord
from assay_orchestrator.store.shards import fairness, shards, unjudged
from assay_orchestrator.store.shards.fairness import FairShares

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import sqlalchemy as sa

    from assay.storage.database import Database
    from assay_orchestrator.store.shards.shards import Shard

TROUBLE = "the judge cannot be reached"


def start_all(connection: sa.Connection) -> list[Shard]:
    """Start every shard of the run that waits."""
    jobs = fairness.top_up(connection, "r", FairShares({}, {}))
    started = [shards.start_shard(connection, "r", job.shard_index, job.ticket) for job in jobs]
    return [shard for shard in started if shard is not None]


def finish(connection: sa.Connection, shard: Shard) -> None:
    """Store the one row of a shard."""
    index = shard.first_case
    row = CaseResult(f"c{index}", index, 0, "", AgentStatus.SUCCESS, True, (), 1.5, "")
    results.put_rows(connection, "r", [], [row], {shard.shard_index: shard.epoch})
    assert shards.complete_shard(connection, shard)


@pytest_asyncio.fixture
async def store(open_store: Callable[[], Database]) -> AsyncIterator[Database]:
    """Return a store that holds a running run of three cases, each a shard of its own."""
    database = open_store()

    def fill(connection: sa.Connection) -> None:
        datasets.add_cases(connection, "u", 0, [(f"c{index}", "{}") for index in range(3)])
        datasets.finish_upload(connection, LOCAL, "u", DatasetRef("d", "names", "plain/json", 3))
        run = RunRecord(
            "r", "q", "h", {"name": "n"}, "d", 3, "0.1.0", "2026-05-01T00:00:00.000Z", "local", concurrency=96
        )
        runs.create_run(connection, run)
        shards.create_shards(connection, "r", 3, 1, rows=1)
        runs.apply_command(connection, "r", lifecycle.Command.START)

    try:
        await database.write(fill)
        yield database
    finally:
        database.close()


async def run_of(store: Database) -> RunRecord:
    """Return the run."""
    run = await store.read(lambda c: runs.load_run(c, "r"))
    assert run is not None
    return run


async def test_a_run_awaits_its_batch_once_all_else_is_done(store: Database) -> None:
    """It says so once, keeps running, and is not paused."""
    done, first, last = await store.write(start_all)
    await store.write(lambda c: finish(c, done))
    await store.write(lambda c: unjudged.mark_ordered(c, first))
    assert not await store.write(lambda c: unjudged.await_batch(c, "r"))
    assert (await run_of(store)).state_reason == ""

    await store.write(lambda c: unjudged.mark_ordered(c, last))
    assert await store.write(lambda c: unjudged.await_batch(c, "r"))
    run = await run_of(store)
    assert (run.state, run.state_reason) == (
        RunState.RUNNING,
        "every answer is stored, 2 rows await verdicts of a batch",
    )
    assert await store.write(lambda c: unjudged.await_batch(c, "r"))
    assert (await run_of(store)).last_sequence == run.last_sequence
    assert await store.write(lambda c: unjudged.pause_if_stuck(c, "r")) == ""


async def test_a_run_pauses_when_only_rows_without_verdicts_are_left(store: Database) -> None:
    """While others are answered or ordered it runs, and its reason stays the judge's trouble."""
    done, parked, ordered = await store.write(start_all)
    await store.write(lambda c: unjudged.mark_unjudged(c, parked, TROUBLE))
    assert await store.write(lambda c: unjudged.pause_if_stuck(c, "r")) == ""
    await store.write(lambda c: finish(c, done))
    await store.write(lambda c: unjudged.mark_ordered(c, ordered))
    assert await store.write(lambda c: unjudged.pause_if_stuck(c, "r")) == ""
    assert await store.write(lambda c: unjudged.await_batch(c, "r"))
    assert (await run_of(store)).state_reason == TROUBLE

    assert await store.write(lambda c: unjudged.requeue_ordered(c, "r"))
    (again,) = await store.write(start_all)
    assert again.shard_index == ordered.shard_index
    await store.write(lambda c: finish(c, again))
    reason = f"every answer is stored, 1 row awaits a verdict: {TROUBLE}"
    assert await store.write(lambda c: unjudged.pause_if_stuck(c, "r")) == reason
    run = await run_of(store)
    assert (run.state, run.pause_cause, run.state_reason) == (RunState.PAUSED, PauseCause.JUDGE, reason)
    assert not await store.write(lambda c: unjudged.await_batch(c, "r"))
    assert await store.write(lambda c: unjudged.pause_if_stuck(c, "r")) == ""


async def test_a_run_pauses_only_where_its_owner_wants_it(store: Database) -> None:
    """A run that nobody paused runs on although no worker has a shard of it; one that is paused pauses once."""
    assert not await store.write(lambda c: shards.finish_pause(c, "r"))
    assert (await run_of(store)).state is RunState.RUNNING
    await store.write(lambda c: runs.apply_command(c, "r", lifecycle.Command.PAUSE))
    assert await store.write(lambda c: shards.finish_pause(c, "r"))
    run = await run_of(store)
    assert (run.state, run.pause_cause) == (RunState.PAUSED, PauseCause.OWNER)
    assert not await store.write(lambda c: shards.finish_pause(c, "r"))
    assert (await run_of(store)).last_sequence == run.last_sequence
