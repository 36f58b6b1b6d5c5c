"""How the engine behaves under load: restarts, cases per second, fairness, watchers, stops.

Real processes over SQLite and over PostgreSQL, which is brought as the tests bring it. From the root of the
repository: `python -m benchmarks.engine [SCENARIO ...] [--full] [--json FILE]`. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import engine_stand as stands
from tests.conftest import GIVEN_URL, _own_server

from assay.client import Client
from assay.results import CaseResult, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

REPEATS = 3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"any of {', '.join(SCENARIOS)}; default all")
    parser.add_argument("--full", action="store_true", help="the sizes of the goals rather than small ones")
    parser.add_argument("--json", type=Path, help="where to keep the figures; those of other scenarios there stay")
    given = parser.parse_args()
    if unknown := sorted(set(given.scenarios) - set(SCENARIOS)):
        parser.error(f"no scenario {', '.join(unknown)}: there are {', '.join(SCENARIOS)}")
    figures: dict[str, Any] = {}
    with postgres() as server_url:
        for name in given.scenarios or SCENARIOS:
            began = time.monotonic()
            figures[name] = asyncio.run(SCENARIOS[name](server_url, given.full))
            print(f"{name} ({time.monotonic() - began:.0f} s)", json.dumps(figures[name], indent=1), flush=True)
    if given.json:
        known = json.loads(given.json.read_text())["figures"] if given.json.exists() else {}
        machine = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
        document = {"machine": machine, "figures": known | figures}
        given.json.write_text(json.dumps(document, indent=1) + "\n")


@contextmanager
def postgres() -> Iterator[str]:
    """Yield the URL of a PostgreSQL: the one given as to tests, or one of our own."""
    if given := os.environ.get(GIVEN_URL):
        yield given
        return
    with _own_server() as server:
        yield server.url


async def restart(server_url: str, full: bool) -> dict[str, Any]:
    """Return the seconds from kill -9 with 10,000 cases open until the first new result has reached a watcher."""
    figures: dict[str, Any] = {"goal_s": 5}
    for kind in stands.BOTH:
        figures[kind] = stands.numbers([await restart_once(server_url, kind) for _ in range(5 if full else REPEATS)])
    return figures


async def restart_once(server_url: str, kind: str) -> float:
    """Kill the one process in the midst of a run; its place takes another at once."""
    async with stands.open_stand(server_url, kind) as stand:
        timing = ("--heartbeat-s", "1", "--dead-after-s", "4") if kind == "postgres" else ()
        address = stand.place("all", *timing)
        stand.start()
        await stands.wait_at(address)
        async with Client(address) as client:
            run = await stands.create_run(client, stands.settings("bench"), stands.recorded_cases(10_000))
            killed_at, stored = 0.0, 0
            async for event in client.watch_run(run.run_id):
                if isinstance(event, Run) and killed_at:
                    # Conservative: what was stored before the watch came back is not taken for new.
                    stored = event.last_sequence
                if isinstance(event, CaseResult) and event.sequence > 2000 and not killed_at:
                    stand.send("all", signal.SIGKILL)
                    killed_at, stored = time.monotonic(), 10**9
                if killed_at and isinstance(event, CaseResult) and event.sequence > stored:
                    return time.monotonic() - killed_at
    raise RuntimeError("the run had ended before it could be disturbed: no new result came")


async def throughput(server_url: str, full: bool) -> dict[str, Any]:
    """Return cases per second of a run whose cases take no time, and its processes' memory as it goes on."""
    count = 100_000 if full else 20_000
    figures: dict[str, Any] = {"cases": count, "goal_cases_per_s": 1500, "goal_mib": 300}
    for kind in stands.BOTH:
        async with stands.open_stand(server_url, kind) as stand:
            address = stand.place_usual()
            stand.start()
            await stands.wait_at(address)
            async with Client(address) as client:
                figures[kind] = await throughput_of(stand, client, count)
    return figures


async def throughput_of(stand: stands.Stand, client: Client, count: int) -> dict[str, Any]:
    """Measure one run that a client watches."""
    run = await stands.create_run(client, stands.settings("bench"), stands.recorded_cases(count))
    gauge = stands.Gauge(stand.orchestrators())
    began, next_look = time.monotonic(), 1
    async for event in client.watch_run(run.run_id):
        if isinstance(event, CaseResult) and event.sequence >= next_look:
            gauge.look()
            next_look += count // 5
    wall = time.monotonic() - began
    gauge.look()
    return {"cases_per_s": round(count / wall), "wall_s": round(wall, 1), **gauge.figures()}


SCENARIOS: dict[str, Callable[[str, bool], Coroutine[Any, Any, dict[str, Any]]]] = {
    "restart": restart,
    "throughput": throughput,
}


if __name__ == "__main__":
    main()
