"""Hosted agents and metrics on the wire: what a host in any language says, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from assay.client.client import Client
from assay.errors import InvalidInputError, SpecError
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec, MetricSpec, RunSpec
from assay.rpc.status import translated
from assay.v1 import run_pb2, run_pb2_grpc, spec_pb2
from assay.wire.hosted import AGENT, METRIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    Serve = Callable[..., AbstractAsyncContextManager[Client]]

CASES = [Case("c", (Turn("q", references=("a",)),), recordings=((AgentResponse(text="a"),),))]
HOSTED: dict[str, Any] = {"adapter": "hosted", "hosted_by": "typescript"}


async def create(client: Client, agent: Mapping[str, Any], *metrics: spec_pb2.MetricSpec) -> run_pb2.Run:
    """Return a new run, created as a client in another language does."""
    dataset = await client.upload_dataset(CASES, name="d")
    spec = spec_pb2.RunSpec(name="test", agent=spec_pb2.AgentSpec(**agent), metrics=metrics)
    request = run_pb2.CreateRunRequest(request_id="one", dataset_id=dataset.dataset_id, spec=spec)
    with translated():
        return (await run_pb2_grpc.RunServiceStub(client._channel).CreateRun(request)).run


async def test_a_host_in_another_language_names_no_target_and_no_function(serve: Serve) -> None:
    """The orchestrator asks a client for results, and needs to know nothing of its code."""
    async with serve() as client:
        metric = spec_pb2.MetricSpec(name="polite", kind="hosted", parameters_json='{"threshold": 0.5}')
        created = await create(client, HOSTED, metric)
        run = await client.get_run(created.run_id)
        await client.cancel_run(run.run_id)
    assert (created.spec.agent.adapter, created.spec.agent.hosted_by, created.spec.agent.target) == (
        "hosted", "typescript", "",
    )  # fmt: skip
    assert created.spec.metrics[0].kind == "hosted"
    assert (run.spec.agent.adapter, run.spec.agent.is_hosted) == ("typescript", True)
    assert run.spec.metrics[0].is_function


async def test_a_client_refuses_an_adapter_that_no_spec_file_may_have(serve: Serve) -> None:
    """A misspelled adapter is no host in another language."""
    async with serve() as client:
        dataset = await client.upload_dataset(CASES, name="d")
        with pytest.raises(SpecError, match=r"agent\.adapter: unknown adapter 'htpp'; did you mean 'http'\?"):
            await client.create_run(RunSpec("test", AgentSpec("htpp"), [MetricSpec("exact_match")]), dataset.dataset_id)
        assert await client.list_runs() == []


@pytest.mark.parametrize(
    ("agent", "metric", "field", "message"),
    [
        ({"adapter": "python", "target": "m:f"}, {}, "spec.agent.adapter", "unknown adapter 'python'"),
        ({"adapter": "adk", "target": "m:f"}, {}, "spec.agent.target", "must be a URL"),
        ({"adapter": "hosted", "hosted_by": "http"}, {}, "spec.agent.hosted_by", "which the orchestrator calls"),
        ({"adapter": "hosted", "hosted_by": "x" * 65}, {}, "spec.agent.hosted_by", "at most 64"),
        ({"adapter": "replay", "hosted_by": "python"}, {}, "spec.agent.hosted_by", "must be empty"),
        (HOSTED, {"name": "m", "kind": "python"}, "spec.metrics[0].kind", "must be 'hosted'"),
        (HOSTED, {"name": "python"}, "spec.metrics[0].kind", "must be 'hosted'"),
    ],
)
async def test_words_of_a_client_are_no_adapters(
    serve: Serve, agent: Mapping[str, Any], metric: dict[str, Any], field: str, message: str
) -> None:
    """There is one word for what a client runs; what the client calls it decides nothing."""
    async with serve() as client:
        with pytest.raises(InvalidInputError, match=message) as refusal:
            await create(client, agent, spec_pb2.MetricSpec(**(metric or {"name": "exact_match"})))
        assert [problem.field for problem in refusal.value.problems] == [field]


async def test_a_refusal_names_the_field_of_a_hosted_metric(serve: Serve) -> None:
    """Its parameters are checked as those of every metric are."""
    async with serve() as client:
        metric = spec_pb2.MetricSpec(name="hosted", parameters_json='{"treshold": 1}')
        with pytest.raises(InvalidInputError, match="did you mean 'threshold'"):
            await create(client, HOSTED, metric)


def test_a_spec_reads_the_same_after_the_wire() -> None:
    """The client's words come back, and every adapter of the orchestrator stays what it is."""
    agents = [
        AgentSpec("python", "agent:answer", options={"map": {"text": "x"}}),
        AgentSpec("adk", "agent:root"),
        AgentSpec("adk", "https://agents.example"),
        AgentSpec("hosted"),
        AgentSpec("replay"),
    ]
    for agent in agents:
        assert AGENT.from_wire(AGENT.to_wire(agent)) == agent
    assert [AGENT.to_wire(agent).adapter for agent in agents] == ["hosted", "hosted", "adk", "hosted", "replay"]
    metric = MetricSpec("python", {"function": "m:f"}, "python")
    assert METRIC.from_wire(METRIC.to_wire(metric)) == metric
    spec = RunSpec("test", AgentSpec("command", "./run"), (metric,))
    assert spec.needs_host
