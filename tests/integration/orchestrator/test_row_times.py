"""What is stored of the time of a row, and the rows of one case."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from assay.agent_host.caller import AgentCaller
from assay.errors import NotFoundError
from assay.model.case import Case, Turn
from assay.model.run import RunState

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import Run, RunSettings

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSettings]

CASES = [Case(f"c{number}", (Turn(f"q{number}", references=("a",)),)) for number in range(3)]


async def hosted(client: Client, settings: RunSettings, agent: Callable[[str], str]) -> Run:
    """Run with an agent on this side, to the end."""
    dataset = await client.upload_dataset(CASES, name="d")
    run = await client.create_run(settings, dataset.dataset_id)
    caller = AgentCaller(agent)
    await asyncio.gather(client.host_agent(run.run_id, caller, concurrency=2), _watched(client, run.run_id))
    return await client.get_run(run.run_id)


async def _watched(client: Client, run_id: str) -> None:
    async for _ in client.watch_run(run_id):
        pass


async def test_a_row_says_when_it_began_and_how_long_all_of_it_took(serve: Serve, settings_of: SettingsOf) -> None:
    """Its start lies within the run's; the whole takes no less than all attempts at the answer together."""
    failed: set[str] = set()

    def agent(question: str) -> str:
        if question not in failed:
            failed.add(question)
            raise OSError("the first time")
        return "a"

    async with serve() as client:
        run = await hosted(client, settings_of("python", "agent:answer", retries=1, concurrency=2), agent)
        rows = [row async for row in client.list_results(run.run_id)]
        attempts = await client.list_attempts(run.run_id, "c1")
    assert run.state is RunState.SUCCEEDED
    for row in rows:
        began = datetime.fromisoformat(row.started_at)
        assert datetime.fromisoformat(run.created_at) <= began <= datetime.fromisoformat(run.ended_at)
        assert row.response is not None
        assert row.duration_ms is not None
        assert row.latency_ms is not None
        assert row.duration_ms >= row.latency_ms + sum(attempt.latency_ms for attempt in row.response.attempts) > 0
        assert "the first time" in row.response.attempts[0].error.traceback
    assert attempts[0].result is not None
    assert attempts[0].result.duration_ms == rows[1].duration_ms


async def test_a_result_that_is_set_aside_keeps_its_times(serve: Serve, settings_of: SettingsOf) -> None:
    """A retry has times of its own, and the attempt before it keeps those it had."""

    def broken(question: str) -> str:
        raise KeyError("no")

    async with serve() as client:
        settings = settings_of("python", "agent:answer", retries=0, concurrency=2)
        run = await hosted(client, settings, broken)
        before = [row async for row in client.list_results(run.run_id, case_id="c2")]
        await client.resume_run(run.run_id, retry_errors=True)
        caller = AgentCaller(lambda question: "a")
        await asyncio.gather(client.host_agent(run.run_id, caller, concurrency=2), _watched(client, run.run_id))
        attempts = [attempt.result for attempt in await client.list_attempts(run.run_id, "c2")]
    assert [one.started_at for one in attempts[:1] if one is not None] == [before[0].started_at]
    assert attempts[0] is not None
    assert attempts[1] is not None
    assert attempts[0].duration_ms == before[0].duration_ms
    assert attempts[1].started_at >= attempts[0].started_at


async def test_the_rows_of_one_case_are_read_alone(serve: Serve, settings_of: SettingsOf) -> None:
    """Every repeat with question, answer and references; with `failed_only` none of a case that passed."""
    async with serve() as client:
        run = await hosted(
            client, settings_of("python", "agent:answer"), lambda question: "a" if question == "q1" else "b"
        )
        for case_id, failed_only, expected in (("c1", False, 1), ("c1", True, 0), ("c2", True, 1), ("", False, 3)):
            rows = [row async for row in client.list_results(run.run_id, case_id=case_id, failed_only=failed_only)]
            assert len(rows) == expected
            assert {row.case_id for row in rows} <= {case_id or row.case_id for row in rows}
        (row,) = [row async for row in client.list_results(run.run_id, case_id="c1")]
        assert (row.case_id, row.input, row.references) == ("c1", "q1", ("a",))
        with pytest.raises(NotFoundError, match="no case 'c9'"):
            _ = [row async for row in client.list_results(run.run_id, case_id="c9")]
