"""The figures of the queue, over both databases, and the gauges that are set to them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.support.processes.waiting import until
from tests.support.services.scraped_metrics import scraped

from assay.model.case import Case, Turn
from assay.telemetry.exporter import exporting
from assay_orchestrator.queries.queue_gauges import QueueGauges
from assay_orchestrator.store.shards.queue_figures import QueueFigures, RunFigures, read_queue_figures

if TYPE_CHECKING:
    from collections.abc import Callable

    import sqlalchemy as sa

CASES = [Case(f"c{at}", (Turn("q", references=("a",)),)) for at in range(3)]


async def test_figures_are_of_what_has_not_ended(
    serve: Callable[..., Any], settings_of: Callable[..., Any], engine: sa.Engine
) -> None:
    """A run that no client hosts waits and grows old; a paused one has its cause; one that was cancelled is gone."""
    async with serve() as client:
        dataset = await client.upload_dataset(CASES, name="d")
        waiting, paused, cancelled = [
            (await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)).run_id for _ in range(3)
        ]
        await client.pause_run(paused)
        await client.cancel_run(cancelled)

        def read() -> QueueFigures:
            with engine.connect() as connection:
                return read_queue_figures(connection)

        figures = await until(lambda: asyncio.to_thread(read), lambda seen: seen.processes == 1)
        created_at = (await client.get_run(waiting)).created_at
    # A shard may be started before a client hosts the agent.
    (state,) = {one.state for one in figures.runs} - {"paused"}
    assert state in ("pending", "running")
    assert {one.state: one for one in figures.runs} == {
        state: RunFigures("local", state, "", 1, 3), "paused": RunFigures("local", "paused", "owner", 1, 3)
    }  # fmt: skip
    assert sum(figures.shards.values()) == 1
    assert figures.oldest_pending_at == (created_at if state == "pending" else "")


async def test_a_series_of_which_nothing_is_left_becomes_zero() -> None:
    """It does not keep the last count; the age of the oldest run counts from its creation."""
    shown = [
        QueueFigures([RunFigures("red", "paused", "judge", 2, 7)], {"waiting": 3}, "2026-01-01T00:00:00.000Z", 2),
        QueueFigures([], {}, "", 1),
    ]

    class Store:
        async def read(self, query: Any) -> QueueFigures:
            return shown.pop(0) if len(shown) > 1 else shown[0]

    async with exporting("127.0.0.1:0", service="test") as address, QueueGauges(Store(), read_s=0.2):
        found = await until(lambda: scraped(address), lambda seen: "assay_runs" in seen)
        assert found["assay_runs"] == {("judge", "paused", ""): 2}
        assert found["assay_unfinished_rows"] == {("paused", ""): 7}
        assert found["assay_queue_shards"]["waiting",] == 3
        assert found["assay_queue_oldest_pending_seconds"][()] > 0
        found = await until(lambda: scraped(address), lambda seen: not seen["assay_processes"][()] - 1)
        assert found["assay_runs"] == {("judge", "paused", ""): 0}
        assert found["assay_queue_shards"]["waiting",] == 0
        assert found["assay_queue_oldest_pending_seconds"] == {(): 0}
