"""Shards that count as done while rows of them are missing, as after damage or an earlier version's defect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from tests.support.processes.waiting import until

from assay.agent_host.caller import AgentCaller
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import CaseResult, PauseCause, Run, RunState, StateChange
from assay_orchestrator.store import control, schema
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.runs.lifecycle import ACTIVE_STATES

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import RunSettings
    from assay.storage.database import Database

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSettings]
    OpenStore = Callable[[], Database]


def cases(count: int) -> list[Case]:
    """Return cases with a recorded answer, which is right."""
    return [
        Case(f"c{i}", (Turn(f"q{i}", references=(f"a{i}",)),), recorded=AgentResponse(text=f"a{i}"))
        for i in range(count)
    ]


async def succeeded(client: Client, settings: RunSettings, count: int) -> Run:
    """Return a run over some cases that has succeeded."""
    dataset = await client.upload_dataset(cases(count), name="d")
    run = await client.create_run(settings, dataset.dataset_id)
    done: Run = await until(lambda: client.get_run(run.run_id), lambda run: run.finished)
    assert done.state is RunState.SUCCEEDED
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
        before = await succeeded(client, settings_of(), 20)
    await change(open_store, lambda c: lose(c, before.run_id, 0, 7, 19))
    async with serve(recover="auto", reconcile_s=0.1) as client:
        after = await at_rest(client, before.run_id)
        rows = [row.case_id async for row in client.list_results(before.run_id)]
        events = [event async for event in client.watch_run(before.run_id) if not isinstance(event, Run)]
    assert (after.state, after.state_reason) == (RunState.SUCCEEDED, "")
    assert after.counts == before.counts
    assert rows == [f"c{i}" for i in range(20)]
    assert sorted(event.case_id for event in events if isinstance(event, CaseResult)) == sorted(rows)
    states = [event.state for event in events if isinstance(event, StateChange)]
    assert states == [RunState.RUNNING, RunState.SUCCEEDED, RunState.RUNNING, RunState.SUCCEEDED]
    assert after.summary is not None
    assert before.summary is not None
    assert (after.summary.row_count, after.summary.passed) == (before.summary.row_count, before.summary.passed)


async def test_only_questions_without_a_stored_answer_are_asked(
    serve: Serve, settings_of: SettingsOf, open_store: OpenStore
) -> None:
    """A missing row whose answer is stored is scored again; of the others each is asked once."""
    asked: list[str] = []

    async def agent(request: AgentRequest) -> str:
        asked.append(request.case_id)
        return "a" + request.input[1:]

    async with serve() as client:
        dataset = await client.upload_dataset(cases(10), name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        await client.host_agent(run.run_id, AgentCaller(agent), concurrency=4)
        before = await at_rest(client, run.run_id)
    assert before.state is RunState.SUCCEEDED
    asked.clear()

    def damage(connection: sa.Connection) -> None:
        lose(connection, run.run_id, 2, 4, 6)
        forget_answers(connection, run.run_id, 4, 6)

    await change(open_store, damage)
    async with serve(recover="auto", reconcile_s=0.1) as client:
        await client.host_agent(run.run_id, AgentCaller(agent), concurrency=4)
        after = await at_rest(client, run.run_id)
    assert (after.state, after.counts) == (RunState.SUCCEEDED, before.counts)
    assert sorted(asked) == ["c4", "c6"]


async def test_shards_that_lack_nothing_stay_done(
    serve: Serve, settings_of: SettingsOf, open_store: OpenStore, engine: sa.Engine
) -> None:
    """Of a run with several shards those alone are started again that lack rows."""
    table = schema.shards
    epochs = sa.select(table.c.shard_index, table.c.epoch).order_by(table.c.shard_index)
    async with serve() as client:
        run = await succeeded(client, settings_of(), 1200)
    with engine.connect() as connection:
        before = {row.shard_index: row.epoch for row in connection.execute(epochs)}
    assert len(before) == 2
    await change(open_store, lambda c: lose(c, run.run_id, 1100))
    async with serve(recover="auto", reconcile_s=0.1) as client:
        after = await at_rest(client, run.run_id)
    assert (after.state, after.counts) == (RunState.SUCCEEDED, run.counts)
    with engine.connect() as connection:
        assert {row.shard_index: row.epoch for row in connection.execute(epochs)} == {0: before[0], 1: before[1] + 1}


async def test_rows_that_belong_to_no_shard_fail_the_run(
    serve: Serve, settings_of: SettingsOf, open_store: OpenStore
) -> None:
    """Where no shard can be reopened the run ends and says what is missing, in place of a pause without end."""
    async with serve() as client:
        run = await succeeded(client, settings_of(), 1200)

    def damage(connection: sa.Connection) -> None:
        lose(connection, run.run_id, 1100)
        table = schema.shards
        connection.execute(table.delete().where(table.c.run_id == run.run_id, table.c.shard_index == 1))

    await change(open_store, damage)
    async with serve(recover="auto", reconcile_s=0.1) as client:
        after = await at_rest(client, run.run_id)
    assert after.state is RunState.FAILED
    assert "1199 of 1200 rows are stored and no shard lacks any" in after.state_reason
    assert "start a new run" in after.state_reason


@pytest.mark.parametrize("state", list(RunState))
async def test_only_a_run_that_is_active_is_reopened(
    serve: Serve, settings_of: SettingsOf, open_store: OpenStore, engine: sa.Engine, state: RunState
) -> None:
    """A run that was paused, cancelled or concluded meanwhile keeps its shards; its counts are not touched either."""
    async with serve() as client:
        run = await succeeded(client, settings_of(), 3)
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
