"""Teams: what belongs to one is, for the calls of another, not there at all."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import sqlalchemy as sa
from tests.support.services.ended_runs import await_end

from assay.client.client import Client
from assay.errors import InvalidInputError, NotFoundError
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import FINISHED_STATES, DatasetRef, RowResult, RunState
from assay.model.scope import Scope
from assay.rpc.server import RpcServer
from assay.rpc.status import translated
from assay.v1 import comparison_pb2, comparison_pb2_grpc, host_pb2, host_pb2_grpc, row_pb2, run_pb2, run_pb2_grpc
from assay_orchestrator.engine.dispatcher_factory import open_dispatcher
from assay_orchestrator.runs.manager import RunManager
from assay_orchestrator.runs.planner import Planner
from assay_orchestrator.service.registration import registrations
from assay_orchestrator.settings import Settings
from assay_orchestrator.store import control, history, schema
from assay_orchestrator.store.control import Resumption
from assay_orchestrator.store.database import open_database
from assay_orchestrator.store.removal import deletions
from assay_orchestrator.store.rows import found_rows, results
from assay_orchestrator.store.rows.found_rows import RowQuery
from assay_orchestrator.store.runs import attendance, datasets, runs
from assay_orchestrator.store.runs.runs import RunRecord
from assay_orchestrator.store.shards import shards

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from assay.model.run import RunSpec
    from assay.storage.database import Database

    SettingsOf = Callable[..., RunSpec]
    Open = Callable[[], Database]
    ServeTeams = Callable[..., contextlib.AbstractAsyncContextManager[list[Client]]]

A, B = Scope("a"), Scope("b")
AT = "2026-05-01T00:00:00.000Z"
DATASET = DatasetRef("d", "names", 1)
RECORDED = AgentResponse(AgentStatus.SUCCESS, text="yes")
CASES = [Case(f"c{n}", (Turn("?", references=("yes",)),), recordings=((RECORDED,),)) for n in range(3)]


def store_dataset(connection: sa.Connection, scope: Scope, upload_id: str) -> None:
    """Store the same content under a team."""
    datasets.add_cases(connection, upload_id, 0, [("c", datasets.case_text(Case("c", (Turn("q"),))))])
    datasets.finish_upload(connection, scope, upload_id, DATASET)


def store_run(connection: sa.Connection, scope: Scope, run_id: str, *, at: str = "2026-05-01") -> None:
    """Store a run that was paused, with one row."""
    record = RunRecord(run_id, "same request", "h", {"name": "n", "repeats": 1}, "d", 1, "0", at, scope.team)
    runs.create_run(connection, record)
    shards.create_shards(connection, run_id, 1, 1)
    row = RowResult("c", 0, 1, "", AgentStatus.ERROR, None, (), 1.5, "it failed")
    runs.change_state(connection, run_id, RunState.RUNNING)
    results.put_rows(connection, run_id, [], [row], {})
    runs.change_state(connection, run_id, RunState.PAUSED)


@pytest.fixture
async def store(open_store: Open) -> AsyncIterator[Database]:
    """Return a store in which two teams have equal datasets and a run each, made by equal requests."""
    database = open_store()

    def fill(connection: sa.Connection) -> None:
        for scope in (A, B):
            store_dataset(connection, scope, f"u-{scope.team}")
            store_run(connection, scope, f"run-{scope.team}")

    try:
        await database.write(fill)
        yield database
    finally:
        database.close()


async def test_equal_content_and_requests_of_two_teams_are_two(store: Database) -> None:
    """Neither team gets the dataset or the run of the other in place of its own."""

    def found(connection: sa.Connection) -> list[object]:
        made = [runs.get_by_request(connection, scope, "same request") for scope in (A, B)]
        return [record.run_id if record is not None else None for record in made]

    assert await store.read(found) == ["run-a", "run-b"]
    uploads = sa.select(schema.datasets.c.team, schema.datasets.c.upload_id).order_by(schema.datasets.c.team)
    assert [tuple(row) for row in await store.read(lambda c: c.execute(uploads).all())] == [("a", "u-a"), ("b", "u-b")]


async def test_nothing_of_another_team_is_read(store: Database) -> None:
    """No query finds a run or dataset by a name that belongs to another team."""

    def read(connection: sa.Connection) -> None:
        assert runs.get_run(connection, A, "run-b") is None
        assert [run_id for _, run_id in runs.list_newest(connection, A, 9, None)] == ["run-a"]
        assert runs.list_newest(connection, A, 9, None, "run-b") == []
        for read_rows in (
            lambda: history.read_page(connection, A, "run-b", RowQuery(), None, 9),
            lambda: found_rows.count_rows(connection, A, "run-b", RowQuery()),
            lambda: found_rows.count_facets(connection, A, "run-b", RowQuery()),
            lambda: found_rows.find_neighbours(connection, A, "run-b", RowQuery(), 0),
            lambda: history.read_events(connection, A, "run-b", 0, 9, with_answers=False),
            lambda: history.read_events(connection, A, "run-b", 0, 9, with_answers=True),
            lambda: history.find_case(connection, A, "run-b", "c"),
            lambda: history.read_attempts(connection, A, "run-b", "c"),
        ):
            with pytest.raises(NotFoundError):
                read_rows()
        assert datasets.get_dataset(connection, "c", "d") is None

    await store.read(read)


async def test_nothing_of_another_team_is_changed(store: Database) -> None:
    """Its run is neither cancelled, paused, resumed, retried, attended nor deleted, and its dataset stays."""

    def change(connection: sa.Connection) -> None:
        assert not control.cancel(connection, A, "run-b")
        assert control.pause(connection, A, "run-b") is None
        assert control.resume(connection, A, "run-b", Resumption()) is None
        assert control.resume(connection, A, "run-b", Resumption(retry_errors=True)) is None
        assert not attendance.attend(connection, A, "run-b")
        assert deletions.begin_deletion(connection, A, "run-b") is None

    before = await store.read(lambda c: runs.load_run(c, "run-b"))
    await store.write(change)
    assert await store.read(lambda c: runs.load_run(c, "run-b")) == before
    pending = await store.write(lambda c: deletions.begin_deletion(c, A, "run-a"))
    assert pending is not None
    await store.write(lambda c: deletions.begin_dataset_deletion(c, A, "d"))
    with pytest.raises(NotFoundError):
        await store.write(lambda c: deletions.begin_dataset_deletion(c, A, "d"))
    assert await store.read(lambda c: datasets.get_dataset(c, A.team, "d")) is None
    assert await store.read(lambda c: datasets.get_dataset(c, B.team, "d")) is not None
    assert len(await store.read(lambda c: datasets.read_cases(c, "run-b", 0, 9))) == 1


@asynccontextmanager
async def clients(folder: Path, url: str, *scopes: Scope) -> AsyncIterator[list[Client]]:
    """Serve one orchestrator to several teams; yield a client of each."""
    settings = Settings(database=folder / "assay.db", database_url=url)
    database = open_database(settings)
    manager = RunManager(database, settings, Planner(settings, None), open_dispatcher(settings, database))
    async with AsyncExitStack() as stack:
        stack.callback(database.close)
        made = []
        servers = [RpcServer(settings.server_options) for _ in scopes]
        for scope, server in zip(scopes, servers, strict=True):
            for name, register in registrations(database, manager, settings, server.stopping, scope).items():
                server.add(name, register)
            address = await server.start(f"unix:{folder}/{scope.team}.sock")
            server.set_serving(True)
            made.append(await stack.enter_async_context(Client(address, patience_s=60.0)))
        await manager.start()
        yield made
        for server in servers:
            server.begin_stopping()
        await manager.aclose()
        for server in servers:
            await server.stop(0)


@pytest.fixture
def serve_teams(tmp_path: Path, database_url: str) -> ServeTeams:
    """Return a function that serves the test's database to teams."""
    return lambda *scopes: clients(tmp_path, database_url, *scopes)


async def finished_run(client: Client, settings: RunSpec, request_id: str | None = None) -> str:
    """Return the id of a run that has ended."""
    dataset = await client.upload_dataset(CASES, name="d")
    run = await client.create_run(settings, dataset.dataset_id, request_id=request_id)
    await await_end(client, run.run_id)
    return run.run_id


async def refusal(client: Client, method: str, run_id: str) -> tuple[object, ...]:
    """Return how a method refuses a run, without the id."""
    runs: Any = run_pb2_grpc.RunServiceStub(client._channel)
    comparisons: Any = comparison_pb2_grpc.ComparisonServiceStub(client._channel)
    if method == "Host":
        attach = host_pb2.HostRequest(attach=host_pb2.AttachAgent(run_id=run_id, concurrency=1))
        call: Any = host_pb2_grpc.HostServiceStub(client._channel).Host(iter([attach]))
    elif method in ("CompareRuns", "ListComparedCases"):
        request = getattr(comparison_pb2, f"{method}Request")(run_ids=[run_id, f"{run_id}-2"])
        call = getattr(comparisons, method)(request)
    elif method in ("ListRows", "ListAttempts", "GetCase"):
        named = {} if method == "ListRows" else {"case_id": "c0"}
        call = getattr(runs, method)(getattr(row_pb2, f"{method}Request")(run_id=run_id, **named))
    else:
        call = getattr(runs, method)(getattr(run_pb2, f"{method}Request")(run_id=run_id))
    is_stream = method in ("WatchRun", "Host")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await (call.read() if is_stream else call)
    details = str(caught.value.details()).replace(run_id, "RUN")
    trailing = [str(value).replace(run_id, "RUN") for _, value in caught.value.trailing_metadata() or ()]
    return caught.value.code(), details, [text for text in trailing if "RUN" in text]


METHODS = (
    "GetRun",
    "CancelRun",
    "PauseRun",
    "ResumeRun",
    "RetryRun",
    "DeleteRun",
    "WatchRun",
    "ListRows",
    "ListAttempts",
    "GetCase",
    "CompareRuns",
    "ListComparedCases",
)


async def test_a_run_of_another_team_is_refused_like_a_missing_one(
    serve_teams: ServeTeams, settings_of: SettingsOf
) -> None:
    """Every method answers NOT_FOUND in the same words, so that no team learns which runs others have."""
    async with serve_teams(A, B) as (first, second):
        run_id = await finished_run(first, settings_of())
        for method in (*METHODS, "Host"):
            refused = await refusal(second, method, run_id)
            assert refused[0] is grpc.StatusCode.NOT_FOUND, method
            assert refused == await refusal(second, method, "test-20260101-000000-abcdef"), method
        assert (await first.get_run(run_id)).state in FINISHED_STATES


async def test_a_watched_run_is_shown_to_its_own_team_alone(serve_teams: ServeTeams, settings_of: SettingsOf) -> None:
    """What is in memory of an active run, because one team watches it, is not shown to another team."""
    async with serve_teams(A, B) as (first, second):
        dataset = await first.upload_dataset(CASES, name="d")
        run = await first.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        watched = first.watch_run(run.run_id)
        assert await anext(watched) is not None
        with pytest.raises(NotFoundError):
            await anext(second.watch_run(run.run_id))
        assert isinstance(watched, AsyncGenerator)
        await watched.aclose()


async def test_teams_neither_see_nor_reuse_what_others_have(serve_teams: ServeTeams, settings_of: SettingsOf) -> None:
    """The same request id makes a run for each team, a dataset is found by its own team, a list holds own runs."""
    async with serve_teams(A, B) as (first, second):
        own = await finished_run(first, settings_of(), "nightly")
        dataset_id = (await first.get_run(own)).dataset.dataset_id
        with pytest.raises(NotFoundError, match="upload it first"):
            await second.create_run(settings_of(), dataset_id)
        other = await finished_run(second, settings_of(), "nightly")
        assert other != own
        assert [run.run_id for run in await second.list_runs()] == [other]
        assert await first.list_runs(where=f"run:{other}") == []
        await first.delete_run(own)
        await first.delete_dataset(dataset_id)
        assert len([row async for row in second.list_rows(other)]) == len(CASES)


async def test_a_page_token_of_another_team_is_refused(serve_teams: ServeTeams, settings_of: SettingsOf) -> None:
    """A token continues the list of the team to which it was given, and no other's."""
    async with serve_teams(A, B) as teams:
        stubs = [run_pb2_grpc.RunServiceStub(client._channel) for client in teams]
        for client in teams:
            for _ in range(2):
                await finished_run(client, settings_of())
        token = (await stubs[0].ListRuns(run_pb2.ListRunsRequest(page_size=1))).next_page_token
        with pytest.raises(InvalidInputError, match="page_token: does not belong to this query"), translated():
            await stubs[1].ListRuns(run_pb2.ListRunsRequest(page_size=1, page_token=token))
        assert len((await stubs[0].ListRuns(run_pb2.ListRunsRequest(page_token=token))).runs) == 1
