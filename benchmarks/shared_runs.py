"""Whole runs at a shared orchestrator, with TLS, tokens, quotas, metrics and traces, compared with a plain one.

Two orchestrator processes, each with an SQLite file of its own: one plain, one with all that a shared installation has,
its spans sent to a collector in another process. `assay run --server` runs the same spec at both by turns, its agent in
the command's process. Ratios are medians over the rounds; processor time is that of command and server together.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
from benchmarks.flood import start_server, store_tokens
from benchmarks.saved_figures import save
from benchmarks.span_sink import taking_spans
from benchmarks.throughput import AGENTS, cpu_seconds, seconds_between, write_project

JOBS = {
    "1,000 instant cases": (1_000, "instant", 64),
    "5,000 instant cases": (5_000, "instant", 64),
    "1,000 cases of 50 ms at concurrency 100": (1_000, "50 ms", 100),
}
_PLAIN, _SHARED = "plain", "shared"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with TemporaryDirectory(prefix="assay-shared-runs-") as folder:
        figures = asyncio.run(measure(Path(folder), options.rounds))
    print(json.dumps(figures, indent=1))
    save(options.json, figures)


async def measure(folder: Path, rounds: int) -> dict[str, Any]:
    """Return the figures of each job at both servers, and the ratios of the shared to the plain server."""
    figures: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        places = {name: folder / name for name in (_PLAIN, _SHARED)}
        for place in places.values():
            place.mkdir()
        (token,) = await store_tokens(places[_SHARED], ["measured"])
        servers = {
            _PLAIN: await start_server(places[_PLAIN], stack, is_shared=False),
            _SHARED: await shared_server(places[_SHARED], stack),
        }
        own = {"ASSAY_TOKEN": token, "ASSAY_TLS_CA": str(places[_SHARED] / "c.pem")}
        environments: dict[str, dict[str, str]] = {_PLAIN: {}, _SHARED: own}
        for job, (count, agent, concurrency) in JOBS.items():
            figures_by_server: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
            for name, place in places.items():
                write_project(place, count, AGENTS[agent], concurrency)
                run(place, *servers[name], environments[name], count)  # warms up both
            for _ in range(rounds):
                for name, place in places.items():
                    figures_by_server[name].append(run(place, *servers[name], environments[name], count))
            figures[job] = {name: medians(server_rounds) for name, server_rounds in figures_by_server.items()}
            figures[job]["ratio"] = {
                key: round(
                    statistics.median(
                        shared[key] / plain[key]
                        for shared, plain in zip(figures_by_server[_SHARED], figures_by_server[_PLAIN], strict=True)
                    ),
                    3,
                )
                for key in ("cases_per_s_running", "cpu_s")
            }
    return figures


async def shared_server(folder: Path, stack: AsyncExitStack) -> tuple[str, int]:
    """Start an orchestrator with all features of a shared installation; return its address and process."""
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = await stack.enter_async_context(taking_spans())
    return await start_server(folder, stack, "--metrics-listen", "127.0.0.1:0", "--traces")


def run(folder: Path, address: str, server: int, environment: dict[str, str], count: int) -> dict[str, float]:
    """Run the command once; return its figures."""
    command = [sys.executable, "-m", "assay_cli", "run", "assay.yaml", "--server", address, "--no-progress"]
    environment = {**os.environ, "ASSAY_HOME": str(folder / "home"), **environment}
    process = psutil.Process(server)
    shutil.rmtree(folder / "out", ignore_errors=True)  # a report of another run would not be overwritten
    before, served = cpu_seconds(), process.cpu_times()
    done = subprocess.run(
        [*command, "--output-dir", "out"], cwd=folder, env=environment, capture_output=True, timeout=600, check=False
    )
    if done.returncode != 0:
        sys.exit(f"the command failed: {done.stderr.decode()}")
    after = process.cpu_times()
    cpu_s = cpu_seconds() - before + after.user + after.system - served.user - served.system
    seen = json.loads((folder / "out" / "results.json").read_text())["run"]
    running_s = seconds_between(seen["started_at"], seen["ended_at"])
    return {"cases_per_s_running": count / running_s, "running_s": running_s, "cpu_s": cpu_s}


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure."""
    return {name: round(statistics.median(figures[name] for figures in rounds), 3) for name in rounds[0]}


if __name__ == "__main__":
    main()
