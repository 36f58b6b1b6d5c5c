"""An embedded orchestrator whose database file is away for a while: nothing is asked twice, and the run resumes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.support.processes.waiting import until

from assay.agent_host.caller import AgentCaller
from assay.client.client import Client
from assay.errors import StorageError, UnavailableError, WrongStateError
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import PauseCause, Run, RunState
from assay_orchestrator.pipeline.storage_pauses import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import RunSettings

CASES = 40


class Agent:
    """Counts its questions; holds its answers back from the tenth question on."""

    def __init__(self) -> None:
        self.asked = Counter[str]()
        self.enough = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def __call__(self, request: AgentRequest) -> str:
        """Answer a question."""
        self.asked[request.case_id] += 1
        if self.asked.total() >= 10:
            self.enough.set()
            await self.may_answer.wait()
        return "a"


async def shown_as(client: Client, run_id: str, state: RunState) -> Run:
    """Return a run once it is shown in a state."""
    run: Run = await until(lambda: client.get_run(run_id, partial=False), lambda run: run.state is state)
    return run


async def test_a_run_whose_file_is_away_says_so_and_resumes_when_it_is_back(
    serve_at: Callable[..., AbstractAsyncContextManager[Client]],
    tmp_path: Path,
    settings_of: Callable[..., RunSettings],
) -> None:
    """Where not even its pause can be stored, a run is shown as paused, with the reason, by everything that shows runs.

    What needs the store is refused meanwhile, with the same reason. Nobody has to resume the run.
    """
    agent, file = Agent(), tmp_path / "assay.db"
    async with serve_at(tmp_path, storage_backoff=Backoff(first_s=0.02, max_s=0.1)) as client:
        dataset = await client.upload_dataset(
            [Case(f"c{i}", (Turn("q", references=("a",)),)) for i in range(CASES)], name="d"
        )
        run = await client.create_run(settings_of("python", "m:f", concurrency=4), dataset.dataset_id)
        hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=4))
        await agent.enough.wait()
        await asyncio.gather(*(client.get_run(run.run_id) for _ in range(8)))  # every reader has its connection
        file.rename(tmp_path / "away.db")
        agent.may_answer.set()
        shown = await shown_as(client, run.run_id, RunState.PAUSED)
        assert shown.pause_cause is PauseCause.STORAGE
        assert "was deleted or replaced while it was in use" in shown.state_reason
        (listed,) = await client.list_runs()
        assert (listed.state, listed.state_reason) == (RunState.PAUSED, shown.state_reason)
        snapshot = await anext(event async for event in client.watch_run(run.run_id))
        assert isinstance(snapshot, Run)
        assert snapshot.state is RunState.PAUSED
        async with Client(client.address, patience_s=0) as hurried:
            for operation in (hurried.pause_run, hurried.cancel_run):
                with pytest.raises((StorageError, UnavailableError), match="was deleted or replaced"):
                    await operation(run.run_id)
        with pytest.raises(WrongStateError, match="resumes by itself when its rows can be stored: cancel it"):
            await client.delete_run(run.run_id)
        (tmp_path / "away.db").rename(file)
        done = await shown_as(client, run.run_id, RunState.SUCCEEDED)
        await asyncio.wait([hosting])
    assert done.counts.finished == CASES
    assert agent.asked == Counter({f"c{i}": 1 for i in range(CASES)})


async def test_what_follows_a_shard_that_could_not_be_ended_begins_when_it_is(
    serve_at: Callable[..., AbstractAsyncContextManager[Client]],
    tmp_path: Path,
    settings_of: Callable[..., RunSettings],
) -> None:
    """The end of a shard is refused, so that the next one of its run is enqueued when the pause ends."""
    cases = [Case(f"c{i}", (Turn("q", references=("a",)),), recorded=AgentResponse(text="a")) for i in range(1_500)]
    async with serve_at(tmp_path, storage_backoff=Backoff(first_s=0.02, max_s=0.1)) as client:
        with closing(sqlite3.connect(tmp_path / "assay.db", isolation_level=None)) as admin:
            dataset = await client.upload_dataset(cases, name="d")
            admin.execute(
                "CREATE TRIGGER refuse BEFORE UPDATE ON shards WHEN NEW.state = 'done' "
                "BEGIN SELECT RAISE(ABORT, 'no shard ends'); END"
            )
            run = await client.create_run(settings_of(concurrency=1), dataset.dataset_id)
            cause = "SELECT pause_cause FROM runs"  # the pause itself is stored
            await until(lambda: admin.execute(cause).fetchone(), lambda seen: seen == ("storage",))
            admin.execute("DROP TRIGGER refuse")
        done = await shown_as(client, run.run_id, RunState.SUCCEEDED)
    assert done.counts.finished == len(cases)
