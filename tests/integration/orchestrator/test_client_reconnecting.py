"""Every call of the client outlasts an orchestrator that is away for a moment."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes.waiting import until
from tests.support.services.ended_runs import await_end, run_cases

from assay.agent_host.caller import AgentCaller
from assay.client.client import Client
from assay.errors import DatasetError, UnavailableError, WrongStateError
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import RunState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import Run, RunSpec

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]

CASES = [
    Case(f"c{i}", (Turn(f"q{i}", references=(f"a{i}",)),), recordings=((AgentResponse(text=f"a{i}"),),))
    for i in range(1200)
]


@pytest.fixture
def database_url() -> str:
    """The client does not know which database there is: a file does."""
    return ""


async def _rows(client: Client, run: Run) -> int:
    return len([row async for row in client.list_rows(run.run_id)])


CALLS: dict[str, Callable[[Client, Run, RunSpec], Awaitable[Any]]] = {
    "upload_dataset": lambda client, run, settings: client.upload_dataset(CASES, name="d"),
    "create_run": lambda client, run, settings: client.create_run(settings, run.dataset.dataset_id),
    "get_run": lambda client, run, settings: client.get_run(run.run_id),
    "list_runs": lambda client, run, settings: client.list_runs(),
    "list_rows": lambda client, run, settings: _rows(client, run),
    "list_attempts": lambda client, run, settings: client.list_attempts(run.run_id, "c1"),
    "resume_run": lambda client, run, settings: client.retry_run(run.run_id),
    "delete_run": lambda client, run, settings: client.delete_run(run.run_id),
}


class Losses:
    """Counts how often a client lost its connection."""

    def __init__(self) -> None:
        self.first = asyncio.Event()

    async def __call__(self) -> None:
        """Note one."""
        self.first.set()


@pytest.mark.parametrize("name", sorted(CALLS))
async def test_a_call_outlasts_an_orchestrator_that_is_away(
    serve: Serve, settings_of: SettingsOf, tmp_path: Path, name: str
) -> None:
    """The call finds nothing at the address at first; it gets its answer once the orchestrator is back."""
    losses = Losses()
    async with Client(f"unix:{tmp_path}/o.sock", patience_s=1e6, on_lost=losses) as client:
        async with serve():
            await client.wait_for_ready(30)
            run = await run_cases(client, settings_of(), CASES)
        call = asyncio.ensure_future(CALLS[name](client, run, settings_of()))
        away = asyncio.ensure_future(losses.first.wait())
        await asyncio.wait({call, away}, return_when=asyncio.FIRST_COMPLETED)
        assert not call.done(), "it must wait for the orchestrator"
        async with serve():
            answer = await call
        if name == "list_rows":
            assert answer == len(CASES)


async def _watched(client: Client, run: Run) -> None:
    await await_end(client, run.run_id)


@pytest.mark.parametrize("name", [*sorted(CALLS.keys() - {"upload_dataset", "create_run"}), "watch_run"])
async def test_a_call_outlasts_a_database_that_refuses(
    serve: Serve, settings_of: SettingsOf, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """As it outlasts a lost connection, with the reason on stderr: also the first call of a client."""

    def rename(table: str, to: str) -> None:
        with closing(sqlite3.connect(tmp_path / "assay.db", isolation_level=None, timeout=60)) as admin:
            admin.execute(f"ALTER TABLE {table} RENAME TO {to}")

    losses = Losses()
    async with serve() as client:
        run = await run_cases(client, settings_of(), CASES[:40])
        async with Client(f"unix:{tmp_path}/o.sock", patience_s=1e6, on_lost=losses) as fresh:
            rename("runs", "away")
            called = _watched(fresh, run) if name == "watch_run" else CALLS[name](fresh, run, settings_of())
            call = asyncio.ensure_future(called)
            refused = asyncio.ensure_future(losses.first.wait())
            await asyncio.wait({call, refused}, return_when=asyncio.FIRST_COMPLETED)
            assert not call.done(), "it must wait for the database"
            rename("away", "runs")
            await call
    assert "no such table: runs" in next(text for text in caplog.messages if text.startswith("waiting up to 1e+06 s: "))


async def test_a_report_is_read_to_its_end_though_the_orchestrator_restarts_between_two_pages(
    serve: Serve, settings_of: SettingsOf, tmp_path: Path
) -> None:
    """Each row comes once, in order."""
    async with Client(f"unix:{tmp_path}/o.sock", patience_s=1e6) as client:
        async with serve():
            await client.wait_for_ready(30)
            run = await run_cases(client, settings_of(), CASES)
            rows = client.list_rows(run.run_id)
            seen = [(await anext(rows)).case_id for _ in range(400)]
        async with serve():
            seen += [row.case_id async for row in rows]
    assert seen == [case.case_id for case in CASES]


async def test_a_deletion_whose_answer_was_lost_is_done(
    serve: Serve, settings_of: SettingsOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repeated call finds no run, since the first one deleted it: that is no error."""
    async with serve() as client:
        run = await run_cases(client, settings_of(), CASES[:3])
        real, is_lost = client._stub.DeleteRun, False

        async def losing(request: Any, **options: Any) -> Any:
            nonlocal is_lost
            answer = await real(request, **options)
            if request.validate_only or is_lost:
                return answer
            is_lost = True
            raise UnavailableError("the connection broke")

        monkeypatch.setattr(client._stub, "DeleteRun", losing)
        gone = await client.delete_run(run.run_id)
        assert gone.row_count == 3
        assert is_lost
        assert await client.list_runs() == []


async def test_a_retry_whose_answer_was_lost_is_under_way(
    serve: Serve, settings_of: SettingsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repeated call finds the run running, since the first one resumed it: that is no error.

    A later call that is answered at once is refused as ever.
    """
    asked_again, may_answer = asyncio.Event(), asyncio.Event()
    is_failing, call_count = True, 0

    async def agent(request: AgentRequest) -> str:
        if is_failing:
            raise ValueError("boom")
        asked_again.set()
        await may_answer.wait()
        return "a" + request.input[1:]

    async with serve() as client:
        dataset = await client.upload_dataset(CASES[:3], name="d")
        run = await client.create_run(settings_of("python", "m:f", retries=0), dataset.dataset_id)
        await client.host_agent(run.run_id, AgentCaller(agent), concurrency=3)
        is_failing, real = False, client._stub.RetryRun

        async with asyncio.TaskGroup() as group:

            async def losing(request: Any) -> Any:
                nonlocal call_count
                call_count += 1
                answer = await real(request)
                if call_count > 1:
                    return answer
                group.create_task(client.host_agent(run.run_id, AgentCaller(agent), concurrency=3))
                await asked_again.wait()  # the rows with errors are set aside by then, and the run is at work
                raise UnavailableError("the connection broke")

            monkeypatch.setattr(client._stub, "RetryRun", losing)
            assert (await client.retry_run(run.run_id)).state is RunState.RUNNING
            assert call_count == 2
            with pytest.raises(WrongStateError, match="is running"):
                await client.retry_run(run.run_id)
            may_answer.set()
        done: Run = await until(lambda: client.get_run(run.run_id), lambda run: run.finished)
    assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, 3)


async def test_an_address_at_which_nothing_has_answered_is_not_waited_for(tmp_path: Path) -> None:
    """It is most likely wrong: the error comes without the client's patience, which is endless here."""
    async with Client(f"unix:{tmp_path}/none.sock", patience_s=1e6) as client:
        with pytest.raises(UnavailableError):
            await client.list_runs()


async def test_cases_that_cannot_be_read_twice_are_sent_once(serve: Serve, tmp_path: Path) -> None:
    """An iterator that was used up would be stored as a shorter dataset."""
    async with Client(f"unix:{tmp_path}/o.sock", patience_s=1e6) as client:
        async with serve():
            await client.wait_for_ready(30)
        with pytest.raises(UnavailableError):
            await client.upload_dataset(iter(CASES), name="d")


@pytest.mark.parametrize("problem", [DatasetError("the file has changed"), ValueError("the file has changed")])
async def test_what_keeps_cases_from_being_read_is_the_uploads_error(serve: Serve, problem: Exception) -> None:
    """It is raised as it is and at once, neither as a cancellation nor taken for a lost connection."""

    def cases() -> Iterator[Case]:
        yield CASES[0]
        raise problem

    class Changed:
        def __iter__(self) -> Iterator[Case]:
            return cases()

    async with serve() as client:
        with pytest.raises(type(problem), match="the file has changed"):
            await client.upload_dataset(Changed(), name="d")
