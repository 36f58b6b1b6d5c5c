"""Throughput of runs with 2 to 8 workers and agents that take time: processes over one PostgreSQL.

The same runs are processed by few and by many workers. Each worker runs a fixed number of shards, so it is bound by
the time of its agents, as in an installation, and not by the processors of this machine. Run from the root of the
repository: `python -m benchmarks.scaling [--rounds N] [--json FILE]`. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop
from benchmarks import engine_stand as stands
from benchmarks.engine import postgres
from benchmarks.saved_figures import save

from assay.client.client import Client

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKERS = (2, 4, 8)
SHARDS_EACH = 2
RUNS = 32
CASES = 64
CONCURRENCY = 8
LATENCY_S = 2.0
GOAL = 0.9


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="how often each number of workers is measured")
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORKERS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with postgres() as server_url:
        figures = uvloop.run(measure(server_url, options.workers, options.rounds))
    print(json.dumps(figures, indent=1))
    save(options.json, figures)


async def measure(server_url: str, counts: Sequence[int], rounds: int) -> dict[str, Any]:
    """Return rows per second by number of workers, and the share of linear scaling."""
    seen: dict[int, list[float]] = {count: [] for count in counts}
    cpu: dict[int, dict[str, float]] = {}
    with stands.AgentProcess(LATENCY_S) as agent:
        for _ in range(rounds):
            for count in counts:
                wall_s, cpu[count] = await work(server_url, agent, count)
                seen[count].append(RUNS * CASES / wall_s)
                print(f"{count} workers: {seen[count][-1]:.1f} rows/s", flush=True)
        asked, again = agent.asked()
    rates = {count: stands.numbers(values, 1) for count, values in seen.items()}
    least = min(counts)
    return {
        "runs": RUNS, "cases_each": CASES, "concurrency_each": CONCURRENCY, "agent_latency_s": LATENCY_S,
        "shards_at_once_each_worker": SHARDS_EACH, "goal": GOAL, "rows_per_s": rates, "cpu_s": cpu,
        "bound_by_latency_rows_per_s": {count: count * SHARDS_EACH * CONCURRENCY / LATENCY_S for count in counts},
        "of_linear_growth": {
            count: round(rates[count]["median"] / rates[least]["median"] / (count / least), 3) for count in counts
        },
        "questions": asked, "asked_twice": again,
    }  # fmt: skip


async def work(server_url: str, agent: stands.AgentProcess, workers: int) -> tuple[float, dict[str, float]]:
    """Return the seconds from the first run's creation to the last run's end, and processor seconds by process."""
    async with stands.open_stand(server_url, "postgres") as stand:
        address = stand.place("api", "--role", "api")
        doors = [
            stand.place(f"worker{number}", "--role", "worker", "--shard-limit", str(SHARDS_EACH))
            for number in range(workers)
        ]
        stand.start()
        await stands.wait_at(address)
        for door in doors:
            await stands.wait_at(door, "")
        gauge = stands.Gauge(stand.orchestrators())
        async with Client(address) as client:
            settings = [
                stands.settings(f"team{number}", "http", agent.url, concurrency=CONCURRENCY) for number in range(RUNS)
            ]
            dataset = await client.upload_dataset(stands.plain_cases(CASES), name="scaling")
            began = time.monotonic()
            runs = [await client.create_run(run_spec, dataset.dataset_id) for run_spec in settings]
            await asyncio.gather(*(stands.until_ended(client, run.run_id) for run in runs))
            wall_s = time.monotonic() - began
            for run in runs:
                counts = (await client.get_run(run.run_id, partial=False)).counts
                assert (counts.finished_count, counts.agent_error_count) == (CASES, 0), f"{run.run_id}: {counts}"
        return wall_s, gauge.figures()["cpu_s"]


if __name__ == "__main__":
    main()
