"""Checks of cases at an orchestrator that has no embedder: not made, counted, and no reason to refuse a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from assay.gates.run_verdict import run_verdict
from assay.metrics import complete_parameters
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Assertion, Case, Turn
from assay.model.run import MetricSettings, RunState

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.client.client import Client
    from assay.model.run import Run, RunSettings

    ServeAt = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSettings]


def case(number: int, *checks: Assertion) -> Case:
    """Return a case with an answer and checks of it."""
    return Case(f"c{number}", (Turn("q"),), assertions=checks, recorded=AgentResponse(text="It opens at nine."))


async def done(client: Client, settings: RunSettings, *kinds: str) -> Run:
    """Return a run of some metrics over two cases, of which one has a check by embeddings, once it has ended."""
    metrics = tuple(MetricSettings(kind, complete_parameters(kind, {}, where=kind)) for kind in kinds)
    similar = Assertion("similar", "It opens at 9.")
    cases = [case(0, Assertion("contains", "nine")), case(1, similar, Assertion("contains", "nine"))]
    dataset = await client.upload_dataset(cases, name="d")
    run = await client.create_run(replace(settings, metrics=metrics, gates=()), dataset.dataset_id)
    async for _ in client.watch_run(run.run_id):
        pass
    return await client.get_run(run.run_id)


async def test_a_check_by_embeddings_without_an_embedder(
    tmp_path: Path, serve_at: ServeAt, settings_of: SettingsOf
) -> None:
    """The run is taken, since only cases tell whether it needs vectors; the row is undecided and the run incomplete."""
    async with serve_at(tmp_path) as client:
        run = await done(client, settings_of(), "assertions")
        rows = [row async for row in client.list_results(run.run_id)]
    assert run.state is RunState.SUCCEEDED
    assert run.summary is not None
    verdict = run_verdict(run.summary)
    assert (verdict.status, verdict.reasons) == (
        "INCOMPLETE",
        ("1 of 3 checks are not made: similar 1 (no embedder)",),
    )
    assert [(row.passed, row.reason) for row in rows] == [
        (True, ""),
        (None, "assertions is undecided: not made: similar (no embedder)"),
    ]


async def test_a_metric_that_needs_vectors_of_every_row_fails_the_run(
    tmp_path: Path, serve_at: ServeAt, settings_of: SettingsOf
) -> None:
    """Beside checks, too, and whatever model these have."""
    async with serve_at(tmp_path) as client:
        run = await done(client, settings_of(), "assertions", "semantic_similarity")
    assert run.state is RunState.FAILED
    assert "this orchestrator has none" in run.state_reason
