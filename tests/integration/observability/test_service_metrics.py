"""What the services count and measure of a judged run, read as Prometheus reads it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes.waiting import until
from tests.support.services.scraped_metrics import read_families, scraped
from tests.unit.test_guide_tables import SECTIONS, instruments

from assay.telemetry.exporter import exporting
from assay_orchestrator.queries.queue_gauges import QueueGauges

if TYPE_CHECKING:
    from collections.abc import Callable


async def test_a_run_is_counted_in_every_service(installed: Callable[..., Any]) -> None:
    """Rows, questions, tokens, money, verdicts, texts, batches and cache; a second run finds vectors and verdicts."""
    async with exporting("127.0.0.1:0", service="all", names_teams=True) as address:
        async with installed() as installation:
            await installation.run(5)
            await installation.run(5)
            async with QueueGauges(installation.database):
                found = await until(lambda: scraped(address), lambda seen: "assay_queue_read_timestamp_seconds" in seen)
        families = await asyncio.to_thread(read_families, address)
    assert found["assay_rows_total"] == {("passed", "local"): 10}
    assert found["assay_agent_questions_total"] == {("http", "success", "local"): 10}
    assert found["assay_agent_tokens_total"] == {("http", "input", "local"): 70, ("http", "output", "local"): 20}
    assert found["assay_agent_duration_seconds_count"] == {("http", "local"): 10}
    assert found["assay_judge_cache_requests_total"] == {("hit",): 5, ("miss",): 5}
    # One call more is the preflight check of the first run, by which the second knows that it would pass.
    assert found["assay_judge_calls_total"] == {("judge-1", "replied", "direct"): 6}
    assert found["assay_judge_tokens_total"] == {("input", "judge-1"): 6_008, ("output", "judge-1"): 751}
    cost = 5 * (1_200 * 1 + 150 * 5) / 1_000_000
    preflight = (8 * 1 + 1 * 5) / 1_000_000
    assert found["assay_judge_cost_dollars_total"]["judge-1",] == pytest.approx(cost + preflight)
    assert found["assay_verdict_cost_dollars_total"]["local",] == pytest.approx(cost)
    assert found["assay_verdict_tokens_total"] == {("input", "local"): 6_000, ("output", "local"): 750}
    assert found["assay_judge_verdicts_total"] == {("", "valid"): 10}
    assert found["assay_judge_breaker_open"] == {("judge-1",): 0}
    texts = found["assay_embedder_texts_total"]
    # "four", which is answer and reference, and the text of the preflight check.
    assert (texts["all-MiniLM-L6-v2", "computed"], texts["all-MiniLM-L6-v2", "cache"]) == (2, 2)
    assert found["assay_embedder_batch_texts_count"]["all-MiniLM-L6-v2",] >= 1
    assert found["assay_embedder_queue_texts"] == {("all-MiniLM-L6-v2",): 0}
    assert found["assay_shards_in_work"] == {(): 0}
    assert found["assay_queue_shards"] == {("waiting",): 0, ("queued",): 0, ("taken",): 0}
    assert found["assay_processes"] == {(): 1}
    listed = {one.name: one for section in SECTIONS for one in instruments(section)}
    exposed = {name for name in families if name.startswith("assay_")}
    assert exposed <= set(listed)
    # What only PostgreSQL, storage that fails and judges by themselves have is set elsewhere.
    assert set(listed) - exposed <= {
        "assay_worker_heartbeat_timestamp_seconds", "assay_storage_paused_runs", "assay_runs", "assay_unfinished_rows",
        "assay_judge_batch_orders", "assay_judge_batch_oldest_seconds",
    }  # fmt: skip
    for name in exposed:
        assert (families[name.removesuffix("_created")].type, families[name].documentation) == (
            listed[name].kind, listed[name].text
        )  # fmt: skip
    assert found["assay_rpc_calls_total"]["OK", "RunService/CreateRun"] == 2
