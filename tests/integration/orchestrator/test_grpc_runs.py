"""Runs of grpc agents: the same rows as in process, refused where the service is not there, and no secret in them."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.services.ended_runs import await_end

from assay.agent_host.agent_server import agent_server
from assay.agent_host.caller import AgentCaller
from assay.errors import SpecError
from assay.metrics import complete_parameters
from assay.model.case import Case, ExpectedTool, Turn
from assay.model.run import MetricSpec, RunState

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.client.client import Client
    from assay.model.answers.agent_request import AgentRequest
    from assay.model.run import RowResult, Run, RunSpec

    ServeAt = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]

CASES = [
    Case(
        f"c{number}",
        (Turn(f"q{number}", references=(f"answer {number}",), expected_tools=(ExpectedTool("look_up"),)),),
        variables={"number": number, "text": "é\u0627 \u200f<b>"},
    )
    for number in range(50)
]
METRICS: dict[str, dict[str, Any]] = {
    "exact_match": {}, "contains": {"values": ["answer"]}, "tool_calls": {}, "tokens": {}, "assertions": {},
}  # fmt: skip


def answer(request: AgentRequest) -> Any:
    """Answer in every way that an agent may."""
    number = request.variables["number"]
    match number % 8:
        case 0:
            return f"answer {number}"
        case 1:
            return {"text": f"answer {number}", "usage": {"input_tokens": number, "output_tokens": 0}}
        case 2:
            return {"text": "wrong", "tool_calls": [{"name": "look_up", "arguments": {"n": number}, "result": [1]}]}
        case 3:
            raise ValueError(f"no answer to {request.input}")
        case 4:
            return {"status": "out_of_scope", "text": f"{request.variables['text']}"}
        case 5:
            return {"text": "", "output": {"rows": [number, 2**60, None, 0.1]}, "sql": "", "data_rows": 0}
        case 6:
            return {"error": {"message": "quota", "type": "Quota"}}
        case _:
            return {"text": f"answer {number}", "sources": ["a", {"id": "b", "score": 0.5}], "events": []}


async def run_of(client: Client, settings: RunSpec, *, hosted: bool = False) -> tuple[Run, list[RowResult]]:
    """Return a run over the cases once it has ended, with its rows."""
    dataset = await client.upload_dataset(CASES, name="d")
    run = await client.create_run(settings, dataset.dataset_id)
    hosting = (
        asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(answer), concurrency=8)) if hosted else None
    )
    await await_end(client, run.run_id)
    if hosting is not None:
        await hosting
    return await client.get_run(run.run_id), [row async for row in client.list_rows(run.run_id)]


def without_times(row: RowResult) -> tuple[Any, ...]:
    """Return what a row says that does not depend on the clock."""
    assert row.response is not None
    # Which of the questions that are asked at once is the first depends on the clock, too.
    response = dataclasses.replace(row.response, latency_ms=None, reported_latency_ms=None, cold=False)
    scores = [(s.metric, s.value, s.status, s.passed, s.reason, s.detail) for s in row.scores]
    return row.case_id, row.status, row.passed, row.message, response, scores


async def test_a_service_gives_the_rows_that_the_function_gives_in_process(
    serve_at: ServeAt, settings_of: SettingsOf, tmp_path: Path
) -> None:
    """Answers, errors with their tracebacks, scores and counts of 50 cases, one by one and as a stream."""
    metrics = tuple(MetricSpec(name, complete_parameters(name, given, where="m")) for name, given in METRICS.items())

    def settings(adapter: str, target: str, **options: Any) -> RunSpec:
        made = settings_of(adapter, target, concurrency=8, retries=0, options=options)
        return dataclasses.replace(made, metrics=metrics, max_agent_errors=1.0)

    with agent_server(answer, concurrency=4) as server:
        async with serve_at(tmp_path) as client:
            run, rows = await run_of(client, settings("python", "m:f"), hosted=True)
            others = [
                await run_of(client, settings("grpc", server.address, **options)) for options in ({}, {"stream": True})
            ]
    assert run.state is RunState.COMPLETED
    assert (len(rows), run.counts.agent_error_count) == (50, 12)
    for other, other_rows in others:
        assert list(map(without_times, other_rows)) == list(map(without_times, rows))
        assert (other.state, other.counts) == (run.state, run.counts)


async def test_the_first_token_of_a_stream_is_stored(
    serve_at: ServeAt, settings_of: SettingsOf, tmp_path: Path
) -> None:
    """Each row of an agent that yields its answer in pieces says when the first one came."""

    async def in_pieces(question: str) -> Any:
        yield "answer "
        yield question[1:]

    with agent_server(in_pieces) as server:
        async with serve_at(tmp_path) as client:
            run, rows = await run_of(client, settings_of("grpc", server.address, options={"stream": True}))
    assert run.counts.passed_count == 50
    for row in rows:
        assert row.response is not None
        assert row.response.time_to_first_token_ms is not None
        assert row.latency_ms is not None
        assert 0 < row.response.time_to_first_token_ms <= row.latency_ms


async def test_a_run_whose_service_is_not_there_is_not_accepted(
    serve_at: ServeAt, settings_of: SettingsOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is asked: the refusal names the field and what to do. A process that runs no shards does not look."""
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with agent_server(lambda question: "a") as server:
        address = server.address
    settings = settings_of("grpc", address, options={"metadata": {"authorization": "${NO_SUCH_KEY}"}})
    async with serve_at(tmp_path, agent_env=("NO_SUCH_KEY",)) as client:
        dataset = await client.upload_dataset(CASES, name="d")
        with pytest.raises(SpecError) as caught:
            await client.create_run(settings_of("grpc", address), dataset.dataset_id)
        assert [problem.field for problem in caught.value.problems] == ["agent.target"]
        assert "cannot be reached: start the service" in caught.value.message
        with pytest.raises(SpecError) as caught:
            await client.create_run(settings, dataset.dataset_id)
        assert [problem.field for problem in caught.value.problems] == ["agent.metadata.authorization"]
        for target, said in (("10.0.0.1:1", "--http-hosts"), ("unix:/nowhere", "HOST:PORT")):
            with pytest.raises(SpecError, match=said):
                await client.create_run(settings_of("grpc", target), dataset.dataset_id)
        found = await client.list_runs()
    assert found == []


async def test_a_secret_in_metadata_is_in_no_row_and_no_log(
    serve_at: ServeAt,
    settings_of: SettingsOf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not in the database either, although the agent repeats what it was sent."""
    caplog.set_level(logging.DEBUG)
    secret = "sekret-4711-key"
    monkeypatch.setenv("AGENT_KEY", secret)
    seen: list[str] = []

    def leaking(request: AgentRequest) -> str:
        seen.append(secret)
        if request.case_id == "c1":
            raise ValueError(f"the key {secret} is wrong")
        return f"{request.input}: {secret}"

    options = {"metadata": {"authorization": "Bearer ${AGENT_KEY}"}}
    with agent_server(leaking) as server:
        async with serve_at(tmp_path, agent_env=("AGENT_*",)) as client:
            run, rows = await run_of(client, settings_of("grpc", server.address, retries=0, options=options))
    assert (run.counts.finished_count, run.counts.agent_error_count, len(seen)) == (50, 1, 50)
    stored = (tmp_path / "assay.db").read_bytes()
    assert b"q49: " in stored
    assert secret.encode() not in stored
    assert secret not in f"{run}{rows}{caplog.text}"
