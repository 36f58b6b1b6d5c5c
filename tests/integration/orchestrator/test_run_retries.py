"""Rows that are tried again: rows with errors, up to their limit, and rows missing from shards that count as done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from tests.support.processes.waiting import until
from tests.support.services.ended_runs import await_end

from assay.agent_host.caller import AgentCaller
from assay.errors import NotFoundError, WrongStateError
from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import AttemptOutcome, PauseCause, RowResult, Run, RunState, Score, ScoreStatus, StateChanged
from assay.v1 import row_pb2
from assay.wire.run import ATTEMPT
from assay_orchestrator.store import control, schema
from assay_orchestrator.store.rows import attempts, results
from assay_orchestrator.store.rows.results import AnswerRecord
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.runs.lifecycle import ACTIVE_STATES

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import RunSpec
    from assay.storage.database import Database

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import RunSpec

    OpenStore = Callable[[], Database]


class Flaky:
    """Answers right, except cases that it is told to fail."""

    def __init__(self, *failing: str) -> None:
        self.failing = set(failing)
        self.asked: list[AgentRequest] = []

    async def __call__(self, request: AgentRequest) -> str:
        """Answer a question."""
        self.asked.append(request)
        if request.case_id in self.failing:
            raise ValueError("no luck")
        return "a" + request.input[1:]


def cases(count: int, turns: int = 1) -> list[Case]:
    """Return cases whose right answers Flaky gives."""
    return [Case(f"c{i}", tuple(Turn(f"q{i}", references=(f"a{i}",)) for _ in range(turns))) for i in range(count)]


async def host(client: Client, run_id: str, agent: Flaky) -> Run:
    """Answer a run's questions until it ends, and return it."""
    hosting = asyncio.ensure_future(client.host_agent(run_id, AgentCaller(agent), concurrency=16))
    await await_end(client, run_id)
    await hosting
    return await client.get_run(run_id)


async def flaky_run(client: Client, settings: RunSpec, agent: Flaky, content: list[Case]) -> Run:
    """Run over some cases with an agent that fails some."""
    dataset = await client.upload_dataset(content, name="d")
    run = await client.create_run(settings, dataset.dataset_id)
    return await host(client, run.run_id, agent)


async def test_rows_with_errors_are_asked_again(serve: Serve, settings_of: SettingsOf) -> None:
    """Only they are; results, counts, summary and history are right afterwards, and old idempotency keys unused."""
    agent = Flaky("c3", "c7")
    async with serve() as client:
        run = await flaky_run(client, settings_of("python", "m:f", retries=0), agent, cases(10))
        assert (run.state, run.counts.agent_error_count, run.counts.passed_count) == (RunState.COMPLETED, 2, 8)
        agent.failing, first = {"c7"}, list(agent.asked)
        agent.asked.clear()
        resumed = await client.retry_run(run.run_id)
        assert (resumed.state, resumed.ended_at, resumed.summary) == (RunState.RUNNING, "", None)
        done = await host(client, run.run_id, agent)
        assert sorted(request.case_id for request in agent.asked) == ["c3", "c7"]
        counts = done.counts
        assert (done.state, counts.finished_count, counts.passed_count, counts.agent_error_count) == (
            RunState.COMPLETED,
            10,
            9,
            1,
        )
        assert done.summary is not None
        assert (done.summary.passed_count, done.summary.decided_count) == (9, 10)
        rows = [row async for row in client.list_rows(run.run_id)]
        assert [row.case_id for row in rows] == [f"c{i}" for i in range(10)]
        assert [row.case_id for row in rows if row.status is AgentStatus.ERROR] == ["c7"]
        old, new = await client.list_attempts(run.run_id, "c3")
        query = row_pb2.ListAttemptsRequest(run_id=run.run_id, case_id="c3", page_size=1)
        page = await client._stub.ListAttempts(query)
        query.page_token = page.next_page_token
        last_page = await client._stub.ListAttempts(query)
        assert [ATTEMPT.from_wire(attempt) for attempt in (*page.attempts, *last_page.attempts)] == [old, new]
        assert (len(page.attempts), last_page.next_page_token) == (1, "")
        (fine,) = await client.list_attempts(run.run_id, "c4")
    keys = {request.case_id: request.idempotency_key for request in first}
    for request in agent.asked:
        assert request.idempotency_key == keys[request.case_id] + "@1"
        assert request.session_id != keys[request.case_id]
    assert (old.outcome, new.outcome, fine.outcome) == ("retried", "current", "current")
    assert old.result is not None
    assert new.result is not None
    assert old.result.response is not None
    assert old.result.response.error is not None
    assert (old.attempt_index, old.result.status, old.result.response.error.kind) == (0, "error", AgentErrorKind.RAISED)
    assert (new.attempt_index, new.result.status, new.result.passed) == (1, "success", True)
    assert new.result.response is not None
    assert new.result.response.text == "a3"


async def test_watchers_see_the_new_results_under_new_numbers(serve: Serve, settings_of: SettingsOf) -> None:
    """Sequence numbers increase strictly; whoever watches from the start sees each row once, as it stands."""
    agent = Flaky("c1", "c2")
    async with serve() as client:
        run = await flaky_run(client, settings_of("python", "m:f", retries=0), agent, cases(5))
        agent.failing = set()
        await client.retry_run(run.run_id)
        await host(client, run.run_id, agent)
        events = [event async for event in client.watch_run(run.run_id) if not isinstance(event, Run)]
        later = [
            event
            async for event in client.watch_run(run.run_id, after_sequence=run.last_sequence)
            if not isinstance(event, Run)
        ]
    numbers = [event.sequence for event in events]
    assert numbers == sorted(set(numbers))
    assert sorted(event.case_id for event in events if isinstance(event, RowResult)) == [f"c{i}" for i in range(5)]
    assert {event.case_id for event in later if isinstance(event, RowResult)} == {"c1", "c2"}
    states = [event.state.value for event in events if isinstance(event, StateChanged)]
    assert states == ["running", "completed", "running", "completed"]


@pytest.mark.parametrize("database_url", [""])
async def test_a_gap_longer_than_a_page_does_not_stop_a_watch(serve: Serve, settings_of: SettingsOf) -> None:
    """Where more results in a row were replaced than one read returns, watchers go on behind them."""
    agent = Flaky(*(f"c{i}" for i in range(1200)))
    async with serve() as client:
        run = await flaky_run(client, settings_of("python", "m:f", retries=0), agent, cases(1200))
        assert run.counts.agent_error_count == 1200
        agent.failing = set()
        await client.retry_run(run.run_id)
        done = await host(client, run.run_id, agent)
    assert (done.counts.passed_count, done.counts.finished_count, done.counts.agent_error_count) == (1200, 1200, 0)
    assert done.summary is not None
    assert (done.summary.asked_again_count, done.summary.scored_again_count) == (1200, 0)


async def test_a_conversation_is_held_again_as_a_whole(serve: Serve, settings_of: SettingsOf) -> None:
    """The turns before the one that failed are asked again too, in a session of their own."""
    agent = Flaky()

    class SecondTurnFails(Flaky):
        async def __call__(self, request: AgentRequest) -> str:
            self.failing = {"c0"} if request.turn_index == 1 and "@" not in request.idempotency_key else set()
            return await super().__call__(request)

    agent = SecondTurnFails()
    async with serve() as client:
        run = await flaky_run(client, settings_of("python", "m:f", retries=0), agent, cases(1, turns=2))
        assert run.counts.agent_error_count == 1
        await client.retry_run(run.run_id)
        done = await host(client, run.run_id, agent)
    assert done.counts.agent_error_count == 0
    assert [request.turn_index for request in agent.asked] == [0, 1, 0, 1]
    assert len({request.session_id for request in agent.asked}) == 2


async def test_a_row_that_fails_in_every_try_is_given_up(serve: Serve, settings_of: SettingsOf) -> None:
    """After three tries a row is a dead letter: its kind says so, its last failure is told, it is not asked again."""
    agent = Flaky("c0")
    async with serve(row_try_limit=3) as client:
        run = await flaky_run(client, settings_of("python", "m:f", retries=0), agent, cases(2))
        for _ in range(2):
            await client.retry_run(run.run_id)
            run = await host(client, run.run_id, agent)
        asked = len(agent.asked)
        again = await client.retry_run(run.run_id)
        assert (again.state, again.last_sequence) == (RunState.COMPLETED, run.last_sequence)
        found = await client.list_attempts(run.run_id, "c0")
    assert len(agent.asked) == asked == 4
    assert [attempt.outcome for attempt in found] == ["retried", "retried", "current"]
    last = found[-1].result
    assert last is not None
    assert last.response is not None
    assert last.response.error is not None
    assert last.response.error.kind is AgentErrorKind.DEAD_LETTER
    assert "failed in 3 attempts; the last: raised" in last.response.error.message
    assert "no luck" in last.response.error.message


async def test_what_cannot_be_tried_again_is_refused(serve: Serve, settings_of: SettingsOf) -> None:
    """Runs that go on or were cancelled are refused with a sentence; without errors nothing happens."""
    agent = Flaky()
    async with serve() as client:
        done = await flaky_run(client, settings_of("python", "m:f"), agent, cases(2))
        same = await client.retry_run(done.run_id)
        assert (same.state, same.last_sequence) == (RunState.COMPLETED, done.last_sequence)
        with pytest.raises(WrongStateError, match="already completed"):
            await client.resume_run(done.run_id)
        going = await client.create_run(settings_of("python", "m:f"), done.dataset.dataset_id)
        with pytest.raises(WrongStateError, match="is running"):
            await client.retry_run(going.run_id)
        await client.cancel_run(going.run_id)
        with pytest.raises(WrongStateError, match="cancelled"):
            await client.retry_run(going.run_id)
        with pytest.raises(NotFoundError, match="no case 'zz'"):
            await client.list_attempts(done.run_id, "zz")


async def test_a_paused_run_retries_its_errors_with_the_rest(serve: Serve, settings_of: SettingsOf) -> None:
    """Resuming a paused run with retry_errors finishes it and tries its failed rows again."""

    class Gated(Flaky):
        """Holds every answer but the first back until it may go."""

        may_answer = asyncio.Event()

        async def __call__(self, request: AgentRequest) -> str:
            if self.asked:
                await self.may_answer.wait()
            return await super().__call__(request)

    agent = Gated("c0")
    async with serve() as client:
        dataset = await client.upload_dataset(cases(30), name="d")
        run = await client.create_run(settings_of("python", "m:f", retries=0, concurrency=1), dataset.dataset_id)
        hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=1))
        async for event in client.watch_run(run.run_id):
            if isinstance(event, RowResult):
                break
        pausing = asyncio.ensure_future(client.pause_run(run.run_id))
        await until(lambda: client.get_run(run.run_id), lambda run: run.pause_cause is PauseCause.OWNER)
        agent.may_answer.set()
        await pausing
        await hosting
        paused = await until(lambda: client.get_run(run.run_id), lambda run: run.state is RunState.PAUSED)
        assert paused.counts.agent_error_count == 1
        agent.failing = set()
        await client.retry_run(run.run_id)
        done = await host(client, run.run_id, agent)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 30)
    assert sorted(request.case_id for request in agent.asked) == sorted(["c0", *(f"c{i}" for i in range(30))])


async def test_a_good_answer_is_scored_again_but_not_asked_for(
    serve: Serve, settings_of: SettingsOf, open_store: Callable[[], Database]
) -> None:
    """A row of which a metric could not be computed keeps its answer; only the result is made anew."""
    agent = Flaky()
    async with serve() as client:
        run = await flaky_run(client, settings_of("python", "m:f"), agent, cases(3))
    database = open_store()
    try:

        def break_score(connection: sa.Connection) -> None:
            (row,) = results.read_in_order(connection, run.run_id, (0, 1), 1)
            answer = AnswerRecord(1, 1, 0, results.read_answers(connection, run.run_id, [1])[1, 1][0])
            table = schema.answers
            connection.execute(table.delete().where(table.c.run_id == run.run_id, table.c.case_index == 1))
            results.remove_rows(connection, run.run_id, [row])
            broken = Score("exact_match", ScoreStatus.ERROR, reason="embedder_unavailable")
            made = RowResult("c1", 1, 1, "", AgentStatus.SUCCESS, None, (broken, row.scores[1]), 1.0, "broken")
            runs.change_state(connection, run.run_id, RunState.RUNNING)
            results.put_rows(connection, run.run_id, [answer], [made], {})
            runs.change_state(connection, run.run_id, RunState.COMPLETED)

        await database.write(break_score)
    finally:
        database.close()
    asked = len(agent.asked)
    async with serve() as client:
        assert (await client.get_run(run.run_id)).counts.passed_count == 2
        await client.retry_run(run.run_id)
        done = await host(client, run.run_id, agent)
        old, new = await client.list_attempts(run.run_id, "c1")
    assert (done.counts.passed_count, len(agent.asked)) == (3, asked)
    assert old.result is not None
    assert new.result is not None
    assert old.result.scores[0].status is ScoreStatus.ERROR
    assert new.result.passed is True


async def killed(open_store: Callable[[], Database], run_id: str) -> None:
    """Leave a run as a kill does that comes while its first row is worked on."""
    database = open_store()
    try:

        def leave(connection: sa.Connection) -> None:
            tries = attempts.count_attempts(connection, run_id, 0, 1).get((0, 1), attempts.RowAttempts())
            attempts.journal_attempts(connection, run_id, [(0, 1, tries.interrupted)])
            runs.change_state(connection, run_id, RunState.RUNNING)

        await database.write(leave)
    finally:
        database.close()


@pytest.mark.parametrize("kills", [2, 3])
async def test_a_row_in_whose_midst_the_process_is_killed_comes_last_and_is_given_up(
    serve: Serve, settings_of: SettingsOf, open_store: Callable[[], Database], kills: int
) -> None:
    """Such a row is tried alone, after the others; after three kills it is a dead letter, and the run ends."""
    agent = Flaky()
    async with serve() as client:
        dataset = await client.upload_dataset(cases(4), name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
    for _ in range(kills):
        await killed(open_store, run.run_id)
    async with serve(recover="auto") as client:
        done = await host(client, run.run_id, agent)
        found = await client.list_attempts(run.run_id, "c0")
    assert done.state is RunState.COMPLETED
    asked = [request.case_id for request in agent.asked]
    assert sorted(asked[:3]) == ["c1", "c2", "c3"]
    assert asked[3:] == (["c0"] if kills < 3 else [])
    assert [attempt.outcome for attempt in found] == [AttemptOutcome.INTERRUPTED] * kills + [AttemptOutcome.CURRENT]
    last = found[-1].result
    assert last is not None
    assert last.response is not None
    if kills < 3:
        assert last.response.text == "a0"
        assert agent.asked[-1].idempotency_key == f"{run.run_id}/0/1"
    else:
        assert last.response.error is not None
        assert last.response.error.kind is AgentErrorKind.DEAD_LETTER
        assert "killed 3 times" in last.response.error.message


async def test_a_stop_in_good_order_is_no_failed_try(serve: Serve, settings_of: SettingsOf, engine: sa.Engine) -> None:
    """Only kills leave interrupted attempts behind: restarts of the service cost a slow row none of its tries."""
    taken = asyncio.Event()

    async def hangs(request: AgentRequest) -> str:
        taken.set()
        await asyncio.Event().wait()
        return ""

    async with serve() as client:
        dataset = await client.upload_dataset(cases(4), name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
    with engine.begin() as connection:
        connection.execute(schema.shards.update().values(careful=True))  # as after a kill
    for _ in range(2):
        taken.clear()
        async with serve(recover="auto") as client:
            hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(hangs), concurrency=4))
            await taken.wait()
            with engine.connect() as connection:
                count = sa.select(sa.func.count()).select_from(schema.row_history)
                assert connection.execute(count).scalar_one() == 4
            hosting.cancel()
            await asyncio.gather(hosting, return_exceptions=True)
        with engine.connect() as connection:
            assert connection.execute(sa.select(sa.func.count()).select_from(schema.row_history)).scalar_one() == 0


def recorded_cases(count: int) -> list[Case]:
    """Return cases with a recorded answer, which is right."""
    return [
        Case(f"c{i}", (Turn(f"q{i}", references=(f"a{i}",)),), recordings=((AgentResponse(text=f"a{i}"),),))
        for i in range(count)
    ]


async def completed(client: Client, settings: RunSpec, count: int) -> Run:
    """Return a run over some cases that has completed."""
    dataset = await client.upload_dataset(recorded_cases(count), name="d")
    run = await client.create_run(settings, dataset.dataset_id)
    done: Run = await until(lambda: client.get_run(run.run_id), lambda run: run.finished)
    assert done.state is RunState.COMPLETED
    return done


async def change(open_store: OpenStore, work: Callable[[sa.Connection], object]) -> None:
    """Change the stored rows behind the back of the orchestrator, which does not run."""
    database = open_store()
    try:
        await database.write(work)
    finally:
        database.close()


def lose(connection: sa.Connection, run_id: str, *indexes: int) -> None:
    """Remove stored results of a run that is running again, and leave its shards done and its counts as they were."""
    runs.change_state(connection, run_id, RunState.RUNNING)
    table = schema.results
    connection.execute(table.delete().where(table.c.run_id == run_id, table.c.case_index.in_(indexes)))


def forget_answers(connection: sa.Connection, run_id: str, *indexes: int) -> None:
    """Remove stored answers of a run."""
    table = schema.answers
    connection.execute(table.delete().where(table.c.run_id == run_id, table.c.case_index.in_(indexes)))


async def at_rest(client: Client, run_id: str) -> Run:
    """Return a run once it is shown as paused or has ended."""
    run: Run = await until(
        lambda: client.get_run(run_id, partial=False),
        lambda run: run.state not in (RunState.PENDING, RunState.RUNNING),
    )
    return run


async def test_missing_rows_are_made_and_the_run_succeeds(
    serve: Serve, settings_of: SettingsOf, open_store: OpenStore
) -> None:
    """No one has to resume the run; its counts, rows and summary are those of a run that lost nothing."""
    async with serve() as client:
        before = await completed(client, settings_of(), 20)
    await change(open_store, lambda c: lose(c, before.run_id, 0, 7, 19))
    async with serve(recover="auto", reconcile_s=0.1) as client:
        after = await at_rest(client, before.run_id)
        rows = [row.case_id async for row in client.list_rows(before.run_id)]
        events = [event async for event in client.watch_run(before.run_id) if not isinstance(event, Run)]
    assert (after.state, after.state_message) == (RunState.COMPLETED, "")
    assert after.counts == before.counts
    assert rows == [f"c{i}" for i in range(20)]
    assert sorted(event.case_id for event in events if isinstance(event, RowResult)) == sorted(rows)
    states = [event.state for event in events if isinstance(event, StateChanged)]
    assert states == [RunState.RUNNING, RunState.COMPLETED, RunState.RUNNING, RunState.COMPLETED]
    assert after.summary is not None
    assert before.summary is not None
    assert (after.summary.row_count, after.summary.passed_count) == (
        before.summary.row_count,
        before.summary.passed_count,
    )


async def test_only_questions_without_a_stored_answer_are_asked(
    serve: Serve, settings_of: SettingsOf, open_store: OpenStore
) -> None:
    """A missing row whose answer is stored is scored again; of the others each is asked once."""
    asked: list[str] = []

    async def agent(request: AgentRequest) -> str:
        asked.append(request.case_id)
        return "a" + request.input[1:]

    async with serve() as client:
        dataset = await client.upload_dataset(recorded_cases(10), name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        await client.host_agent(run.run_id, AgentCaller(agent), concurrency=4)
        before = await at_rest(client, run.run_id)
    assert before.state is RunState.COMPLETED
    asked.clear()

    def damage(connection: sa.Connection) -> None:
        lose(connection, run.run_id, 2, 4, 6)
        forget_answers(connection, run.run_id, 4, 6)

    await change(open_store, damage)
    async with serve(recover="auto", reconcile_s=0.1) as client:
        await client.host_agent(run.run_id, AgentCaller(agent), concurrency=4)
        after = await at_rest(client, run.run_id)
    assert (after.state, after.counts) == (RunState.COMPLETED, before.counts)
    assert sorted(asked) == ["c4", "c6"]


async def test_shards_that_lack_nothing_stay_done(
    serve: Serve, settings_of: SettingsOf, open_store: OpenStore, engine: sa.Engine
) -> None:
    """Of a run with several shards those alone are started again that lack rows."""
    table = schema.shards
    epochs = sa.select(table.c.shard_index, table.c.epoch).order_by(table.c.shard_index)
    async with serve() as client:
        run = await completed(client, settings_of(), 1200)
    with engine.connect() as connection:
        before = {row.shard_index: row.epoch for row in connection.execute(epochs)}
    assert len(before) == 2
    await change(open_store, lambda c: lose(c, run.run_id, 1100))
    async with serve(recover="auto", reconcile_s=0.1) as client:
        after = await at_rest(client, run.run_id)
    assert (after.state, after.counts) == (RunState.COMPLETED, run.counts)
    with engine.connect() as connection:
        assert {row.shard_index: row.epoch for row in connection.execute(epochs)} == {0: before[0], 1: before[1] + 1}


async def test_rows_that_belong_to_no_shard_fail_the_run(
    serve: Serve, settings_of: SettingsOf, open_store: OpenStore
) -> None:
    """Where no shard can be reopened the run ends and says what is missing, in place of a pause without end."""
    async with serve() as client:
        run = await completed(client, settings_of(), 1200)

    def damage(connection: sa.Connection) -> None:
        lose(connection, run.run_id, 1100)
        table = schema.shards
        connection.execute(table.delete().where(table.c.run_id == run.run_id, table.c.shard_index == 1))

    await change(open_store, damage)
    async with serve(recover="auto", reconcile_s=0.1) as client:
        after = await at_rest(client, run.run_id)
    assert after.state is RunState.FAILED
    assert "1199 of 1200 rows are stored and no shard lacks any" in after.state_message
    assert "start a new run" in after.state_message


@pytest.mark.parametrize("state", list(RunState))
async def test_only_a_run_that_is_active_is_reopened(
    serve: Serve, settings_of: SettingsOf, open_store: OpenStore, engine: sa.Engine, state: RunState
) -> None:
    """A run that was paused, cancelled or concluded meanwhile keeps its shards; its counts are not touched either."""
    async with serve() as client:
        run = await completed(client, settings_of(), 3)
    found: list[bool] = []

    def reopen(connection: sa.Connection) -> None:
        lose(connection, run.run_id, 1)
        runs.change_state(connection, run.run_id, state, cause=PauseCause.OWNER if state is RunState.PAUSED else None)
        found.extend(control.reopen_incomplete(connection, run.run_id) for _ in range(2))

    await change(open_store, reopen)
    active = state in ACTIVE_STATES
    assert found == [active, False]
    with engine.connect() as connection:
        assert connection.execute(sa.select(schema.shards.c.state)).scalars().all() == ["waiting" if active else "done"]
        assert connection.execute(sa.select(schema.runs.c.finished_count)).scalar_one() == (2 if active else 3)
