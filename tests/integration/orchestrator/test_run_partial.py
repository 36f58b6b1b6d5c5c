"""Summaries over the rows that a run has so far; real wire, real database."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from tests.support.services.ended_runs import await_end

from assay.agent_host.caller import AgentCaller
from assay.model.case import Case, Turn
from assay.model.run import Run, RunState
from assay.model.scope import LOCAL
from assay_orchestrator.runs.catalogue import Catalogue
from assay_orchestrator.summary.partial import PartialSummaries

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import RunSpec
    from assay.storage.database import Database

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]


async def stopped_after(client: Client, settings: RunSpec, count: int) -> Run:
    """Pause a run of ten cases after some of them, which all passed but the first."""
    left = asyncio.Event()

    async def agent(request: AgentRequest) -> str:
        if request.case_id == f"c{count}":
            left.set()
            await asyncio.Event().wait()
        return "wrong" if request.case_id == "c0" else "a" + request.input[1:]

    cases = [Case(f"c{i}", (Turn(f"q{i}", references=(f"a{i}",)),)) for i in range(10)]
    dataset = await client.upload_dataset(cases, name="d")
    run = await client.create_run(settings, dataset.dataset_id)
    hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=1))
    await left.wait()
    async for _ in client.watch_run(run.run_id):
        if (await client.get_run(run.run_id, partial=False)).counts.finished_count == count:
            break
    pausing = asyncio.ensure_future(client.pause_run(run.run_id))
    hosting.cancel()
    await asyncio.gather(hosting, return_exceptions=True)
    return await pausing


async def test_an_unfinished_run_has_a_partial_summary(serve: Serve, settings_of: SettingsOf) -> None:
    """GetRun sums up the rows there are and says so; whoever asks often leaves it out; the final one is not partial."""
    async with serve() as client:
        settings = settings_of("python", "m:f", concurrency=1)
        run = await stopped_after(client, settings, 4)
        assert (run.state, run.counts.finished_count) == (RunState.PAUSED, 4)
        assert (await client.get_run(run.run_id, partial=False)).summary is None
        summary = (await client.get_run(run.run_id)).summary
        assert summary is not None
        assert (summary.partial, summary.row_count, summary.passed_count, summary.decided_count) == (True, 4, 3, 4)
        assert summary.metrics[0].value == 0.75
        (listed,) = await client.list_runs()
        assert listed.summary is None
        await client.resume_run(run.run_id)
        hosting = asyncio.ensure_future(
            client.host_agent(run.run_id, AgentCaller(lambda request: "a" + request.input[1:]), concurrency=1)
        )
        await await_end(client, run.run_id)
        await hosting
        done = (await client.get_run(run.run_id)).summary
    assert done is not None
    assert (done.partial, done.row_count, done.passed_count) == (False, 10, 9)


async def test_a_run_without_rows_has_no_summary_and_a_cancelled_one_keeps_its_partial(
    serve: Serve, settings_of: SettingsOf
) -> None:
    """There is nothing to sum up before the first row; what a cancelled run has stays visible, as partial."""
    async with serve() as client:
        run = await stopped_after(client, settings_of("python", "m:f", concurrency=1), 2)
        cancelled = await client.cancel_run(run.run_id)
        summary = (await client.get_run(cancelled.run_id)).summary
        assert summary is not None
        assert (summary.partial, summary.row_count) == (True, 2)
        empty = await client.create_run(settings_of("python", "m:f"), run.dataset.dataset_id)
        assert (await client.get_run(empty.run_id)).summary is None


async def test_a_partial_summary_is_folded_at_most_once_a_second(
    serve: Serve, settings_of: SettingsOf, open_store: Callable[[], Database]
) -> None:
    """The same rows are never folded twice, new rows not within a second, and many askers share one fold."""
    async with serve() as client:
        run = await stopped_after(client, settings_of("python", "m:f", concurrency=1), 3)
    database, clock = open_store(), [0.0]
    try:
        partial = PartialSummaries(database, clock=lambda: clock[0])
        run = await Catalogue(database).get(LOCAL, run.run_id)
        first, second = await asyncio.gather(partial.of(run), partial.of(run))
        assert first is second
        clock[0] = 100.0
        assert await partial.of(run) is first
        moved = dataclasses.replace(run, last_sequence=run.last_sequence + 1)
        again = await partial.of(moved)
        assert again is not first
        clock[0] += 0.9
        later = dataclasses.replace(run, last_sequence=run.last_sequence + 2)
        assert await partial.of(later) is again
        clock[0] += 0.2
        assert await partial.of(later) is not again
    finally:
        database.close()
