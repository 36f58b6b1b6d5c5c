"""Pausing and resuming runs, through the real wire and a real database."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes import waiting

from assay.agent_host.caller import AgentCaller
from assay.errors import NotFoundError, WrongStateError
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import PauseCause, Run, RunState, StateChanged
from assay_cli.commands.runs.follow import state_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import RunSpec

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]


class GatedAgent:
    """Answers every question right, once it is let go on."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.busy = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def __call__(self, request: AgentRequest) -> str:
        """Answer a question."""
        self.asked.append(f"{request.case_id}/{request.turn_index}")
        self.busy.set()
        await self.may_answer.wait()
        return "a" + request.input[1:]


def cases(count: int, turns: int = 1) -> list[Case]:
    """Return cases whose right answers a GatedAgent gives."""
    return [
        Case(
            f"c{i}",
            tuple(Turn(f"q{i}", references=(f"a{i}",)) for _ in range(turns)),
            recordings=((AgentResponse(text=f"a{i}"),),),
        )
        for i in range(count)
    ]


@asynccontextmanager
async def hosting(client: Client, run: Run, agent: Callable[[AgentRequest], Awaitable[Any]]) -> AsyncIterator[None]:
    """Answer a run's questions for the length of a block."""
    task = asyncio.ensure_future(
        client.host_agent(run.run_id, AgentCaller(agent), concurrency=run.spec.agent.concurrency)
    )
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def started(client: Client, settings: RunSpec, content: list[Case]) -> Run:
    """Create a run over some cases."""
    dataset = await client.upload_dataset(content, name="d")
    return await client.create_run(settings, dataset.dataset_id)


async def until(client: Client, run_id: str, *states: RunState) -> Run:
    """Wait until a run is in one of some states."""
    async for event in client.watch_run(run_id):
        if isinstance(event, Run | StateChanged) and event.state in states:
            run = await client.get_run(run_id)
            if run.state in states:
                return run
    return await client.get_run(run_id)


async def until_pausing(client: Client, run: Run) -> None:
    """Wait until a run knows that it is to be paused."""
    await waiting.until(lambda: client.get_run(run.run_id), lambda seen: seen.state is RunState.PAUSING)


async def test_what_is_in_flight_ends_and_nothing_new_is_asked(serve: Serve, settings_of: SettingsOf) -> None:
    """A pause stores the answers in flight and asks no more; after the resume each case has been asked once."""
    agent = GatedAgent()
    async with serve() as client:
        run = await started(client, settings_of("python", "m:f", concurrency=4), cases(40))
        async with hosting(client, run, agent):
            while len(agent.asked) < 4:
                agent.busy.clear()
                await agent.busy.wait()
            pausing = asyncio.ensure_future(client.pause_run(run.run_id))
            await until_pausing(client, run)
            assert [listed.run_id for listed in await client.list_runs(where="state:pausing")] == [run.run_id]
            agent.may_answer.set()
            paused = await pausing
        assert (paused.state, paused.pause_cause) == (RunState.PAUSED, PauseCause.OWNER)
        assert paused.state_message == "requested by its owner"
        assert paused.counts.finished_count == len(agent.asked) < 40
        assert (await client.pause_run(run.run_id)).last_sequence == paused.last_sequence
        resumed = await client.resume_run(run.run_id)
        assert (resumed.state, resumed.pause_cause, resumed.state_message) == (RunState.RUNNING, None, "")
        async with hosting(client, run, agent):
            done = await until(client, run.run_id, RunState.COMPLETED)
            changes = [event async for event in client.watch_run(run.run_id) if isinstance(event, StateChanged)]
    assert done.counts.passed_count == 40
    assert [(change.state, change.pause_cause) for change in changes] == [
        (RunState.RUNNING, None),
        (RunState.PAUSING, PauseCause.OWNER),
        (RunState.PAUSED, PauseCause.OWNER),
        (RunState.RUNNING, None),
        (RunState.COMPLETED, None),
    ]
    assert [changes[at].counts for at in (2, 4)] == [paused.counts, done.counts]
    assert sorted(agent.asked) == sorted(f"c{i}/0" for i in range(40))


async def test_a_pause_does_not_wait_for_a_client_that_is_not_there(serve: Serve, settings_of: SettingsOf) -> None:
    """Questions that no client has taken come back unasked: the run is paused at once, its clients are let go."""
    async with serve() as client:
        run = await started(client, settings_of("python", "m:f"), cases(5))
        paused = await client.pause_run(run.run_id)
        assert (paused.state, paused.counts.finished_count) == (RunState.PAUSED, 0)
        await client.resume_run(run.run_id)
        agent = GatedAgent()
        agent.may_answer.set()
        async with hosting(client, run, agent):
            assert (await until(client, run.run_id, RunState.COMPLETED)).counts.passed_count == 5


async def test_later_turns_wait_for_the_resume(serve: Serve, settings_of: SettingsOf) -> None:
    """A conversation is paused between two turns: the turn that was answered is stored, the next is asked later."""
    agent = GatedAgent()
    async with serve() as client:
        run = await started(client, settings_of("python", "m:f"), cases(1, turns=3))
        async with hosting(client, run, agent):
            await agent.busy.wait()
            pausing = asyncio.ensure_future(client.pause_run(run.run_id))
            await until_pausing(client, run)
            agent.may_answer.set()
            assert (await pausing).state is RunState.PAUSED
            assert agent.asked == ["c0/0"]
        paused = await client.get_run(run.run_id)
        assert (paused.counts.finished_count, paused.counts.answered_count) == (0, 1)
        assert "0/1 rows, 1 further answer stored, 0 passed" in state_line(paused)
        assert [listed.counts.answered_count for listed in await client.list_runs(1)] == [1]
        await client.resume_run(run.run_id)
        async with hosting(client, run, agent):
            await until(client, run.run_id, RunState.COMPLETED)
    assert agent.asked == ["c0/0", "c0/1", "c0/2"]


async def test_a_restart_does_not_resume_what_its_owner_paused(serve: Serve, settings_of: SettingsOf) -> None:
    """With recover="auto" an interrupted run goes on by itself, a paused one waits for its owner."""
    async with serve() as client:
        paused = await started(client, settings_of("python", "m:f"), cases(3))
        interrupted = await started(client, settings_of("python", "m:g"), cases(3))
        await client.pause_run(paused.run_id)
        agent = GatedAgent()
        async with hosting(client, interrupted, agent):
            await agent.busy.wait()
    async with serve(recover="auto") as client:
        assert (await client.get_run(interrupted.run_id)).state is not RunState.PAUSED
        found = await client.get_run(paused.run_id)
        assert (found.state, found.pause_cause) == (RunState.PAUSED, PauseCause.OWNER)
        assert (await client.resume_run(paused.run_id)).state is RunState.RUNNING


async def test_a_stop_while_questions_end_does_not_forget_the_pause(serve: Serve, settings_of: SettingsOf) -> None:
    """An orchestrator that stops before the last question in flight has ended pauses the run when it starts again."""
    agent = GatedAgent()
    async with serve() as client:
        run = await started(client, settings_of("python", "m:f"), cases(3))
        async with hosting(client, run, agent):
            await agent.busy.wait()
            pausing = asyncio.ensure_future(client.pause_run(run.run_id))
            await until_pausing(client, run)
            pausing.cancel()
            await asyncio.gather(pausing, return_exceptions=True)
    async with serve(recover="auto") as client:
        found = await client.get_run(run.run_id)
        assert (found.state, found.pause_cause) == (RunState.PAUSED, PauseCause.OWNER)


async def test_only_unfinished_runs_are_paused(serve: Serve, settings_of: SettingsOf) -> None:
    """Pausing what has ended, or does not exist, is refused with a sentence."""
    async with serve() as client:
        run = await started(client, settings_of(), cases(3))
        await until(client, run.run_id, RunState.COMPLETED)
        with pytest.raises(WrongStateError, match="already completed"):
            await client.pause_run(run.run_id)
        with pytest.raises(NotFoundError, match="no run"):
            await client.pause_run("nope")


async def test_a_run_whose_rows_all_end_while_it_pauses_has_completed(serve: Serve, settings_of: SettingsOf) -> None:
    """Where nothing is left to ask, a pause comes too late, and the run ends as ever."""
    agent = GatedAgent()
    async with serve() as client:
        run = await started(client, settings_of("python", "m:f"), cases(1))
        async with hosting(client, run, agent):
            await agent.busy.wait()
            pausing = asyncio.ensure_future(client.pause_run(run.run_id))
            await until_pausing(client, run)
            agent.may_answer.set()
            done = await pausing
    assert (done.state, done.pause_cause, done.counts.passed_count) == (RunState.COMPLETED, None, 1)


async def test_an_interruption_is_told_from_a_pause(serve: Serve, settings_of: SettingsOf, database_url: str) -> None:
    """What a stop interrupted has a cause of its own, by which clients know that they may resume it.

    A database that several processes share has none of it: whoever is there goes on.
    """
    async with serve() as client:
        run = await started(client, settings_of("python", "m:f"), cases(3))
        agent = GatedAgent()
        async with hosting(client, run, agent):
            await agent.busy.wait()
    async with serve(**({} if database_url else {"recover": "on-request"})) as client:
        found = await client.get_run(run.run_id)
        assert found.pause_cause is (None if database_url else PauseCause.INTERRUPTED)
        assert found.state is (RunState.RUNNING if database_url else RunState.PAUSED)


async def test_a_run_that_is_paused_leaves_its_agent_to_another(serve: Serve, settings_of: SettingsOf) -> None:
    """Both may ask one question at once: the other run begins where the first has left, and the first is paused."""
    first_agent, other_agent = GatedAgent(), GatedAgent()
    async with serve(agent_limits={"m:f": 1}) as client:
        settings = settings_of("python", "m:f", concurrency=1)
        first, other = [await started(client, settings, cases(3)) for _ in range(2)]
        async with hosting(client, first, first_agent), hosting(client, other, other_agent):
            await first_agent.busy.wait()
            pausing = asyncio.ensure_future(client.pause_run(first.run_id))
            await waiting.until(lambda: client.get_run(first.run_id), lambda run: run.pause_cause is PauseCause.OWNER)
            assert other_agent.asked == []
            first_agent.may_answer.set()
            await pausing
            assert (await client.get_run(first.run_id)).state is RunState.PAUSED
            other_agent.may_answer.set()
            await until(client, other.run_id, RunState.COMPLETED)
    assert len(other_agent.asked) == 3
