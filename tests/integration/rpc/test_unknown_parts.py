"""Clients and servers of different versions: what a server does not know is refused, with its path."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio
import pytest
from tests.integration.rpc.conftest import RUN_SERVICE

from assay.agent.v1 import agent_pb2, agent_pb2_grpc
from assay.client.client import Client
from assay.errors import InvalidInputError, Problem, SetupError
from assay.metrics import complete_parameters
from assay.model.run import AgentSpec, MetricSpec, RunSpec
from assay.rpc.status import from_rpc_error, translated
from assay.v1 import case_pb2, dataset_pb2, dataset_pb2_grpc, judge_spec_pb2, run_pb2, run_pb2_grpc, spec_pb2
from assay.version import __version__

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from tests.integration.rpc.conftest import Wire


M = TypeVar("M", bound="Message")
BEYOND: Any = 99
"""The number of an enum's value that a later version has."""


class Runs(run_pb2_grpc.RunServiceServicer, dataset_pb2_grpc.DatasetServiceServicer):
    """Answers what reaches it."""

    async def CreateRun(self, request: run_pb2.CreateRunRequest, context: Any) -> run_pb2.CreateRunResponse:  # noqa: N802
        return run_pb2.CreateRunResponse()

    async def ListRuns(self, request: run_pb2.ListRunsRequest, context: Any) -> run_pb2.ListRunsResponse:  # noqa: N802
        return run_pb2.ListRunsResponse()

    async def UploadDataset(self, request_iterator: Any, context: Any) -> dataset_pb2.UploadDatasetResponse:  # noqa: N802
        async for _ in request_iterator:
            pass
        return dataset_pb2.UploadDatasetResponse()


def beyond(message: M) -> M:
    """Return a message of a later version: it has a field 500."""
    return type(message).FromString(message.SerializeToString() + b"\xa0\x1f\x01")


async def test_a_setting_that_the_server_does_not_know_is_refused(wire: Wire) -> None:
    """The sentence names setting, version and remedy; nothing has begun that would have to be cancelled."""

    async def create(request: run_pb2.CreateRunRequest, context: object) -> run_pb2.CreateRunResponse:
        fields = [Problem("unknown", f"spec.{field}") for field in ("16", "judges[0].9", "metrics[0].4")]
        raise InvalidInputError(fields, reason="UNKNOWN_FIELD")

    servicer = Runs()  # type: ignore[abstract]  # the other methods are not called
    servicer.CreateRun = create  # type: ignore[method-assign]
    address = await wire.serve_runs(servicer)
    settings = RunSpec("r", AgentSpec("http", "http://127.0.0.1:1"), (MetricSpec("latency"),))
    async with Client(address) as client:
        with pytest.raises(SetupError) as problem:
            await client.create_run(settings, "d")
    assert problem.value.reason == "SERVER_TOO_OLD"
    assert problem.value.message == (
        f"the orchestrator at {address} does not know spec.labels, spec.judges[0].recorded_file, "
        f"spec.metrics[0].is_optional of Assay {__version__}: upgrade the orchestrator, or use an `assay` of its "
        "version"
    )


@pytest.mark.parametrize(
    ("request_", "reason", "fields"),
    [
        (beyond(run_pb2.ListRunsRequest()), "UNKNOWN_FIELD", ["500"]),
        (
            run_pb2.CreateRunRequest(
                spec=spec_pb2.RunSpec(
                    metrics=[spec_pb2.MetricSpec(), beyond(spec_pb2.MetricSpec())],
                    judges=[judge_spec_pb2.JudgeSpec(members=[beyond(judge_spec_pb2.JudgeModel())])],
                )
            ),
            "UNKNOWN_FIELD",
            ["spec.metrics[1].500", "spec.judges[0].members[0].500"],
        ),
        (run_pb2.CreateRunRequest(spec=spec_pb2.RunSpec(labels={"a": "b"})), "", []),
    ],
)
async def test_parts_of_a_request_that_the_server_does_not_know_are_refused_with_their_paths(
    wire: Wire, request_: Message, reason: str, fields: list[str]
) -> None:
    """Ignored, a condition would match everything, and a cap would be none."""
    channel = await wire.channel(await wire.serve_runs(Runs()))  # type: ignore[abstract]
    name = type(request_).__name__.removesuffix("Request")
    call: Any = channel.unary_unary(f"/{RUN_SERVICE}/{name}")
    try:
        await call(request_.SerializeToString())
    except grpc.aio.AioRpcError as error:
        refusal = from_rpc_error(error)
        assert isinstance(refusal, InvalidInputError)
        assert (refusal.reason, [problem.field for problem in refusal.problems]) == (reason, fields)
    else:
        assert not reason


async def test_each_message_of_a_stream_is_checked(wire: Wire) -> None:
    """An upload with a field of a later version is refused with the case that has it."""
    uploads = {"assay.v1.DatasetService": dataset_pb2_grpc.add_DatasetServiceServicer_to_server}
    channel = await wire.channel(await wire.serve_runs(Runs(), uploads))  # type: ignore[abstract]
    recording = case_pb2.Recording(turns=[agent_pb2.AgentResponse(status=BEYOND)])
    answered, later = case_pb2.Case(recordings=[recording]), beyond(case_pb2.Case())
    status = "cases.cases[0].recordings[0].turns[0].status"
    for cases, reason, fields in (
        ([answered], "UNKNOWN_VALUE", [status]),
        ([answered, later], "UNKNOWN_FIELD", ["cases.cases[1].500", status]),
    ):
        parts = [dataset_pb2.UploadDatasetRequest(cases=dataset_pb2.CaseBatch(cases=cases))]
        with pytest.raises(InvalidInputError) as refusal, translated():
            await dataset_pb2_grpc.DatasetServiceStub(channel).UploadDataset(iter(parts))
        assert refusal.value.reason == reason
        assert [problem.field for problem in refusal.value.problems] == fields


async def test_an_agent_answers_what_it_knows_of_a_question(wire: Wire) -> None:
    """Agents are upgraded on their own: a question with a new field is no reason not to answer it."""

    class Agent(agent_pb2_grpc.AgentServiceServicer):
        async def Answer(self, request: agent_pb2.AnswerRequest, context: Any) -> agent_pb2.AnswerResponse:  # noqa: N802
            return agent_pb2.AnswerResponse(response=agent_pb2.AgentResponse(text=request.request.input))

    agents = {"assay.agent.v1.AgentService": agent_pb2_grpc.add_AgentServiceServicer_to_server}
    servicer = type("Both", (Agent, Runs), {})()
    channel = await wire.channel(await wire.serve_runs(servicer, agents))
    question = agent_pb2.AnswerRequest(request=beyond(agent_pb2.AgentRequest(input="?")))
    answer = await agent_pb2_grpc.AgentServiceStub(channel).Answer(question)
    assert answer.response.text == "?"


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
    metrics = [MetricSpec(kind, complete_parameters(kind, given, where=kind)) for kind, given in kinds.items()]
    async with Client(await wire.serve({"CreateRun": ("unary_unary", create)}, service=RUN_SERVICE)) as client:
        await client.create_run(RunSpec("r", AgentSpec("http", "http://127.0.0.1:1"), metrics), "d")
    assert sent == [list(kinds.values())]


async def test_a_call_that_the_server_does_not_know(wire: Wire) -> None:
    """The sentence names the server, its version and what to do, for calls and for streams."""

    async def get(request: bytes, context: object) -> bytes:
        return run_pb2.GetRunResponse(run=run_pb2.Run(run_id="run-01")).SerializeToString()

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
