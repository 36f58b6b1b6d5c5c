"""A run whose PostgreSQL is killed in the middle."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from assay.agent_host.caller import AgentCaller
from assay.errors import AssayError
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import RowResult, Run, RunState

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.client.client import Client
    from assay.model.answers.agent_response import AgentRequest

_CASES = 400


@pytest.fixture
def database_url(killable_postgres: Any) -> str:
    """Return the URL of a server that may be killed; `serve` stores there."""
    return str(killable_postgres.url)


class _Agent:
    """Counts how often it is asked for each case, and reports when it has been asked often enough."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.enough = asyncio.Event()

    async def __call__(self, request: AgentRequest) -> str:
        self.asked.append(request.case_id)
        if len(self.asked) >= _CASES // 4:
            self.enough.set()
        return "a" + request.input[1:]


async def _watch(client: Client, run_id: str, seen: dict[int, str]) -> None:
    """Note every result that is acknowledged, until the watch breaks, or the run stops or ends."""
    try:
        async for event in client.watch_run(run_id, after_sequence=max(seen, default=0)):
            if not isinstance(event, Run):
                assert event.sequence not in seen
                seen[event.sequence] = event.case_id if isinstance(event, RowResult) else ""
            if not isinstance(event, RowResult) and event.state is RunState.PAUSED:
                return
    except AssayError:
        pass  # the database is away


async def _has_completed(client: Client, run_id: str) -> bool:
    """Return whether a run has ended well, as far as the database says it."""
    try:
        return (await client.get_run(run_id)).state is RunState.COMPLETED
    except AssayError:
        return False  # the database is away


def _stored(url: str) -> tuple[set[str], set[str]]:
    """Return the cases that have an answer, and those that have a result."""
    with psycopg.connect(url) as connection:
        answered = connection.execute(
            "SELECT case_json FROM answers JOIN runs USING (run_id) JOIN datasets USING (dataset_id) "
            "JOIN dataset_cases USING (upload_id, case_index)"
        ).fetchall()
        finished = connection.execute("SELECT case_id FROM result_rows").fetchall()
    return {json.loads(text)["case_id"] for (text,) in answered}, {case_id for (case_id,) in finished}


@pytest.fixture
def cases() -> list[Case]:
    """Return cases that the agent answers rightly."""
    return [
        Case(f"c{i}", (Turn(f"q{i}", references=(f"a{i}",)),), recordings=((AgentResponse(text=""),),))
        for i in range(_CASES)
    ]


async def test_an_outage_is_not_noticed(
    serve: Callable[..., Any], settings_of: Callable[..., Any], killable_postgres: Any, cases: list[Case]
) -> None:
    """Killed and started again while a run goes on, PostgreSQL is waited for: no pause, nothing lost or asked twice.

    That holds where it is away for longer than a process may be silent: nobody was there to take its work.
    """
    agent, seen = _Agent(), dict[int, str]()
    async with serve(database_patience_s=1e6, dead_after_s=1.0) as client:
        dataset = await client.upload_dataset(cases, name="d")
        run = await client.create_run(settings_of("python", "m:f", concurrency=4), dataset.dataset_id)
        hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=4))
        watching = asyncio.ensure_future(_watch(client, run.run_id, seen))
        await agent.enough.wait()
        killable_postgres.kill()
        await asyncio.sleep(1.5)  # longer than a worker may be silent
        await asyncio.to_thread(killable_postgres.start)
        await watching
        await hosting
        run = await client.get_run(run.run_id)
    assert run.state is RunState.COMPLETED
    assert sorted(agent.asked) == sorted(case.case_id for case in cases)
    assert sorted(seen) == list(range(1, _CASES + 2 + 1))  # the results, running, completed


async def test_nothing_acknowledged_is_lost(
    serve: Callable[..., Any], settings_of: Callable[..., Any], killable_postgres: Any, cases: list[Case]
) -> None:
    """Without patience, work breaks off when PostgreSQL is killed; what a watcher saw is there when it is back.

    The run then goes on by itself. An answer that was not stored yet when the server died is asked for once more, and
    no more than once.
    """
    agent, seen = _Agent(), dict[int, str]()
    async with serve(database_patience_s=0) as client:
        dataset = await client.upload_dataset(cases, name="d")
        run = await client.create_run(settings_of("python", "m:f", concurrency=4), dataset.dataset_id)
        hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=4))
        watching = asyncio.ensure_future(_watch(client, run.run_id, seen))
        await agent.enough.wait()
        while not any(seen.values()):
            await client.get_run(run.run_id)
        killable_postgres.kill()
        acknowledged = {case_id for case_id in seen.values() if case_id}
        assert 0 < len(acknowledged) < _CASES
        await asyncio.to_thread(killable_postgres.start)
        answered, results = _stored(killable_postgres.url)
        assert acknowledged <= results <= answered
        await watching
        while not await _has_completed(client, run.run_id):
            await _watch(client, run.run_id, seen)
        await _watch(client, run.run_id, seen)
        await hosting
        run = await client.get_run(run.run_id)
    assert run.state is RunState.COMPLETED
    assert (run.counts.finished_count, run.counts.passed_count) == (_CASES, _CASES)
    assert sorted(seen) == list(range(1, len(seen) + 1))
    assert sorted(case_id for case_id in seen.values() if case_id) == sorted(case.case_id for case in cases)
    assert all(agent.asked.count(case_id) == 1 for case_id in acknowledged)
    assert max(agent.asked.count(case.case_id) for case in cases) <= 2


async def test_a_stop_does_not_wait_for_a_database_that_is_away(
    serve: Callable[..., Any], settings_of: Callable[..., Any], killable_postgres: Any, cases: list[Case]
) -> None:
    """What is under way cannot be stored or given back any more: the process ends all the same."""
    agent = _Agent()
    async with serve(database_patience_s=0, grace_s=1.0) as client:
        dataset = await client.upload_dataset(cases, name="d")
        run = await client.create_run(settings_of("python", "m:f", concurrency=4), dataset.dataset_id)
        hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=4))
        await agent.enough.wait()
        killable_postgres.kill()
        hosting.cancel()
        await asyncio.gather(hosting, return_exceptions=True)
