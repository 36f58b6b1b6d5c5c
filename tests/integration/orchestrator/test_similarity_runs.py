"""Runs whose scores are cosines, against an embedder behind the real wire."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.orchestrator.small_embedder import SmallEmbedder, cosine_of
from tests.support.services.ended_runs import await_end, run_cases

from assay.agent_host.caller import AgentCaller
from assay.embedder.v1 import embedder_pb2_grpc
from assay.errors import InvalidInputError, Problem, SpecError, UnavailableError
from assay.metrics import complete_parameters
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Assertion, Case, Turn
from assay.model.run import MetricSpec, RunState
from assay.rpc.channel import open_channel
from assay.rpc.server import RpcServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.client.client import Client
    from assay.model.run import RowResult, RunSpec

    ServeAt = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]

CASES = 40


@asynccontextmanager
async def served(embedder: SmallEmbedder, folder: Path) -> AsyncIterator[Any]:
    """Serve an embedder and yield a stub of it."""
    server = RpcServer()
    server.add(
        "assay.embedder.v1.EmbedderService",
        lambda grpc: embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(embedder, grpc),
    )
    address = await server.start(f"unix:{folder}/e.sock")
    server.set_serving(True)
    try:
        async with open_channel(address) as channel:
            yield embedder_pb2_grpc.EmbedderServiceStub(channel)
    finally:
        embedder.gate.set()
        await server.stop(0)


def small_embedder() -> SmallEmbedder:
    """Return an embedder that keeps vectors."""
    return SmallEmbedder("packed")  # type: ignore[abstract]  # the methods that are called are there


def case(number: int) -> Case:
    """Return a case whose recorded answer has a cosine of its own with its two references and with a check's text."""
    return Case(
        f"c{number}",
        (Turn("q", references=("x" * (number + 1), "reference")),),
        assertions=(Assertion("similar", f"{number} text", threshold=0.1),),
        recordings=((AgentResponse(text=f"a{number}" * (number + 1)),),),
    )


def metrics(*kinds: str) -> tuple[MetricSpec, ...]:
    """Return metrics with their defaults."""
    return tuple(MetricSpec(kind, complete_parameters(kind, {}, where=kind)) for kind in kinds)


async def finished(client: Client, settings: RunSpec, cases: Sequence[Case]) -> dict[str, RowResult]:
    """Run cases to their end; return the rows by case."""
    run = await run_cases(client, settings, cases)
    assert run.state is RunState.COMPLETED, run.state_message
    return {row.case_id: row async for row in client.list_rows(run.run_id)}


def values(rows: dict[str, RowResult], metric: str) -> dict[str, float | None]:
    """Return a metric's values by case."""
    return {name: next(score.value for score in row.scores if score.metric == metric) for name, row in rows.items()}


async def test_scores_do_not_depend_on_order_shards_or_other_metrics(
    tmp_path: Path, serve_at: ServeAt, settings_of: SettingsOf
) -> None:
    """Bit for bit: cases the other way round, a run whose metrics keep vectors, too, and an embedder that restarts."""
    embedder = small_embedder()
    cases = [case(number) for number in range(CASES)]
    settings = replace(settings_of(), gates=(), metrics=metrics("semantic_similarity", "assertions"))
    async with served(embedder, tmp_path) as stub, serve_at(tmp_path, embedder=stub) as client:
        plain = await finished(client, settings, cases)
        assert embedder.calls == []
        backwards = await finished(client, settings, cases[::-1])
        embedder.lose_streams = embedder.streams + 1
        more = metrics("consistency", "semantic_similarity", "satisfaction", "assertions")
        with_vectors = await finished(client, replace(settings, metrics=more), cases)
        assert embedder.calls
    for metric in ("semantic_similarity", "assertions"):
        assert values(plain, metric) == values(backwards, metric) == values(with_vectors, metric)
    assert values(plain, "semantic_similarity") == {
        each.case_id: max(
            cosine for text in each.references if (cosine := cosine_of(each.recorded.text, text)) is not None
        )
        for each in cases
        if each.recorded is not None
    }
    detail = next(score.detail for score in plain["c0"].scores if score.metric == "semantic_similarity")
    assert (detail["precision"], detail["engine"]) == ("exact", "packed")
    assert embedder.scopes == {"local"}


async def test_references_are_computed_while_the_agent_is_asked(
    tmp_path: Path, serve_at: ServeAt, settings_of: SettingsOf
) -> None:
    """Those of rows in flight, and of no other rows: the agent answers once the embedder has its reference."""
    embedder, cases = small_embedder(), [replace(case(number), assertions=()) for number in range(6)]
    ahead: list[set[str]] = []

    async def agent(request: Any) -> str:
        number = int(request.case_id[1:])
        async with asyncio.timeout(20):
            while ("x" * (number + 1),) * 2 not in embedder.pairs:
                embedder.called.clear()
                await embedder.called.wait()
        ahead.append({first for first, second in embedder.pairs if first == second})
        return f"answer {number}"

    settings = replace(
        settings_of("python", "agent:answer", concurrency=1), gates=(), metrics=metrics("semantic_similarity")
    )
    async with served(embedder, tmp_path) as stub, serve_at(tmp_path, embedder=stub) as client:
        dataset = await client.upload_dataset(cases, name="d")
        run = await client.create_run(settings, dataset.dataset_id)
        hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=1))
        await await_end(client, run.run_id)
        await hosting
        rows = {row.case_id: row async for row in client.list_rows(run.run_id)}
    assert ahead == [
        {"x" * (number + 1) for number in range(last)} | {"reference"} for last in range(1, len(cases) + 1)
    ]
    assert values(rows, "semantic_similarity") == {
        f"c{number}": max(cosine_of(f"answer {number}", text) or 0.0 for text in each.references)
        for number, each in enumerate(cases)
    }


@pytest.mark.parametrize(
    ("problem", "is_refused"),
    [
        (InvalidInputError([Problem("is not served here", field="model")], reason="MODEL_NOT_FOUND"), True),
        (UnavailableError("starting", reason="NOT_READY"), False),
        (None, False),
    ],
)
async def test_a_run_whose_model_is_not_served_is_refused(
    tmp_path: Path, serve_at: ServeAt, settings_of: SettingsOf, problem: Exception | None, is_refused: bool
) -> None:
    """Before it is stored, with the metric that names the model; an embedder that is starting refuses nothing."""
    embedder = small_embedder()
    embedder.preflight = problem
    settings = replace(settings_of(), gates=(), metrics=metrics("exact_match", "semantic_similarity"))
    async with served(embedder, tmp_path) as stub, serve_at(tmp_path, embedder=stub) as client:
        if not is_refused:
            assert len(await finished(client, settings, [case(0)])) == 1
            return
        with pytest.raises(SpecError, match=r"semantic_similarity.*all-MiniLM-L6-v2.*is not served here"):
            await finished(client, settings, [case(0)])
        assert embedder.pairs == []
