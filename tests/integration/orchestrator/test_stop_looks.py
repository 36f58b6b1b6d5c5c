"""Looks at the rows of two runs: any order, batching, process, retry or undone transaction gives one decision."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import random
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
import sqlalchemy as sa
from tests.support.processes.waiting import until
from tests.support.services.run_contexts import plain_context

from assay.comparison.stopping import first_stop
from assay.comparison.stopping_settings import plan_of
from assay.errors import StorageError
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec, DatasetRef, MetricSpec, RowResult, RunSpec, Score, ScoreStatus
from assay.model.scope import LOCAL
from assay.model.stopping import StoppingSettings
from assay_orchestrator.agents.retrying import RetryingAgent
from assay_orchestrator.pipeline.session import Session
from assay_orchestrator.pipeline.shard_runner import ShardRunner
from assay_orchestrator.pipeline.storage_pauses import StoragePauses
from assay_orchestrator.store import schema
from assay_orchestrator.store.rows import results, stops
from assay_orchestrator.store.rows.stops import StopLook
from assay_orchestrator.store.runs import datasets, runs
from assay_orchestrator.store.runs.runs import RunRecord
from assay_orchestrator.store.shards import shards

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from assay.comparison.stopping import Stop
    from assay.model.answers.agent_response import AgentRequest
    from assay.storage.database import Database

CASES, REPEATS = 120, 2
STOPPING = StoppingSettings("always-valid", "exact_match", ("old", "new"), CASES, low=0.0, high=1.0)
RUNS = {"old": "r2", "new": "r1"}  # ids in another order than variants


def settings_for(variant: str, stopping: StoppingSettings = STOPPING) -> RunSpec:
    """Return the settings of a run of the group."""
    agent, metrics = AgentSpec("python", "m:f"), (MetricSpec("exact_match"),)
    return RunSpec("n", agent, metrics, repeats=REPEATS, labels={"variant": variant}, group_id="g", stopping=stopping)


@pytest_asyncio.fixture
async def store(open_store: Callable[[], Database]) -> AsyncIterator[Database]:
    """Return a store with two runs of one group, every shard of which is taken under epoch 1."""
    database = open_store()

    def fill(connection: sa.Connection) -> None:
        cases = [(f"c{index}", datasets.case_text(Case(f"c{index}", (Turn("q"),)))) for index in range(CASES)]
        datasets.add_cases(connection, "u", 0, cases)
        datasets.finish_upload(connection, LOCAL, "u", DatasetRef("d", "names", CASES))
        for variant, run_id in RUNS.items():
            spec = dataclasses.asdict(settings_for(variant))
            record = RunRecord(run_id, f"q-{run_id}", "h", spec, "d", CASES * REPEATS, "0.1.0",
                               "2026-05-01T00:00:00.000Z", "local", group_id="g")  # fmt: skip
            runs.create_run(connection, record)
            shards.create_shards(connection, run_id, CASES, REPEATS, rows=40)
            connection.execute(schema.runs.update().values(state="running"))

    try:
        await database.write(fill)
        yield database
    finally:
        database.close()


def value_of(variant: str, case_index: int, repeat: int) -> float | None:
    """Return what a row scores: the new variant is right more often; some rows are skipped, others an error (NaN)."""
    dice = random.Random(f"{variant} {case_index} {repeat}")
    if (chance := dice.random()) < 0.05:
        return None if chance < 0.02 else math.nan
    return float(dice.random() < (0.5 if variant == "old" else 0.85))


def row_of(variant: str, case_index: int, repeat: int) -> RowResult:
    """Return a row as it is stored."""
    value = value_of(variant, case_index, repeat)
    status = ScoreStatus.SKIPPED if value is None else ScoreStatus.ERROR if math.isnan(value) else ScoreStatus.SCORED
    score = Score("exact_match", status, value if status is ScoreStatus.SCORED else None)
    return RowResult(f"c{case_index}", case_index, repeat, "", AgentStatus.SUCCESS, None, (score,), 1.5, "")


def decided(cases: int = CASES) -> Stop | None:
    """Return the decision from the first cases of both runs."""

    def mean(variant: str, case_index: int) -> float | None:
        known = [value for each in range(REPEATS) if (value := value_of(variant, case_index, each)) is not None]
        return sum(known) / len(known) if known and not any(map(math.isnan, known)) else None

    return first_stop(plan_of(STOPPING, REPEATS), [(mean("old", at), mean("new", at)) for at in range(cases)])


class Process:
    """Stores rows of both runs as the sessions of one process do."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self._looks = {variant: StopLook(run_id, settings_for(variant)) for variant, run_id in RUNS.items()}
        self.stopped = 0

    async def put(self, variant: str, rows: Sequence[RowResult], *, undone: bool = False) -> None:
        """Store rows of one run in one transaction, which may be undone in the end."""
        look, run_id = self._looks[variant], RUNS[variant]

        def change(connection: sa.Connection) -> None:
            look.lock(connection)
            results.put_rows(connection, run_id, [], rows, {})
            look.look(connection)
            if undone:
                raise StorageError("undone")

        if undone:
            with pytest.raises(StorageError):
                await self._store.write(change)
            return
        await self._store.write(change)
        look.committed()
        self.stopped += look.is_new


async def stored_stops(store: Database) -> list[Stop | None]:
    """Return the stop of each run."""
    return await store.read(lambda c: [stops.read_stop(c, run_id) for run_id in RUNS.values()])


@pytest.mark.parametrize("seed", range(3))
async def test_processes_that_finish_rows_at_once_store_one_decision(store: Database, seed: int) -> None:
    """Two processes store batches of both runs in any order: the stop is that of all rows in order, stored once."""
    expected = decided()
    assert expected is not None
    assert 20 < expected.cases < CASES - 20
    dice, processes = random.Random(seed), [Process(store), Process(store)]
    rows = {variant: [(at, each) for at in range(CASES) for each in range(REPEATS)] for variant in RUNS}
    while any(rows.values()):
        batches = []
        for process in processes:
            variant = dice.choice([name for name in rows if rows[name]])
            near = rows[variant][:24]  # rows end nearly in the order in which they are asked
            batch = dice.sample(near, min(len(near), dice.randint(1, 12)))
            rows[variant] = [key for key in rows[variant] if key not in batch]
            batches.append(process.put(variant, [row_of(variant, *key) for key in batch]))
            if not any(rows.values()):
                break
        await asyncio.gather(*batches)
    assert await stored_stops(store) == [expected, expected]
    assert sum(process.stopped for process in processes) == 1


async def test_what_was_undone_is_not_seen(store: Database) -> None:
    """Rows of a transaction that was undone count for nothing, though the process has looked at them."""
    expected = decided()
    assert expected is not None
    process, other = Process(store), Process(store)
    wrong = [dataclasses.replace(row_of("new", at, each), scores=(Score("exact_match", ScoreStatus.SCORED, 1.0),))
             for at in range(40) for each in range(REPEATS)]  # fmt: skip
    await process.put("old", [row_of("old", at, each) for at in range(CASES) for each in range(REPEATS)])
    await process.put("new", wrong, undone=True)
    for at in range(CASES):
        await (process if at % 2 else other).put("new", [row_of("new", at, each) for each in range(REPEATS)])
        assert (await stored_stops(store))[0] == (expected if at + 1 >= expected.cases else None)


async def test_rows_that_were_taken_back_are_read_again(store: Database) -> None:
    """A process that has looked at rows which are retried decides by those that come in their place."""
    expected = decided()
    assert expected is not None
    process = Process(store)
    wrong = [dataclasses.replace(row_of("new", at, each), scores=(Score("exact_match", ScoreStatus.SCORED, 0.0),))
             for at in range(10) for each in range(REPEATS)]  # fmt: skip
    await process.put("old", [row_of("old", at, each) for at in range(CASES) for each in range(REPEATS)])
    await process.put("new", wrong)
    await store.write(lambda c: results.remove_rows(c, RUNS["new"], wrong))
    for at in range(CASES):
        await process.put("new", [row_of("new", at, each) for each in range(REPEATS)])
    assert await stored_stops(store) == [expected, expected]


async def test_a_stop_ends_what_has_not_begun(store: Database) -> None:
    """Waiting shards without an answer are done; the counts are those of the rows that will be there; a stop stays."""
    expected = decided()
    assert expected is not None
    process = Process(store)
    table = schema.shards

    def take_first(connection: sa.Connection) -> None:
        begun = sa.and_(table.c.first_case < expected.cases + 1)
        connection.execute(table.update().where(begun).values(state="taken", epoch=1))

    await store.write(take_first)
    for variant in RUNS:
        rows = [row_of(variant, at, each) for at in range(expected.cases) for each in range(REPEATS)]
        await process.put(variant, rows)
    assert await stored_stops(store) == [expected, expected]

    def found(connection: sa.Connection) -> list[tuple[str, int, str, int]]:
        query = sa.select(table.c.run_id, table.c.first_case, table.c.state, table.c.row_count)
        return [tuple(row) for row in connection.execute(query.order_by(table.c.run_id, table.c.shard_index))]

    for run_id, first_case, state, row_count in await store.read(found):
        assert (state, row_count) == (("taken", 40) if first_case < expected.cases + 1 else ("done", 0)), run_id
    taken = [one for one in await store.read(found) if one[2] == "taken" and one[0] == RUNS["old"]]
    last = shards.Shard(RUNS["old"], len(taken) - 1, taken[-1][1], 20, 1, 1)
    await store.write(lambda c: stops.drop_unasked(c, last))
    assert await store.write(lambda c: shards.complete_shard(c, last))
    run = await store.read(lambda c: runs.load_run(c, RUNS["old"]))
    assert run is not None
    assert run.total_count == run.finished_count == expected.cases * REPEATS
    await store.write(lambda c: results.remove_rows(c, RUNS["old"], [row_of("old", 0, 0)]))
    assert await stored_stops(store) == [expected, expected]


class HeldAgent:
    """Answers once it may, and counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Answer."""
        self.asked.append(request.case_id)
        await self.may_answer.wait()
        return AgentResponse(text="a")

    async def aclose(self) -> None:
        """Close nothing."""


async def test_what_waits_for_its_turn_is_not_asked(store: Database) -> None:
    """A run that is found to have stopped stores the answers in flight; rows that wait for a slot are left."""
    run_id, agent, table = RUNS["old"], HeldAgent(), schema.shards
    context = dataclasses.replace(
        plain_context(run_id, CASES),
        concurrency=2,
        agent=RetryingAgent(agent, retries=0),
        stop_look=StopLook(run_id, settings_for("old")),
    )
    pauses = StoragePauses(store, lambda _: None, lambda _: asyncio.sleep(0))
    session = Session(pauses.of(run_id), context, alone=True, on_results=lambda _: None)
    taken = table.update().where(table.c.run_id == run_id, table.c.shard_index == 0).values(state="taken", epoch=1)
    await store.write(lambda c: c.execute(taken))
    runner = ShardRunner(pauses.of(run_id), session, shards.Shard(run_id, 0, 0, 20, 1, 2))
    running = asyncio.ensure_future(runner.run())
    await until(lambda: len(agent.asked) == 2)
    await store.write(lambda c: c.execute(schema.runs.update().values(stop_json="{}")))  # by another process
    agent.may_answer.set()
    await running
    await session.aclose()
    assert sorted(agent.asked) == ["c0", "c1"]
    assert await store.read(lambda c: results.count_finished(c, run_id)) == 2
