"""Metrics over parts of vectors and over windows, with a real embedder and models made on the spot."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.integration.orchestrator.conftest import _serve
from tests.support.services.ended_runs import run_cases

import assay
from assay.agent_host.caller import AgentCaller
from assay.embedder.v1 import embedder_pb2 as pb
from assay.errors import SpecError
from assay.metrics import complete_parameters
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Assertion, Case, Turn
from assay.model.run import AgentSpec, MetricSpec, RunSpec, RunState
from assay.model.run_spec import DatasetReading
from assay_embedder.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.model.run import RowResult, Run

DIMENSION = 8
KINDS = ("semantic_similarity", "satisfaction", "consistency", "assertions")
REFERENCE = "press the red button"
ANSWER = "the agent is online"
LONG_ANSWER = f"{'the agent is online ' * 30} {'press the red button ' * 10}"


@pytest.fixture(scope="module")
def model(make_tiny_model: Callable[[str], Path]) -> str:
    """A model of 16 values that was trained for 8, with a window of 32 word pieces."""
    folder = make_tiny_model("matryoshka")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "matryoshka_dimensions": [DIMENSION]}), "utf-8")
    return str(folder)


@pytest.fixture
async def embedder(start: Callable[..., Any], model: str) -> Any:
    """An embedder with that model."""
    return await start(Settings(device="cpu", models=(model,)))


def settings(model: str, adapter: str = "replay", **parameters: Any) -> RunSpec:
    """Return settings of a run whose metrics all need vectors."""
    given = {"model": model, **parameters}
    metrics = tuple(MetricSpec(kind, complete_parameters(kind, given, where=kind)) for kind in KINDS)
    return RunSpec(
        "r",
        AgentSpec(adapter, "" if adapter == "replay" else "agent:answer"),
        metrics,
        (),
        dataset=DatasetReading("records", "", "", checks={"similar": 1, "similar:dot": 1}),
    )


def case(answer: str) -> Case:
    """Return a case with that recorded answer."""
    checks = (Assertion("similar", REFERENCE), Assertion("similar:dot", REFERENCE))
    recorded = AgentResponse(text=answer, latency_ms=1.0)
    return Case("c", (Turn("q", references=(REFERENCE,)),), assertions=checks, recordings=((recorded,),))


async def finished(folder: Path, embedder: Any, wanted: RunSpec, answer: str) -> tuple[Run, RowResult]:
    """Run a case; return the run and the row."""
    async with _serve(folder, embedder=embedder.stub) as client:
        run = await run_cases(client, wanted, [case(answer)])
        assert run.state is RunState.COMPLETED, run.state_message
        (row,) = [row async for row in client.list_rows(run.run_id)]
        return run, row


async def vectors(embedder: Any, model: str, *texts: str, **options: Any) -> Any:
    """Return the vectors of texts as the embedder gives them, in float64."""
    response = await embedder.stub.Embed(pb.EmbedRequest(texts=texts, model=model, **options), timeout=60)
    return np.frombuffer(response.vectors, "<f4").reshape(len(texts), -1).astype(np.float64)


def details(row: RowResult) -> list[dict[str, Any]]:
    """Return the details of all scores, and of checks, that rest on vectors."""
    found = [dict(score.detail) for score in row.scores]
    return [*(one for one in found if "revision" in one), *(check for one in found for check in one.get("checks", ()))]


async def test_all_metrics_compare_the_first_values(tmp_path: Path, embedder: Any, model: str) -> None:
    """The cosine is that of the whole vectors' beginnings; scores, checks and summaries say so."""
    run, row = await finished(tmp_path, embedder, settings(model, dimension=DIMENSION), ANSWER)
    first, second = (await vectors(embedder, model, ANSWER, REFERENCE))[:, :DIMENSION]
    lengths = np.linalg.norm(first), np.linalg.norm(second)
    cosine = first @ second / (lengths[0] * lengths[1])
    scores = {score.metric: score for score in row.scores}
    assert scores["semantic_similarity"].value == pytest.approx(cosine, abs=1e-6)
    assert scores["satisfaction"].detail["similarity"] == pytest.approx(cosine, abs=1e-6)
    assert [check["nearest"] for check in scores["assertions"].detail["checks"]] == pytest.approx(
        [cosine] * 2, abs=1e-6
    )
    assert [(one["dimension"], "windowed" in one) for one in details(row)] == [(DIMENSION, False)] * 5
    assert run.summary is not None
    assert [one.detail["models"][0]["dimension"] for one in run.summary.metrics] == [DIMENSION] * len(KINDS)


async def test_long_texts_are_cut_and_flagged_or_compared_in_windows(tmp_path: Path, embedder: Any, model: str) -> None:
    """The end of a long answer has no effect, which row and summary say; windowed it has, and nothing is flagged."""
    cut_run, cut = await finished(tmp_path / "cut", embedder, settings(model), LONG_ANSWER)
    run, row = await finished(tmp_path / "windowed", embedder, settings(model, windowed=True), LONG_ANSWER)
    first, second = await vectors(embedder, model, LONG_ANSWER, REFERENCE, windowed=True)
    assert row.scores[0].value == pytest.approx(first @ second / (np.linalg.norm(first) * np.linalg.norm(second)))
    assert cut.scores[0].value is not None
    assert abs(cut.scores[0].value - (row.scores[0].value or 0)) > 1e-3
    assert [(one["truncated"], "windowed" in one) for one in details(cut)] == [(True, False)] * 5
    assert [(one["truncated"], one["windowed"]) for one in details(row)] == [(False, True)] * 5
    for ended, count, windowed in ((cut_run, 1, None), (run, 0, True)):
        assert ended.summary is not None
        for metric in ended.summary.metrics:
            assert (metric.detail["truncated"], metric.detail["models"][0].get("windowed")) == (count, windowed)


async def test_text_beyond_the_last_window_is_flagged(tmp_path: Path, embedder: Any, model: str) -> None:
    """So many windows are none to wait for: the rest is cut, and the row says so."""
    _, row = await finished(tmp_path, embedder, settings(model, windowed=True), "online " * 14_000)
    assert [one["truncated"] for one in details(row)] == [True] * 5


async def test_a_dimension_that_the_model_lacks_is_refused_before_the_agent_is_asked(
    tmp_path: Path, embedder: Any, model: str
) -> None:
    """By the metric that names it, with those that the model has; nothing is stored."""
    wanted = settings(model, "python", dimension=9)
    async with _serve(tmp_path, embedder=embedder.stub) as client:
        dataset = await client.upload_dataset([case(ANSWER)], name="d")
        for metric in wanted.metrics:
            with pytest.raises(SpecError, match=rf"metrics\.{metric.kind}.*no vectors of 9 values; .* one of: 8, 16"):
                await client.create_run(replace(wanted, metrics=(metric,)), dataset.dataset_id)
        assert await client.list_runs(5) == []


async def test_the_answer_about_a_dimension_is_waited_for(
    tmp_path: Path, start: Callable[..., Any], model: str
) -> None:
    """An embedder that still loads the model has the last word before the agent is asked, not after."""
    embedder = await start(Settings(device="cpu", models=(model,)), ready=False)
    asked: list[str] = []

    async def agent(request: Any) -> str:
        asked.append(request.case_id)
        return ANSWER

    async with _serve(tmp_path, embedder=embedder.stub) as client:
        dataset = await client.upload_dataset([case(ANSWER)], name="d")
        creating = asyncio.ensure_future(client.create_run(settings(model, "python", dimension=9), dataset.dataset_id))
        await asyncio.wait({creating}, timeout=0.3)
        assert not creating.done()
        await embedder.registry.load_listed()
        with pytest.raises(SpecError, match="no vectors of 9 values"):
            await creating
        run = await client.create_run(settings(model, "python", dimension=DIMENSION), dataset.dataset_id)
        await client.host_agent(run.run_id, AgentCaller(agent), concurrency=1)
    assert asked == ["c"]


async def test_scoring_outside_a_run_has_the_same_score(tmp_path: Path, embedder: Any, model: str) -> None:
    """`assay.score` takes the same parameters, and a function of one's own has no dimension to choose."""
    given: dict[str, Any] = {"model": model, "dimension": DIMENSION, "windowed": True}
    _, row = await finished(tmp_path, embedder, settings(**given), LONG_ANSWER)
    address = f"unix:{tmp_path / 'embedder.sock'}"
    score = await asyncio.to_thread(
        assay.score, "similarity", LONG_ANSWER, REFERENCE, embedder=address, parameters=given
    )
    assert score.value == pytest.approx(row.scores[0].value, abs=1e-6)
    assert (score.detail["dimension"], score.detail["windowed"]) == (DIMENSION, True)
    with pytest.raises(SpecError, match=r"dimension.*is for vectors of an embedder"):
        assay.score("similarity", "a", "b", embed=lambda texts: [[1.0]] * len(texts), dimension=DIMENSION)
