"""What a client does where the orchestrator is of an older version, which ignores what it does not know."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.rpc.conftest import RUN_SERVICE

from assay.client.client import Client
from assay.client.run_references import find_run_id
from assay.errors import InvalidInputError, SetupError
from assay.metrics import complete_parameters
from assay.model.run import AgentSettings, CaseSelection, JudgeSettings, MetricSettings, RunSettings, RunState
from assay.v1 import row_pb2, run_pb2, spec_pb2
from assay.version import __version__

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.integration.rpc.conftest import Wire


def stored(number: int, state: run_pb2.RunState.ValueType = run_pb2.RUN_STATE_SUCCEEDED) -> run_pb2.Run:
    """Return a run as a server without labels stores it."""
    spec = spec_pb2.RunSpec(
        name=f"n{number % 2}", agent=spec_pb2.AgentSpec(adapter="http"), metrics=[spec_pb2.MetricSpec(name="latency")]
    )
    return run_pb2.Run(run_id=f"run-{number:02}", spec=spec, state=state)


async def test_conditions_that_the_server_ignores_hold(wire: Wire) -> None:
    """Runs of other names, labels, states and ids are not listed, over all pages; a run is found by its beginning."""
    runs = [
        stored(number, run_pb2.RUN_STATE_FAILED if number < 3 else run_pb2.RUN_STATE_SUCCEEDED) for number in range(20)
    ]

    async def list_all(request: bytes, context: object) -> bytes:
        asked = run_pb2.ListRunsRequest.FromString(request)
        first = int(asked.page_token or 0)
        page = runs[first : first + asked.page_size]
        token = str(first + len(page)) if first + len(page) < len(runs) else ""
        return run_pb2.ListRunsResponse(runs=page, next_page_token=token).SerializeToString()

    address = await wire.serve({"ListRuns": ("unary_unary", list_all)}, service=RUN_SERVICE)
    async with Client(address) as client:

        async def found(limit: int = 50, **conditions: Any) -> list[int]:
            return [int(run.run_id[4:]) for run in await client.list_runs(limit, **conditions)]

        assert await found(3, name="n1") == [1, 3, 5]
        assert await found(labels={"team": "a"}) == []
        assert await found(states=[RunState.FAILED], name="n0") == [0, 2]
        assert await found(2, run_id_prefix="run-1") == [10, 11]
        assert await found(4) == [0, 1, 2, 3]
        assert await find_run_id(client, "run-17") == "run-17"
        with pytest.raises(InvalidInputError, match="begins the ids of several runs: run-10, run-11"):
            await find_run_id(client, "run-1")


async def test_a_filter_that_the_server_ignores_is_an_error(wire: Wire) -> None:
    """Rows and runs that do not meet it, or that are in another order, are never taken for those that do."""

    async def list_runs(request: bytes, context: object) -> bytes:
        return run_pb2.ListRunsResponse(runs=[stored(1)]).SerializeToString()

    async def list_rows(request: bytes, context: object) -> bytes:
        return row_pb2.ListResultsResponse(results=[row_pb2.CaseResult(case_id="c1")]).SerializeToString()

    methods = {"ListRuns": ("unary_unary", list_runs), "ListResults": ("unary_unary", list_rows)}
    async with Client(await wire.serve(methods, service=RUN_SERVICE)) as client:
        queries: list[dict[str, Any]] = [{"where": "since:2026-11-01"}, {"order_by": "name"}]
        for query in queries:
            with pytest.raises(SetupError, match="the filter or the order of runs") as caught:
                await client.list_runs(**query)
            assert caught.value.reason == "SERVER_TOO_OLD"
        queries = [{"where": "failed"}, {"order_by": "-latency"}]
        for query in queries:
            with pytest.raises(SetupError, match="the filter or the order of rows"):
                _ = [row async for row in client.list_results("run-01", **query)]
        assert [row.case_id async for row in client.list_results("run-01")] == ["c1"]


async def test_rows_of_other_cases_are_not_listed(wire: Wire) -> None:
    """The rows of one case are those of that case."""

    async def list_all(request: bytes, context: object) -> bytes:
        rows = [row_pb2.CaseResult(case_id=case_id, case_index=index) for index, case_id in enumerate("aba")]
        return row_pb2.ListResultsResponse(results=rows).SerializeToString()

    address = await wire.serve({"ListResults": ("unary_unary", list_all)}, service=RUN_SERVICE)
    async with Client(address) as client:
        assert [row.case_index async for row in client.list_results("r", case_id="a")] == [0, 2]
        assert [row.case_index async for row in client.list_results("r")] == [0, 1, 2]


async def test_a_setting_that_the_server_does_not_know_is_refused(wire: Wire) -> None:
    """The run is cancelled, not run without the setting; the sentence names setting, version and remedy."""
    cancelled = []

    async def create(request: bytes, context: object) -> bytes:
        spec = run_pb2.CreateRunRequest.FromString(request).spec
        for field in ("labels", "note", "selection", "max_agent_errors"):
            spec.ClearField(field)
        spec.judge.ClearField("recorded_file")
        run = run_pb2.Run(run_id="run-1", spec=spec, state=run_pb2.RUN_STATE_PENDING)
        return run_pb2.CreateRunResponse(run=run).SerializeToString()

    async def cancel(request: bytes, context: object) -> bytes:
        cancelled.append(run_pb2.CancelRunRequest.FromString(request).run_id)
        return run_pb2.CancelRunResponse(run=stored(1, run_pb2.RUN_STATE_CANCELLED)).SerializeToString()

    handlers: dict[str, tuple[str, Callable[[bytes, object], Awaitable[bytes]]]] = {
        "CreateRun": ("unary_unary", create),
        "CancelRun": ("unary_unary", cancel),
    }
    address = await wire.serve(handlers, service=RUN_SERVICE)
    settings = RunSettings(
        name="r",
        agent=AgentSettings("http", "http://127.0.0.1:1"),
        metrics=(MetricSettings("latency"),),
        judge=JudgeSettings("replay", recorded_file="v.jsonl"),
        labels={"a": "b"},
        selection=CaseSelection(tags=("t",)),
    )
    async with Client(address) as client:
        with pytest.raises(SetupError) as problem:
            await client.create_run(settings, "d")
    assert problem.value.reason == "SERVER_TOO_OLD"
    assert problem.value.message == (
        f"the orchestrator at {address} is too old for judge.recorded_file, labels, selection: "
        "upgrade it, or leave that out of the spec; run run-1 was cancelled"
    )
    assert cancelled == ["run-1"]


async def test_a_parameter_at_its_default_is_not_sent(wire: Wire) -> None:
    """A server that does not know it yet takes the run; what differs from its default is sent, and refused there."""
    sent = []

    async def create(request: bytes, context: object) -> bytes:
        spec = run_pb2.CreateRunRequest.FromString(request).spec
        sent.append([json.loads(metric.parameters_json or "{}") for metric in spec.metrics])
        return run_pb2.CreateRunResponse(run=run_pb2.Run(run_id="run-1", spec=spec)).SerializeToString()

    kinds: dict[str, dict[str, Any]] = {
        "semantic_similarity": {},
        "latency": {"threshold": 2.0},
        "consistency": {"model": "other"},
    }
    metrics = [MetricSettings(kind, complete_parameters(kind, given, where=kind)) for kind, given in kinds.items()]
    async with Client(await wire.serve({"CreateRun": ("unary_unary", create)}, service=RUN_SERVICE)) as client:
        await client.create_run(RunSettings("r", AgentSettings("http", "http://127.0.0.1:1"), metrics), "d")
    assert sent == [list(kinds.values())]


async def test_a_call_that_the_server_does_not_know(wire: Wire) -> None:
    """The sentence names the server, its version and what to do, for calls and for streams."""

    async def get(request: bytes, context: object) -> bytes:
        return run_pb2.GetRunResponse(run=stored(1)).SerializeToString()

    address = await wire.serve({"GetRun": ("unary_unary", get)}, service=RUN_SERVICE)
    said = (
        f"the orchestrator at {address} does not know this call of Assay {__version__}: upgrade "
        "the orchestrator, or use an `assay` of its version"
    )
    async with Client(address) as client:
        assert (await client.get_run("r")).run_id == "run-01"
        with pytest.raises(SetupError) as of_call:
            await client.pause_run("r")
        with pytest.raises(SetupError) as of_stream:
            await anext(client.watch_run("r"))
    assert [of_call.value.message, of_stream.value.message] == [said, said]
    assert [of_call.value.reason, of_stream.value.reason] == ["SERVER_TOO_OLD", "SERVER_TOO_OLD"]
