"""Cost of one run with hostile rows for other runs: health latency, and throughput of a run with cheap rows.

One orchestrator process over SQLite, its default limits. In each round a run of cheap rows (exact match, recorded
answers) is measured alone, beside an idle loop of another process that is as nice as a scorer, and beside a run of rows
that each take as long as they may: a schema that refers to itself twice, on 60 nested objects, which without a limit is
2^60 evaluations. Another process sends a health check every 10 ms, also while the hostile run is alone. Compare the
ratios: the parts of a round share whatever else the machine does. `--json FILE` saves the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.health_probe import probing
from benchmarks.saved_figures import save

from assay.client.client import Client
from assay.metrics import complete_parameters
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec, MetricSpec, RunSpec, RunState
from assay.rpc.channel import open_channel, wait_for_ready

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_SERVICE = "assay.v1.RunService"
_HOSTILE_ROWS = 400
_SCHEMA = {"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
_DEPTH = 60
_RUN_TIMEOUT_S = 600.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures = asyncio.run(measure(options.cases, options.rounds))
    print(json.dumps(figures, indent=1))
    save(options.json, figures)


async def measure(count: int, rounds: int) -> dict[str, Any]:
    """Return cheap rows per second and health latencies, alone and beside hostile rows, by turns."""
    rates: dict[str, list[float]] = {"alone": [], "beside a nice loop": [], "beside hostile rows": []}
    waits: dict[str, list[float]] = {"hostile rows alone": [], **{name: [] for name in rates}}
    async with serving() as address, Client(address) as client:
        cheap = await client.upload_dataset((_cheap(index) for index in range(count)), name="cheap")
        hostile = await client.upload_dataset((_hostile(index) for index in range(_HOSTILE_ROWS)), name="hostile")
        await _rate(client, cheap.dataset_id)  # warms up
        beside = {"alone": _nothing, "beside a nice loop": _loop, "beside hostile rows": _hostile_run}
        for _ in range(rounds):
            for name, other in beside.items():
                async with other(client, hostile.dataset_id), probing(address, _SERVICE, waits[name]):
                    rates[name].append(await _rate(client, cheap.dataset_id))
            async with (
                _hostile_run(client, hostile.dataset_id),
                probing(address, _SERVICE, waits["hostile rows alone"]),
            ):
                await asyncio.sleep(3.0)
    return {
        "cheap_rows_per_s": {name: round(statistics.median(values)) for name, values in rates.items()},
        "throughput_kept": {
            name: [round(rate / alone, 2) for rate, alone in zip(values, rates["alone"], strict=True)]
            for name, values in rates.items()
        },
        "health_ms": {name: _percentiles(values) for name, values in waits.items()},
    }


@asynccontextmanager
async def _nothing(client: Client, hostile_id: str) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def _loop(client: Client, hostile_id: str) -> AsyncIterator[None]:
    """Use all remaining processor time in another process."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import os; os.nice(10)\nwhile True: pass")
    try:
        yield
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def _hostile_run(client: Client, hostile_id: str) -> AsyncIterator[None]:
    """Score a run of hostile rows."""
    settings = _settings("hostile", MetricSpec("json_schema", {"schema": _SCHEMA}))
    run_id = (await client.create_run(settings, hostile_id)).run_id
    try:
        yield
        run = await client.get_run(run_id, partial=False)
        assert run.state is RunState.RUNNING, "the hostile run lasted through the whole measurement"
    finally:
        await client.cancel_run(run_id)


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """Start an orchestrator over an empty file; yield its address."""
    with TemporaryDirectory(prefix="assay-bench-") as folder:
        address = f"unix:{folder}/o.sock"
        command = [sys.executable, "-m", "assay_orchestrator", "--listen", address, "--database", f"{folder}/a.db"]
        process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
        try:
            async with open_channel(address) as channel:
                await wait_for_ready(channel, _SERVICE, 60.0)
            yield address
        finally:
            process.terminate()
            await process.wait()


async def _rate(client: Client, dataset_id: str) -> float:
    """Return rows per second of a run of cheap rows."""
    run = await client.create_run(_settings("cheap", MetricSpec("exact_match")), dataset_id)
    async with asyncio.timeout(_RUN_TIMEOUT_S):
        while not run.finished:
            await asyncio.sleep(0.05)
            run = await client.get_run(run.run_id, partial=False)
    assert run.state is RunState.COMPLETED, f"the run of cheap rows is {run.state.value}: {run.state_message}"
    took = datetime.fromisoformat(run.ended_at) - datetime.fromisoformat(run.started_at)
    return run.counts.total_count / took.total_seconds()


def _settings(name: str, metric: MetricSpec) -> RunSpec:
    complete = MetricSpec(metric.name, complete_parameters(metric.kind, metric.parameters, where="metrics[0]"))
    return RunSpec(name, AgentSpec("replay", concurrency=64), (complete,))


def _cheap(index: int) -> Case:
    return Case(f"c{index}", (Turn(f"q{index}", references=("right",)),), recordings=((AgentResponse(text="right"),),))


def _hostile(index: int) -> Case:
    value: dict[str, Any] = {}
    for _ in range(_DEPTH):
        value = {"a": value}
    return Case(f"h{index}", (Turn("q"),), recordings=((AgentResponse(output=value),),))


def _percentiles(values: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=100)
    return {"p50": round(cuts[49], 1), "p99": round(cuts[98], 1), "max": round(max(values), 1), "count": len(values)}


if __name__ == "__main__":
    main()
