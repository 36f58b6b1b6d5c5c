"""Groups of runs, and the shares of teams and runs: which shards are served next; on SQLite and on PostgreSQL."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import sqlalchemy as sa

from assay.errors import SpecError
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import DatasetRef, RowResult
from assay.model.scope import LOCAL, Scope
from assay_orchestrator.store import schema
from assay_orchestrator.store.rows import results
from assay_orchestrator.store.runs import datasets, lifecycle, runs
from assay_orchestrator.store.runs.runs import RunRecord
from assay_orchestrator.store.shards import fairness, shards
from assay_orchestrator.store.shards.fairness import FairShares

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import RunSpec
    from assay.storage.database import Database
    from assay_orchestrator.store.shards.shards import Shard, ShardJob


CASES = 600
ROWS = shards.GROUP_SHARD_ROWS
WINDOW = 2
VARIANTS = ("a", "b", "c")
EQUAL = FairShares({}, {})


def add_run(connection: sa.Connection, run_id: str, *, rows: int = ROWS, **more: Any) -> None:
    """Store a run over the test's dataset, divided into shards of so many rows."""
    settings: dict[str, Any] = {"team": "local", "concurrency": 16} | more
    made = RunRecord(run_id, f"q-{run_id}", "h", {"name": "n"}, "d", CASES, "0.1.0", "2026-05-01T00:00:00.000Z",
                     **settings)  # fmt: skip
    runs.create_run(connection, made)
    shards.create_shards(connection, run_id, CASES, 1, rows=rows)


@pytest_asyncio.fixture
async def store(open_store: Callable[[], Database]) -> AsyncIterator[Database]:
    """Return a store that holds a dataset and a group of three runs over it."""
    database = open_store()

    def fill(connection: sa.Connection) -> None:
        cases = [(f"c{index}", datasets.case_text(Case(f"c{index}", (Turn("q"),)))) for index in range(CASES)]
        datasets.add_cases(connection, "u", 0, cases)
        datasets.finish_upload(connection, LOCAL, "u", DatasetRef("d", "names", CASES))
        for name in VARIANTS:
            add_run(connection, name, group_id="g")

    try:
        await database.write(fill)
        yield database
    finally:
        database.close()


class Workers:
    """Starts and ends shards as workers do."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self.queued: list[ShardJob] = []
        self.taken: list[Shard] = []

    async def queue_next(self, *run_ids: str) -> None:
        """Queue what follows for some runs, as at their creation."""

        def enqueue(connection: sa.Connection) -> list[ShardJob]:
            return [job for run_id in run_ids for job in fairness.next_jobs(connection, run_id, EQUAL)]

        self.queued += [job for job in await self._store.write(enqueue) if job.shard_index >= 0]

    async def start(self, job: ShardJob) -> Shard | None:
        """Start the shard of a job."""
        self.queued.remove(job)
        shard = await self._store.write(lambda c: shards.start_shard(c, job.run_id, job.shard_index, job.ticket))
        if shard is not None:
            self.taken.append(shard)
        return shard

    async def end(self, shard: Shard) -> None:
        """Store every row of a shard and queue what follows."""
        self.taken.remove(shard)
        rows = [
            RowResult(f"c{index}", index, 1, "", AgentStatus.SUCCESS, True, (), 1.5, "")
            for index in range(shard.first_case, shard.first_case + shard.case_count)
        ]

        def leave(connection: sa.Connection) -> list[ShardJob]:
            results.put_rows(connection, shard.run_id, [], rows, {shard.shard_index: shard.epoch})
            assert shards.complete_shard(connection, shard)
            return fairness.next_jobs(connection, shard.run_id, EQUAL)

        self.queued += [job for job in await self._store.write(leave) if job.shard_index >= 0]

    async def finished(self) -> dict[str, int]:
        """Return how many rows each run has."""
        table = schema.runs
        found = await self._store.read(lambda c: c.execute(sa.select(table.c.run_id, table.c.finished_count)).all())
        return {row.run_id: row.finished_count for row in found}


@pytest.mark.parametrize("seed", range(2))
async def test_runs_of_a_group_advance_alike(store: Database, seed: int) -> None:
    """Whichever run has the faster agent: at any time stored rows differ by at most a window of shards, and all end."""
    dice, workers = random.Random(seed), Workers(store)
    await workers.queue_next(*VARIANTS)
    most_ahead = 0
    while workers.queued or workers.taken:
        for job in list(workers.queued):
            await workers.start(job)
        # The agent of "a" is the fastest, that of "c" the slowest.
        fastest = min(workers.taken, key=lambda shard: (dice.random() < 0.1, shard.run_id, shard.shard_index))
        await workers.end(fastest)
        counts = await workers.finished()
        most_ahead = max(most_ahead, max(counts.values()) - min(counts.values()))
        assert most_ahead <= WINDOW * ROWS
    assert most_ahead == WINDOW * ROWS, "the fast run made use of its window"
    assert set((await workers.finished()).values()) == {CASES}


@pytest.mark.parametrize("command", [lifecycle.Command.CANCEL, lifecycle.Command.PAUSE])
async def test_a_run_that_stops_keeps_no_other_back(store: Database, command: lifecycle.Command) -> None:
    """Once the slowest run of a group is cancelled or paused, the others of the group work through all cases."""
    workers = Workers(store)
    await workers.queue_next(*VARIANTS)
    workers.queued = [job for job in workers.queued if job.run_id != "c"]
    await store.write(lambda c: runs.apply_command(c, "c", command))
    while workers.queued or workers.taken:
        for job in list(workers.queued):
            await workers.start(job)
        await workers.end(workers.taken[0])
    assert await workers.finished() == {"a": CASES, "b": CASES, "c": 0}


async def test_groups_of_other_teams_and_other_runs_are_served_beside_it(store: Database) -> None:
    """Of the first shards served one at a time, the group of one team and the run of another have half each."""

    def fill(connection: sa.Connection) -> None:
        for name in VARIANTS:
            connection.execute(schema.runs.update().where(schema.runs.c.run_id == name).values(fair_share="one"))
        add_run(connection, "other", fair_share="two")

    await store.write(fill)
    workers = Workers(store)
    await workers.queue_next(*VARIANTS, "other")
    for _ in range(12):
        shard = await workers.start(max(workers.queued, key=lambda job: job.priority))
        assert shard is not None
        await workers.end(shard)
    counts = await workers.finished()
    assert counts["other"] == pytest.approx(6 * ROWS, abs=ROWS)
    assert {counts[name] for name in VARIANTS} <= {ROWS, 2 * ROWS, 3 * ROWS}


async def test_a_group_belongs_to_its_team(store: Database) -> None:
    """A run of another team with the same group id is no part of the group: neither waits for the other."""

    def add(connection: sa.Connection) -> None:
        datasets.add_cases(connection, "v", 0, [("c0", datasets.case_text(Case("c0", (Turn("q"),))))])
        datasets.finish_upload(connection, Scope("others"), "v", DatasetRef("d", "names", 1))
        add_run(connection, "foreign", team="others", group_id="g")

    await store.write(add)
    assert await store.read(lambda c: shards.linked_runs(c, "a")) == set(VARIANTS)
    assert await store.read(lambda c: shards.linked_runs(c, "foreign")) == {"foreign"}
    workers = Workers(store)
    await workers.queue_next("foreign")
    for _ in range(WINDOW + 1):  # further than a run of the group may be ahead
        job = workers.queued[0]
        shard = await workers.start(job)
        assert shard is not None
        await workers.end(shard)


async def test_a_run_keeps_its_team_and_weight(
    serve: Callable[..., AbstractAsyncContextManager[Client]],
    settings_of: Callable[..., RunSpec],
    engine: sa.Engine,
) -> None:
    """They come back with the run, and stand where the shards of all runs are put in order; wrong ones are refused."""
    async with serve() as client:
        case = Case("c", (Turn("q", references=("a",)),), recordings=((AgentResponse(text="a"),),))
        dataset = await client.upload_dataset([case], name="d")
        settings = dataclasses.replace(settings_of(), team="search", weight=2.5)
        run = await client.create_run(settings, dataset.dataset_id)
        assert (run.spec.team, run.spec.weight) == ("search", 2.5)
        wrong = dataclasses.replace(settings, team="x" * 65, weight=0.0)
        with pytest.raises(SpecError) as caught:
            await client.create_run(wrong, dataset.dataset_id)
    assert [problem.field for problem in caught.value.problems] == ["team", "weight"]
    with engine.connect() as connection:
        row = connection.execute(sa.select(schema.runs.c.fair_share, schema.runs.c.weight)).one()
    assert tuple(row) == ("search", 2.5)
