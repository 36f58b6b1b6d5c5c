"""Active runs: how many there may be, and how those without a host pause and resume."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes.waiting import until

from assay.agent_host.caller import AgentCaller
from assay.errors import OverloadedError
from assay.model.case import Case, Turn
from assay.model.run import PauseCause, Run, RunState, StateChanged
from assay.model.scope import LOCAL
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs import attendance

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import RunSpec
    from assay.storage.database import Database

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.client.client import Client
    from assay.model.run import RunSpec

    ServeAt = Callable[..., AbstractAsyncContextManager[Client]]


CASES = [Case(f"c{n}", (Turn("q", references=("a",)),)) for n in range(3)]
LONG_AGO = "2020-01-01T00:00:00.000Z"


async def hosted_run(client: Client, settings: RunSpec) -> Run:
    """Return a run that waits for its host."""
    dataset = await client.upload_dataset(CASES, name="d")
    return await client.create_run(settings, dataset.dataset_id)


async def reached(client: Client, run_id: str, state: RunState) -> Run:
    """Return a run once it is in a state."""
    run: Run = await until(lambda: client.get_run(run_id), lambda run: run.state is state)
    return run


async def test_a_run_without_a_host_pauses_and_the_next_host_continues_it(
    serve: Serve, settings_of: SettingsOf
) -> None:
    """It says why, makes room for another run, and ends well once a client hosts its agent after all."""
    async with serve(active_run_limit=1) as client:
        run = await hosted_run(client, settings_of("python", "m:f"))
        with pytest.raises(OverloadedError):
            await hosted_run(client, settings_of("python", "m:f"))
    async with serve(unattended_pause_s=1.0, active_run_limit=1, recover="auto") as client:
        paused = await reached(client, run.run_id, RunState.PAUSED)
        assert paused.pause_cause is PauseCause.UNATTENDED
        assert "no client has hosted the run's agent" in paused.state_message
        other = await hosted_run(client, settings_of())
        await reached(client, other.run_id, RunState.COMPLETED)
        hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(lambda _: "a"), concurrency=1))
        done = await reached(client, run.run_id, RunState.COMPLETED)
        await hosting
    assert (done.counts.passed_count, done.pause_cause) == (3, None)


async def test_a_run_without_a_host_can_be_resumed_by_request(serve: Serve, settings_of: SettingsOf) -> None:
    """ResumeRun gives it as long again."""
    async with serve(unattended_pause_s=1.0) as client:
        run = await hosted_run(client, settings_of("python", "m:f"))
        await reached(client, run.run_id, RunState.PAUSED)
        await client.resume_run(run.run_id)
        states: list[RunState] = []
        async for event in client.watch_run(run.run_id):
            if isinstance(event, StateChanged):
                states.append(event.state)
            if states.count(RunState.PAUSED) == 2:
                break
    assert states[-3:] == [RunState.PAUSED, RunState.RUNNING, RunState.PAUSED]


@pytest.mark.parametrize(
    ("changes", "is_paused"),
    [
        ({}, True),
        ({"attended_at": None, "created_at": LONG_AGO}, True),
        ({"attended_at": "9999-01-01T00:00:00.000Z"}, False),
        ({"attended_at": None, "created_at": "9999-01-01T00:00:00.000Z"}, False),
        ({"hosted": False}, False),
        ({"pause_cause": "owner"}, False),
        ({"state": "paused"}, False),
        ({"state": "completed"}, False),
    ],
)
async def test_only_a_hosted_run_that_nothing_hosts_is_paused(
    serve: Serve, settings_of: SettingsOf, open_store: Callable[[], Database], changes: dict[str, Any], is_paused: bool
) -> None:
    """A host anywhere, noted in the database, keeps it going; runs of other agents need none."""
    async with serve() as client:
        run_id = (await hosted_run(client, settings_of("python", "m:f"))).run_id
    store = open_store()
    try:
        values = {"attended_at": LONG_AGO, **changes}
        await store.write(lambda c: c.execute(schema.runs.update().values(**values)))
        expected = [run_id] if is_paused else []
        assert await store.write(lambda c: attendance.pause_unattended(c, 60.0)) == expected
        assert await store.write(lambda c: attendance.pause_unattended(c, 60.0)) == []
        assert await store.write(lambda c: attendance.attend(c, LOCAL, run_id)) is is_paused
    finally:
        store.close()


async def test_a_run_that_awaits_ordered_verdicts_needs_no_host(
    serve: Serve, settings_of: SettingsOf, open_store: Callable[[], Database]
) -> None:
    """All its questions are answered: its host may leave for the hours that a provider's batch takes."""
    async with serve() as client:
        await hosted_run(client, settings_of("python", "m:f"))
    store = open_store()
    try:
        await store.write(lambda c: c.execute(schema.runs.update().values(attended_at=LONG_AGO)))
        await store.write(lambda c: c.execute(schema.shards.update().values(state="ordered")))
        assert await store.write(lambda c: attendance.pause_unattended(c, 60.0)) == []
    finally:
        store.close()


LIMIT = 3
ONE_CASE = [Case("c", (Turn("q", references=("a",)),))]


async def test_exactly_as_many_runs_as_the_limit_are_accepted(
    serve_at: ServeAt, tmp_path: Path, database_url: str, settings_of: Callable[..., RunSpec]
) -> None:
    """The next one is refused until one has ended or is paused; a repeated request for one that there is, is not."""
    async with serve_at(tmp_path, database_url=database_url, active_run_limit=LIMIT) as client:
        dataset = await client.upload_dataset(ONE_CASE, name="d")
        wanted = settings_of("python", "m:f")
        made = [await client.create_run(wanted, dataset.dataset_id, request_id=f"r{i}") for i in range(LIMIT)]
        with pytest.raises(OverloadedError, match="3 runs are active, which is the limit"):
            await client.create_run(wanted, dataset.dataset_id)
        assert (await client.create_run(wanted, dataset.dataset_id, request_id="r0")).run_id == made[0].run_id
        await client.pause_run(made[0].run_id)
        await client.create_run(wanted, dataset.dataset_id)
        with pytest.raises(OverloadedError):
            await client.create_run(wanted, dataset.dataset_id)


async def test_runs_that_are_created_at_once_keep_to_the_limit(
    serve_at: ServeAt, tmp_path: Path, database_url: str, settings_of: Callable[..., RunSpec]
) -> None:
    """Also where they come to several processes: what was counted is still so when a run is stored."""
    async with AsyncExitStack() as stack:
        clients = []
        for name in ("a", "b") if database_url else ("a",):
            (tmp_path / name).mkdir()
            serving = serve_at(tmp_path / name, database_url=database_url, active_run_limit=LIMIT)
            clients.append(await stack.enter_async_context(serving))
        dataset = await clients[0].upload_dataset(ONE_CASE, name="d")
        wanted = settings_of("python", "m:f")
        outcomes = await asyncio.gather(
            *(clients[i % len(clients)].create_run(wanted, dataset.dataset_id) for i in range(4 * LIMIT)),
            return_exceptions=True,
        )
        assert len(await clients[0].list_runs()) == LIMIT
    assert sum(isinstance(outcome, Run) for outcome in outcomes) == LIMIT
    assert sum(isinstance(outcome, OverloadedError) for outcome in outcomes) == 3 * LIMIT
