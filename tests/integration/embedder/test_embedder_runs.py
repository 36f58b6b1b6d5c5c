"""The real model over the real wire: what a score depends on, and the numbers that the definitions of metrics quote."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.integration.orchestrator.conftest import _serve
from tests.support.embedder.embedding_models import ODD, texts_in_ten_scripts
from tests.support.processes.waiting import until
from tests.support.services.ended_runs import await_end

from assay.agent_host.caller import AgentCaller
from assay.embedder.v1 import embedder_pb2 as pb
from assay.metrics import complete_parameters
from assay.metrics.consistency import consistency
from assay.metrics.core.similarity import cosine
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec, MetricSpec, RunSpec, RunState
from assay_embedder.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from assay.client.client import Client
    from assay.model.run import Run
    from assay_embedder.models.loading import Model


CASES = 42
REPEATS = 25  # 1,050 rows, two shards
_SHORT = texts_in_ten_scripts(len(ODD) + CASES * 4)[len(ODD) :]
TEXTS = [" ".join(_SHORT[at::17]) for at in range(CASES * 3)]  # of three to ten each


def cases() -> list[Case]:
    """Return cases with two references and a recorded answer each, of mixed lengths."""
    return [
        Case(
            f"c{at}",
            (Turn(f"q{at}", references=(TEXTS[at], TEXTS[CASES + at])),),
            recordings=((AgentResponse(text=TEXTS[2 * CASES + at]),),),
        )
        for at in range(CASES)
    ]


def settings(*kinds: str, adapter: str = "replay", repeats: int = 1) -> RunSpec:
    """Return settings of a run with some metrics."""
    metrics = tuple(MetricSpec(kind, complete_parameters(kind, {}, where=kind)) for kind in kinds)
    target = "" if adapter == "replay" else "agent:answer"
    return RunSpec("r", AgentSpec(adapter, target, concurrency=4), metrics, (), repeats=repeats)


async def started(client: Client, wanted: RunSpec, content: Sequence[Case]) -> Run:
    """Create a run over some cases."""
    dataset = await client.upload_dataset(content, name="d")
    return await client.create_run(wanted, dataset.dataset_id)


async def cosines(client: Client, run: Run, row_count: int = CASES) -> dict[str, set[float | None]]:
    """Wait for the end of a run; return the different similarities of each case."""
    ended = await await_end(client, run.run_id)
    assert ended.state is RunState.COMPLETED, ended.state_message
    rows = [row async for row in client.list_rows(run.run_id)]
    assert len(rows) == row_count
    found: dict[str, set[float | None]] = {}
    for row in rows:
        score = next(score for score in row.scores if score.metric == "semantic_similarity")
        found.setdefault(row.case_id, set()).add(score.value)
    return found


async def resumed_cosines(folder: Path, embedder: Any) -> dict[str, set[float | None]]:
    """Return the similarities of a run that is paused half way and resumed by another orchestrator."""
    answers = {case.case_id: TEXTS[2 * CASES + at] for at, case in enumerate(cases())}
    asked: list[str] = []
    half, may_answer = asyncio.Event(), asyncio.Event()

    async def agent(request: Any) -> str:
        asked.append(request.case_id)
        if len(asked) > CASES // 2:
            half.set()
            await may_answer.wait()
        return answers[request.case_id]

    def hosting(client: Client, run: Run) -> asyncio.Future[Any]:
        return asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=4))

    async with _serve(folder, embedder=embedder) as client:
        run = await started(client, settings("semantic_similarity", adapter="python"), cases())
        host = hosting(client, run)
        await half.wait()
        pausing = asyncio.ensure_future(client.pause_run(run.run_id))
        await until(lambda: client.get_run(run.run_id), lambda seen: seen.pause_cause is not None)
        may_answer.set()
        await pausing  # it returns after some seconds, also where the rows in flight take longer
        paused: Run = await until(lambda: client.get_run(run.run_id), lambda seen: seen.state is RunState.PAUSED)
        assert CASES // 2 < paused.counts.finished_count < CASES
        await host
    async with _serve(folder, embedder=embedder) as client:
        await client.resume_run(run.run_id)
        host = hosting(client, run)
        found = await cosines(client, run)
        await host
    assert sorted(asked) == sorted(answers)
    return found


async def test_scores_are_the_same_bits_in_every_run(
    tmp_path: Path, start: Callable[..., Any], default_model: Model
) -> None:
    """In another order of cases, with added metrics, over two shards with repeats, and after a resume.

    The embedder keeps no vectors: each run has its texts computed anew, in batches of its own.
    """
    embedder = await start(Settings(device="cpu", cache_mib=0), load=lambda name, **options: default_model)
    more = settings("consistency", "semantic_similarity", "satisfaction", repeats=REPEATS)
    async with _serve(tmp_path, embedder=embedder.stub) as client:
        plain = await cosines(client, await started(client, settings("semantic_similarity"), cases()))
        other = await cosines(client, await started(client, more, cases()[::-1]), CASES * REPEATS)
    resumed = await resumed_cosines(tmp_path, embedder.stub)
    assert plain == other == resumed
    assert {len(values) for values in plain.values()} == {1}
    assert len(set.union(*plain.values())) == CASES


async def vectors_of(embedder: Any, *texts: str) -> list[NDArray[np.float32]]:
    """The vectors of some texts."""
    response = await embedder.stub.Embed(pb.EmbedRequest(texts=texts), timeout=100)
    return list(np.frombuffer(response.vectors, dtype="<f4").reshape(-1, response.dimension))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (
            (
                "Paris is the capital of France.",
                "The capital city of France is Paris.",
                "Paris is France's capital.",
            ),
            0.9780,
        ),
        (
            (
                "Paris is the capital of France.",
                "Bananas are rich in potassium.",
                "There are 42 open tenders.",
            ),
            -0.0129,
        ),
        (("yes", "no"), 0.7335),
    ],
)
async def test_known_texts(embedder: Any, texts: tuple[str, ...], expected: float) -> None:
    """Paraphrases are consistent, unrelated texts are not, and one-word answers all look alike."""
    assert consistency(await vectors_of(embedder, *texts)) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("The agent is online.", "The agent is not online.", 0.893),
        ("", "The agent is online.", 0.1018),
        ("", "", 1.0),
    ],
)
async def test_what_the_model_makes_of_odd_texts(embedder: Any, first: str, second: str, expected: float) -> None:
    """A negation is near its opposite, and an empty text has some vector: why the metrics never ask for it."""
    one, other = await vectors_of(embedder, first, second)
    assert cosine(one, other) == pytest.approx(expected, abs=2e-3)
