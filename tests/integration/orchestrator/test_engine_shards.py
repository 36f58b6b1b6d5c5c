"""Shards: their order, the right to store their rows, and those that await verdicts; on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import random
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from tests.support.services.run_contexts import plain_context

from assay.model.answers.agent_response import AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import DatasetRef, PauseCause, RowResult, RunState
from assay.model.scope import LOCAL
from assay_orchestrator.pipeline.session import Session
from assay_orchestrator.pipeline.storage_pauses import StoragePauses
from assay_orchestrator.store import control, schema
from assay_orchestrator.store.removal import deletions
from assay_orchestrator.store.rows import results
from assay_orchestrator.store.runs import datasets, lifecycle, runs
from assay_orchestrator.store.runs.runs import RunRecord
from assay_orchestrator.store.shards import fairness, shards, unjudged
from assay_orchestrator.store.shards.fairness import FairShares
from assay_orchestrator.store.shards.shards import FencedError, RunStoppedError, Shard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from assay.storage.database import Database


CASES = 1000
EQUAL = FairShares({}, {})


def row(case_index: int, repeat: int = 1) -> RowResult:
    """Return a result without scores."""
    return RowResult(f"c{case_index}", case_index, repeat, "", AgentStatus.SUCCESS, True, (), 1.5, "")


def add_run(
    connection: sa.Connection,
    run_id: str,
    *,
    cases: int = CASES,
    repeats: int = 1,
    concurrency: int = 128,
    rows: int = 200,
    **more: Any,
) -> None:
    """Store a run over the test's dataset, divided into shards of so many rows."""
    made = RunRecord(
        run_id, f"q-{run_id}", "h", {"name": "n"}, "d", cases * repeats, "0.1.0", "2026-05-01T00:00:00.000Z", "local",
        concurrency=concurrency, **more,
    )  # fmt: skip
    runs.create_run(connection, made)
    shards.create_shards(connection, run_id, cases, repeats, rows=rows)


@pytest_asyncio.fixture
async def store(open_store: Callable[[], Database]) -> AsyncIterator[Database]:
    """Return a store that holds a dataset of a thousand cases and the run "r" over it."""
    database = open_store()

    def fill(connection: sa.Connection) -> None:
        rows = [(f"c{index}", datasets.case_text(Case(f"c{index}", (Turn("q"),)))) for index in range(CASES)]
        datasets.add_cases(connection, "u", 0, rows)
        datasets.finish_upload(connection, LOCAL, "u", DatasetRef("d", "names", CASES))
        add_run(connection, "r")

    try:
        await database.write(fill)
        yield database
    finally:
        database.close()


async def started(store: Database, run_id: str, shard_index: int, ticket: int = 1) -> Shard:
    """Start a shard that is queued."""
    shard = await store.write(lambda c: shards.start_shard(c, run_id, shard_index, ticket))
    assert shard is not None
    return shard


async def test_a_run_may_never_ask_more_than_its_concurrency(store: Database) -> None:
    """The questions in flight are divided among queued shards; a shard that ends hands its own to the next."""
    jobs = await store.write(lambda c: fairness.top_up(c, "r", EQUAL))
    assert [job.shard_index for job in jobs] == [0, 1, 2, 3]
    held = [await started(store, "r", job.shard_index) for job in jobs]
    assert [shard.slots for shard in held] == [32, 32, 32, 32]
    assert await store.write(lambda c: fairness.top_up(c, "r", EQUAL)) == []
    await store.write(lambda c: shards.release_shard(c, "r", 0, held[0].epoch))
    again = await store.write(lambda c: fairness.top_up(c, "r", EQUAL))
    assert [(job.shard_index, (await started(store, "r", 0, job.ticket)).slots) for job in again] == [(0, 32)]


async def test_what_no_shard_may_ask_goes_to_those_that_are_left(store: Database) -> None:
    """Towards the end of a run its last shards have all questions in flight, and whoever has them is told."""
    await store.write(lambda c: add_run(c, "three", cases=500, concurrency=33))
    jobs = await store.write(lambda c: fairness.top_up(c, "three", EQUAL))
    first, second = [await started(store, "three", job.shard_index) for job in jobs]
    assert (first.slots, second.slots, first.case_count) == (17, 16, 167)
    (last,) = await end(store, first)
    assert (await started(store, "three", last.shard_index)).slots == 17
    assert await end(store, second) == []
    stored = await store.write(lambda c: results.put_rows(c, "three", [], [row(499)], {2: 1}))
    assert stored.slots == {2: 33}
    await store.write(lambda c: fairness.spread_slots(c, "three", EQUAL))
    assert (await store.write(lambda c: results.put_rows(c, "three", [], [row(498)], {2: 1}))).slots == {2: 33}


async def test_what_is_left_is_divided_evenly(store: Database) -> None:
    """The shard that may ask the fewest questions gets what cannot be divided; one that waits for a worker gets its."""
    await store.write(lambda c: add_run(c, "other", concurrency=8))
    assert len(await store.write(lambda c: fairness.top_up(c, "other", EQUAL))) == 2
    taken = await started(store, "other", 0)
    await store.write(lambda c: c.execute(sa.update(schema.runs).values(concurrency=13)))
    await store.write(lambda c: fairness.spread_slots(c, "other", EQUAL))
    assert (await store.write(lambda c: shards.require_epochs(c, "other", {0: taken.epoch}))) == {0: 7}
    assert (await started(store, "other", 1)).slots == 6


async def test_a_run_that_resumes_is_served_as_one_that_begins_now(store: Database) -> None:
    """It has tags as a new one has, which count from the virtual time on."""
    await store.write(lambda c: fairness.top_up(c, "r", EQUAL))
    tags = sa.select(schema.runs.c.finish_tag, schema.runs.c.team_tag).where(schema.runs.c.run_id == "r")
    assert all(tag > 0 for tag in await store.read(lambda c: tuple(c.execute(tags).one())))
    await store.write(lambda c: fairness.reset_tags(c, "r"))
    assert await store.read(lambda c: tuple(c.execute(tags).one())) == (0.0, 0.0)


async def test_a_run_gets_no_more_than_its_agent_takes_and_nothing_once_it_is_to_be_paused(store: Database) -> None:
    """What another run of the agent may ask is not left over; what it lets go of is, but not for a run that stops."""
    shares = FairShares({}, {"agent.example.org": 40})

    def fill(connection: sa.Connection) -> None:
        for name in ("one", "two"):
            add_run(connection, name, cases=200, concurrency=32, agent_key="agent.example.org")
            fairness.top_up(connection, name, shares)

    await store.write(fill)
    one, two = [await started(store, name, 0) for name in ("one", "two")]
    assert (one.slots, two.slots) == (32, 8)
    await store.write(lambda c: fairness.spread_slots(c, "two", shares))
    assert await store.write(lambda c: shards.require_epochs(c, "two", {0: two.epoch})) == {0: 8}
    await store.write(lambda c: shards.release_shard(c, "one", 0, one.epoch))
    await store.write(lambda c: runs.apply_command(c, "two", lifecycle.Command.PAUSE))
    await store.write(lambda c: fairness.spread_slots(c, "two", shares))
    assert await store.write(lambda c: shards.require_epochs(c, "two", {0: two.epoch})) == {0: 8}


@pytest.mark.parametrize("seed", range(3))
async def test_questions_in_flight_are_never_too_many_and_never_left_over(store: Database, seed: int) -> None:
    """Whatever happens to shards of two runs that share an agent: what all may ask is held, and never more."""
    dice, limits = random.Random(seed), FairShares({}, {"agent.example.org": 40})
    names = {"one": 33, "two": 16}

    def fill(connection: sa.Connection) -> list[shards.ShardJob]:
        for name, concurrency in names.items():
            add_run(connection, name, concurrency=concurrency, agent_key="agent.example.org", rows=50)
        return [job for name in names for job in fairness.next_jobs(connection, name, limits)]

    queued = [job for job in await store.write(fill) if job.shard_index >= 0]
    taken: list[Shard] = []
    while queued or taken:
        if queued and (not taken or dice.random() < 0.6):
            job = queued.pop(dice.randrange(len(queued)))
            taken.append(await started(store, job.run_id, job.shard_index, job.ticket))
            continue
        shard, is_lost = taken.pop(dice.randrange(len(taken))), dice.random() < 0.3

        def leave(connection: sa.Connection, shard: Shard = shard, is_lost: bool = is_lost) -> list[shards.ShardJob]:
            if is_lost:
                shards.release_shard(connection, shard.run_id, shard.shard_index, shard.epoch)
            else:
                rows = [row(index) for index in range(shard.first_case, shard.first_case + shard.case_count)]
                results.put_rows(connection, shard.run_id, [], rows, {shard.shard_index: shard.epoch})
                assert shards.complete_shard(connection, shard)
            return fairness.next_jobs(connection, shard.run_id, limits)

        queued += [job for job in await store.write(leave) if job.shard_index >= 0]
        held = {name: await slots_of(store, name) for name in names}
        assert all(sum(held[name]) <= concurrency for name, concurrency in names.items())
        # Everything that may be asked is, by whoever still has rows.
        most = sum(concurrency for name, concurrency in names.items() if held[name])
        assert sum(map(sum, held.values())) == min(40, most)
        assert all(slots > 0 for each in held.values() for slots in each)
    for name in names:
        assert await store.read(lambda c, name=name: shards.all_done(c, name))  # type: ignore[misc]


async def slots_of(store: Database, run_id: str) -> list[int]:
    """Return how many questions each shard that is queued or taken may have in flight."""
    table = schema.shards
    query = sa.select(table.c.slots).where(table.c.run_id == run_id, table.c.state.in_(("queued", "taken")))
    return list(await store.read(lambda c: c.execute(query).scalars().all()))


async def end(store: Database, shard: Shard) -> list[shards.ShardJob]:
    """End a shard as a worker does: with every row, and what it had goes to others."""
    rows = [row(index) for index in range(shard.first_case, shard.first_case + shard.case_count)]

    def leave(connection: sa.Connection) -> list[shards.ShardJob]:
        results.put_rows(connection, shard.run_id, [], rows, {shard.shard_index: shard.epoch})
        assert shards.complete_shard(connection, shard)
        return fairness.next_jobs(connection, shard.run_id, EQUAL)

    return await store.write(leave)


async def test_rows_are_stored_by_right_of_the_newest_epoch(store: Database) -> None:
    """Whoever starts a shard takes it away from whoever had it: nothing that the other stores is kept."""
    await store.write(lambda c: fairness.top_up(c, "r", EQUAL))
    first = await started(store, "r", 0)
    await store.write(lambda c: results.put_rows(c, "r", [], [row(0)], {0: first.epoch}))
    second = await started(store, "r", 0)
    assert second.epoch == first.epoch + 1
    with pytest.raises(FencedError):
        await store.write(lambda c: results.put_rows(c, "r", [], [row(1)], {0: first.epoch}))
    await store.write(lambda c: results.put_rows(c, "r", [], [row(1)], {0: second.epoch}))
    assert await store.read(lambda c: results.count_finished(c, "r")) == 2
    with pytest.raises(FencedError):
        await store.write(lambda c: shards.complete_shard(c, first))


async def test_nothing_is_asked_of_a_shard_that_somebody_else_has(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stood still for a while looks whose its shards are before it asks anybody; within a second it knows."""
    pauses = StoragePauses(store, lambda _: None, lambda _: asyncio.sleep(0))
    session = Session(pauses.of("r"), plain_context("r", CASES), alone=False, on_results=lambda _: None)
    await store.write(lambda c: fairness.top_up(c, "r", EQUAL))
    held = await started(store, "r", 0)
    await session.require(held)
    other = await started(store, "r", 0)
    await session.require(held)
    await session.require(other)
    later = monotonic() + 1.0
    monkeypatch.setattr("assay_orchestrator.pipeline.session.monotonic", lambda: later)
    await session.require(other)
    with pytest.raises(FencedError):
        await session.require(held)


async def test_a_job_that_is_out_of_date_takes_no_shard_from_anybody(store: Database) -> None:
    """A shard that was given back and queued again belongs to the later job; the same job may come twice."""
    old, *_ = await store.write(lambda c: fairness.top_up(c, "r", EQUAL))
    await store.write(lambda c: shards.release_shard(c, "r", 0))
    new, *_ = await store.write(lambda c: fairness.top_up(c, "r", EQUAL))
    assert (old.shard_index, new.shard_index) == (0, 0)
    held = await started(store, "r", 0, new.ticket)
    assert await store.write(lambda c: shards.start_shard(c, "r", 0, old.ticket)) is None
    await store.write(lambda c: results.put_rows(c, "r", [], [row(0)], {0: held.epoch}))
    assert (await started(store, "r", 0, new.ticket)).epoch == held.epoch + 1


async def test_nothing_is_stored_of_a_run_that_is_over(store: Database) -> None:
    """Results of a run that was cancelled or deleted meanwhile are dropped, whoever brings them."""
    await store.write(lambda c: fairness.top_up(c, "r", EQUAL))
    held = await started(store, "r", 0)
    await store.write(lambda c: runs.change_state(c, "r", RunState.CANCELLED))
    with pytest.raises(RunStoppedError, match="cancelled"):
        await store.write(lambda c: results.put_rows(c, "r", [], [row(0)], {0: held.epoch}))
    await store.write(lambda c: deletions.begin_deletion(c, LOCAL, "r"))
    with pytest.raises(RunStoppedError, match="deleted"):
        await store.write(lambda c: results.put_rows(c, "r", [], [row(0)], {0: held.epoch}))
    assert await store.read(lambda c: results.count_finished(c, "r")) == 0


async def test_a_shard_is_done_when_every_row_has_a_result(store: Database) -> None:
    """Nothing else makes it done; a run is over when all its shards are."""
    await store.write(lambda c: fairness.top_up(c, "r", EQUAL))
    held = [await started(store, "r", index) for index in range(4)]
    await store.write(lambda c: results.put_rows(c, "r", [], [row(i) for i in range(199)], {0: held[0].epoch}))
    assert not await store.write(lambda c: shards.complete_shard(c, held[0]))
    await store.write(lambda c: results.put_rows(c, "r", [], [row(199)], {0: held[0].epoch}))
    assert await store.write(lambda c: shards.complete_shard(c, held[0]))
    assert await store.write(lambda c: shards.start_shard(c, "r", 0, 1)) is None
    assert not await store.read(lambda c: shards.all_done(c, "r"))
    (job,) = await store.write(lambda c: fairness.top_up(c, "r", EQUAL))
    held.append(await started(store, "r", job.shard_index))
    for shard in held[1:]:
        rows = [row(i) for i in range(shard.first_case, shard.first_case + shard.case_count)]

        def end(connection: sa.Connection, shard: Shard = shard, rows: list[RowResult] = rows) -> bool:
            results.put_rows(connection, "r", [], rows, {shard.shard_index: shard.epoch})
            return shards.complete_shard(connection, shard)

        assert await store.write(end)
    assert await store.read(lambda c: shards.all_done(c, "r"))


@pytest.mark.parametrize("state", [RunState.PAUSED, RunState.CANCELLED])
async def test_a_run_that_does_not_go_on_gives_its_shards_back(store: Database, state: RunState) -> None:
    """A job of a run that was paused or cancelled meanwhile does nothing, and the shard waits."""
    await store.write(lambda c: fairness.top_up(c, "r", EQUAL))
    await store.write(lambda c: runs.change_state(c, "r", state))
    assert await store.write(lambda c: shards.start_shard(c, "r", 0, 1)) is None
    assert await store.write(lambda c: fairness.top_up(c, "r", EQUAL)) == []
    await store.write(lambda c: runs.change_state(c, "r", RunState.RUNNING))
    jobs = await store.write(lambda c: fairness.top_up(c, "r", EQUAL))
    assert [job.shard_index for job in jobs] == [0]


async def test_repeats_belong_to_one_shard(store: Database) -> None:
    """All runs of a case are in its shard, so that they follow on one another."""
    await store.write(lambda c: add_run(c, "many", repeats=100))
    await store.write(lambda c: fairness.top_up(c, "many", EQUAL))
    assert (await started(store, "many", 1)).first_case == 2


async def test_teams_are_served_by_weight(store: Database) -> None:
    """Of the first shards served, teams of weights 1, 1 and 2 have a quarter, a quarter and a half."""
    shares = FairShares({"c": 2.0}, {})

    def fill(connection: sa.Connection) -> None:
        for team in "abc":
            add_run(connection, f"run-{team}", concurrency=32, fair_share=team)

    await store.write(fill)
    assert await serve(store, ["run-a", "run-b", "run-c"], shares, 8) == {"run-a": 2, "run-b": 2, "run-c": 4}


async def test_runs_of_a_team_share_what_it_has(store: Database) -> None:
    """Twenty teams of equal weight, one of which floods with ten runs: each is served as often."""

    def fill(connection: sa.Connection) -> None:
        for team in range(20):
            for run in range(10 if team == 0 else 1):
                add_run(connection, f"{team}-{run}", concurrency=32, fair_share=str(team))

    await store.write(fill)
    names = [f"{team}-{run}" for team in range(20) for run in range(10 if team == 0 else 1)]
    served = await serve(store, names, EQUAL, 60)
    teams = [sum(count for name, count in served.items() if name.split("-")[0] == str(team)) for team in range(20)]
    assert sum(teams) ** 2 / (20 * sum(count * count for count in teams)) >= 0.95


async def test_a_small_run_does_not_wait_for_a_large_one(store: Database) -> None:
    """A run that comes later is next, whatever the one before it has queued."""
    big = await store.write(lambda c: fairness.top_up(c, "r", EQUAL))
    await started(store, "r", big[0].shard_index)
    await store.write(lambda c: add_run(c, "small", cases=10))
    small = await store.write(lambda c: fairness.top_up(c, "small", EQUAL))
    assert small[0].priority > max(job.priority for job in big[1:])


async def test_an_agents_limit_holds_over_all_its_runs(store: Database) -> None:
    """Two runs that ask the same agent have what it takes between them, and share what is let go of."""
    shares = FairShares({}, {"agent.example.org": 40})

    def fill(connection: sa.Connection) -> None:
        for name in ("one", "two"):
            add_run(connection, name, concurrency=32, agent_key="agent.example.org")

    await store.write(fill)
    slots = []
    for name in ("one", "two"):
        jobs = await store.write(lambda c, name=name: fairness.top_up(c, name, shares))  # type: ignore[misc]
        slots += [(await started(store, name, job.shard_index)).slots for job in jobs]
    assert slots == [16, 16, 4, 4]
    assert await store.read(lambda c: shards.linked_runs(c, "one")) == {"one", "two"}


async def serve(store: Database, names: list[str], shares: FairShares, count: int) -> dict[str, int]:
    """Serve `count` shards, one at a time, as workers would: the highest priority first."""
    waiting = []
    for name in names:
        waiting += await store.write(lambda c, name=name: fairness.top_up(c, name, shares))  # type: ignore[misc]
    served = dict.fromkeys(names, 0)
    for _ in range(count):
        waiting.sort(key=lambda job: -job.priority)
        job = waiting.pop(0)
        shard = await started(store, job.run_id, job.shard_index, job.ticket)
        rows = [row(i) for i in range(shard.first_case, shard.first_case + shard.case_count)]
        served[job.run_id] += 1

        def end(connection: sa.Connection, shard: Shard = shard, rows: list[RowResult] = rows) -> list[shards.ShardJob]:
            results.put_rows(connection, shard.run_id, [], rows, {shard.shard_index: shard.epoch})
            assert shards.complete_shard(connection, shard)
            return fairness.top_up(connection, shard.run_id, shares)

        waiting += await store.write(end)
    return served


async def test_a_run_that_has_moved_since_it_was_summed_up_is_not_ended(store: Database) -> None:
    """Its summary lacks what came since; the caller learns that it has not ended."""
    assert not await store.write(lambda c: control.conclude(c, "r", 0, {}))  # its shards are not done
    await store.write(lambda c: c.execute(schema.shards.update().values(state="done")))
    assert not await store.write(lambda c: control.conclude(c, "r", 99, {}))
    assert not await store.write(lambda c: control.conclude(c, "unknown", 0, {}))
    found = await store.read(lambda c: runs.load_run(c, "r"))
    assert found is not None
    assert found.state is RunState.PENDING
    assert await store.write(lambda c: control.conclude(c, "r", found.last_sequence, {}))


TROUBLE = "the judge cannot be reached"


def start_all(connection: sa.Connection) -> list[Shard]:
    """Start every shard of the run that waits."""
    jobs = fairness.top_up(connection, "r", FairShares({}, {}))
    started = [shards.start_shard(connection, "r", job.shard_index, job.ticket) for job in jobs]
    return [shard for shard in started if shard is not None]


def finish(connection: sa.Connection, shard: Shard) -> None:
    """Store the one row of a shard."""
    index = shard.first_case
    row = RowResult(f"c{index}", index, 1, "", AgentStatus.SUCCESS, True, (), 1.5, "")
    results.put_rows(connection, "r", [], [row], {shard.shard_index: shard.epoch})
    assert shards.complete_shard(connection, shard)


@pytest_asyncio.fixture
async def waiting_store(open_store: Callable[[], Database]) -> AsyncIterator[Database]:
    """Return a store that holds a running run of three cases, each a shard of its own."""
    database = open_store()

    def fill(connection: sa.Connection) -> None:
        datasets.add_cases(connection, "u", 0, [(f"c{index}", "{}") for index in range(3)])
        datasets.finish_upload(connection, LOCAL, "u", DatasetRef("d", "names", 3))
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


async def run_of(waiting_store: Database) -> RunRecord:
    """Return the run."""
    run = await waiting_store.read(lambda c: runs.load_run(c, "r"))
    assert run is not None
    return run


async def test_a_run_awaits_its_batch_once_all_else_is_done(waiting_store: Database) -> None:
    """It says so once, keeps running, and is not paused."""
    done, first, last = await waiting_store.write(start_all)
    await waiting_store.write(lambda c: finish(c, done))
    await waiting_store.write(lambda c: unjudged.mark_ordered(c, first))
    assert not await waiting_store.write(lambda c: unjudged.await_batch(c, "r"))
    assert (await run_of(waiting_store)).state_message == ""

    await waiting_store.write(lambda c: unjudged.mark_ordered(c, last))
    assert await waiting_store.write(lambda c: unjudged.await_batch(c, "r"))
    run = await run_of(waiting_store)
    assert (run.state, run.state_message) == (
        RunState.RUNNING,
        "every answer is stored, 2 rows await verdicts of a batch",
    )
    assert await waiting_store.write(lambda c: unjudged.await_batch(c, "r"))
    assert (await run_of(waiting_store)).last_sequence == run.last_sequence
    assert await waiting_store.write(lambda c: unjudged.pause_if_stuck(c, "r")) == ""


async def test_a_run_pauses_when_only_rows_without_verdicts_are_left(waiting_store: Database) -> None:
    """While others are answered or ordered it runs, and its reason stays the judge's trouble."""
    done, parked, ordered = await waiting_store.write(start_all)
    await waiting_store.write(lambda c: unjudged.mark_unjudged(c, parked, TROUBLE))
    assert await waiting_store.write(lambda c: unjudged.pause_if_stuck(c, "r")) == ""
    await waiting_store.write(lambda c: finish(c, done))
    await waiting_store.write(lambda c: unjudged.mark_ordered(c, ordered))
    assert await waiting_store.write(lambda c: unjudged.pause_if_stuck(c, "r")) == ""
    assert await waiting_store.write(lambda c: unjudged.await_batch(c, "r"))
    assert (await run_of(waiting_store)).state_message == TROUBLE

    assert await waiting_store.write(lambda c: unjudged.requeue_ordered(c, "r"))
    (again,) = await waiting_store.write(start_all)
    assert again.shard_index == ordered.shard_index
    await waiting_store.write(lambda c: finish(c, again))
    reason = f"every answer is stored, 1 row awaits a verdict: {TROUBLE}"
    assert await waiting_store.write(lambda c: unjudged.pause_if_stuck(c, "r")) == reason
    run = await run_of(waiting_store)
    assert (run.state, run.pause_cause, run.state_message) == (RunState.PAUSED, PauseCause.JUDGE, reason)
    assert not await waiting_store.write(lambda c: unjudged.await_batch(c, "r"))
    assert await waiting_store.write(lambda c: unjudged.pause_if_stuck(c, "r")) == ""


async def test_a_run_pauses_only_where_its_owner_wants_it(waiting_store: Database) -> None:
    """A run that nobody paused runs on although no worker has a shard of it; one that is paused pauses once."""
    assert not await waiting_store.write(lambda c: shards.finish_pause(c, "r"))
    assert (await run_of(waiting_store)).state is RunState.RUNNING
    await waiting_store.write(lambda c: runs.apply_command(c, "r", lifecycle.Command.PAUSE))
    assert await waiting_store.write(lambda c: shards.finish_pause(c, "r"))
    run = await run_of(waiting_store)
    assert (run.state, run.pause_cause) == (RunState.PAUSED, PauseCause.OWNER)
    assert not await waiting_store.write(lambda c: shards.finish_pause(c, "r"))
    assert (await run_of(waiting_store)).last_sequence == run.last_sequence
