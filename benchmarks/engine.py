"""How the engine behaves under load: restarts, cases per second, fairness, watchers, stops.

Real processes over SQLite and over a PostgreSQL server started as in the tests. Run from the root of the
repository: `python -m benchmarks.engine [SCENARIO ...] [--full] [--json FILE]`. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import time
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import uvloop
from benchmarks import engine_stand as stands
from benchmarks.saved_figures import save
from tests.support.processes.postgres_server import GIVEN_URL, own_server

from assay.client.client import Client
from assay.errors import WrongStateError
from assay.model.run import RowResult, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

REPEATS = 3
TEAMS = 20
WATCHERS = 200
CUT_EVERY_S = (1, 5)
IDLE = 1000
_CONNECTIONS = 200  # an orchestrator opens up to fourteen connections


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; by default all that are short"
    )
    parser.add_argument("--full", action="store_true", help="use the sizes of the goals instead of small ones")
    parser.add_argument("--json", type=Path, help="file for the figures; keeps the figures of other scenarios")
    options = parser.parse_args()
    if unknown := sorted(set(options.scenarios) - set(SCENARIOS)):
        parser.error(f"no scenario {', '.join(unknown)}: there are {', '.join(SCENARIOS)}")
    figures: dict[str, Any] = {}
    with postgres() as server_url:
        for name in options.scenarios or [name for name in SCENARIOS if name != "million" or options.full]:
            began = time.monotonic()
            figures[name] = uvloop.run(SCENARIOS[name](server_url, options.full))
            print(f"{name} ({time.monotonic() - began:.0f} s)", json.dumps(figures[name], indent=1), flush=True)
    known = json.loads(options.json.read_text())["figures"] if options.json and options.json.exists() else {}
    save(options.json, known | figures)


@contextmanager
def postgres() -> Iterator[str]:
    """Yield the URL of a PostgreSQL server: the server of the tests' environment variable, or a new server."""
    if url := os.environ.get(GIVEN_URL):
        yield url
        return
    with own_server({"max_connections": _CONNECTIONS}) as server:
        yield server.url


async def restart(server_url: str, full: bool) -> dict[str, Any]:
    """Return the seconds from kill -9 with 10,000 cases open until the first new result has reached a watcher."""
    figures: dict[str, Any] = {"goal_s": 5}
    for kind in stands.BOTH:
        figures[kind] = stands.numbers([await restart_once(server_url, kind) for _ in range(5 if full else REPEATS)])
    return figures


async def restart_once(server_url: str, kind: str) -> float:
    """Kill the only process during a run and replace it at once."""
    async with stands.open_stand(server_url, kind) as stand:
        address = stand.place("all")
        stand.start()
        await stands.wait_at(address)
        async with Client(address) as client:
            run = await stands.create_run(client, stands.settings("bench"), stands.recorded_cases(10_000))
            killed_at, stored = 0.0, 0
            async for event in client.watch_run(run.run_id):
                if isinstance(event, Run) and killed_at:
                    # Conservative: results stored before the watch reconnected do not count as new.
                    stored = event.last_sequence
                if isinstance(event, RowResult) and event.sequence > 2000 and not killed_at:
                    stand.send("all", signal.SIGKILL)
                    killed_at, stored = time.monotonic(), 10**9
                if killed_at and isinstance(event, RowResult) and event.sequence > stored:
                    return time.monotonic() - killed_at
    raise RuntimeError("the run had ended before it could be disturbed: no new result came")


async def throughput(server_url: str, full: bool) -> dict[str, Any]:
    """Return cases per second of a run whose cases take no time, and the memory of its processes over time."""
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


async def million(server_url: str, full: bool) -> dict[str, Any]:
    """Return the same figures for a run of a million cases over PostgreSQL."""
    count = 1_000_000
    async with stands.open_stand(server_url, "postgres") as stand:
        address = stand.place_usual()
        stand.start()
        await stands.wait_at(address)
        async with Client(address) as client:
            return {"cases": count} | await throughput_of(stand, client, count)


async def throughput_of(stand: stands.Stand, client: Client, count: int) -> dict[str, Any]:
    """Measure a run that a client watches."""
    run = await stands.create_run(client, stands.settings("bench"), stands.recorded_cases(count))
    gauge = stands.Gauge(stand.orchestrators())
    began, next_look = time.monotonic(), 1
    async for event in client.watch_run(run.run_id):
        if isinstance(event, RowResult) and event.sequence >= next_look:
            gauge.look()
            next_look += count // 5
    wall = time.monotonic() - began
    gauge.look()
    return {"cases_per_s": round(count / wall), "wall_s": round(wall, 1), **gauge.figures()}


async def fairness(server_url: str, full: bool) -> dict[str, Any]:
    """Return how teams share scarce workers with a flooding team, and how long a small run takes behind a large run.

    Workers are scarce because each runs two shards at once: with more workers than shards, no run would wait.
    """
    flood, equal, large = (40_000, 12_000, 1_000_000) if full else (20_000, 6000, 20_000)
    figures: dict[str, Any] = {
        "flood_cases": flood,
        "equal_runs": TEAMS - 1,
        "equal_cases": equal,
        "large_cases": large,
    }
    for kind in stands.BOTH:
        async with stands.open_stand(server_url, kind) as stand:
            address = stand.place_usual("--shard-limit", "2")
            stand.start()
            await stands.wait_at(address)
            async with Client(address) as client:
                shares = await fairness_of_teams(client, flood, equal)
        async with stands.open_stand(server_url, kind) as stand:
            address = stand.place_usual()
            stand.start()
            await stands.wait_at(address)
            async with Client(address) as client:
                figures[kind] = shares | await fairness_of_sizes(client, large)
    return figures


async def fairness_of_teams(client: Client, flood: int, equal: int) -> dict[str, Any]:
    """Let one team flood the workers before the other teams start a run each."""
    flooding = await stands.create_run(client, stands.settings("flood"), stands.recorded_cases(flood))
    dataset = await client.upload_dataset(stands.recorded_cases(equal, "e"), name="equal")
    began = time.monotonic()
    runs = [await client.create_run(stands.settings(f"team{n}"), dataset.dataset_id) for n in range(TEAMS - 1)]
    at_start = (await client.get_run(flooding.run_id, partial=False)).counts.finished_count
    watches = [asyncio.ensure_future(stands.until_ended(client, run.run_id)) for run in runs]
    await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
    first_s = time.monotonic() - began
    served = [(await client.get_run(run.run_id, partial=False)).counts.finished_count for run in runs]
    flooded = (await client.get_run(flooding.run_id, partial=False)).counts.finished_count - at_start
    for run in [flooding, *runs]:
        await cancel(client, run)
    await asyncio.gather(*watches)
    return {
        "jain_of_equal_runs": jain(served),
        "jain_with_flood": jain([*served, flooded]),
        "first_ended_s": round(first_s, 1),
        "served_when_first_ended": {"least": min(served), "most": max(served), "flood": flooded},
    }


async def fairness_of_sizes(client: Client, large: int) -> dict[str, Any]:
    """Time a run of ten cases alone, and behind an earlier large run of the same team."""
    small = await client.upload_dataset(stands.recorded_cases(10, "s"), name="small")

    async def once() -> float:
        began = time.monotonic()
        run = await client.create_run(stands.settings("bench"), small.dataset_id)
        await stands.until_ended(client, run.run_id)
        return time.monotonic() - began

    alone = [await once() for _ in range(5)]
    before = await stands.create_run(client, stands.settings("bench"), stands.recorded_cases(large, "l"))
    await stands.until_result(client, before.run_id)
    behind = [await once() for _ in range(5)]
    await cancel(client, before)
    ratio = round(statistics.median(behind) / statistics.median(alone), 1)
    return {"small_alone_s": stands.numbers(alone), "small_behind_s": stands.numbers(behind), "ratio": ratio}


async def cancel(client: Client, run: Run) -> None:
    """Cancel a run that need not finish."""
    with contextlib.suppress(WrongStateError):  # the run has finished
        await client.cancel_run(run.run_id)


def jain(shares: Sequence[float]) -> float:
    """Return Jain's fairness index of shares: 1 if all are equal, 1/n if one team has everything."""
    return round(sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares)), 3)


async def watchers(server_url: str, full: bool) -> dict[str, Any]:
    """Return what 200 watchers see whose connections break every second, and what 1,000 idle watchers cost."""
    figures: dict[str, Any] = {"watchers": WATCHERS, "goal_p99_s": 1.0}
    with stands.AgentProcess(0.2) as agent:
        for every_s in CUT_EVERY_S:
            async with stands.open_stand(server_url, "postgres") as stand:
                figures[f"cut every {every_s} s"] = await watchers_cut(stand, agent, every_s, 600 if full else 200)
    figures["idle"] = await watchers_idle(server_url, 20 if full else 10)
    return figures


async def watchers_cut(stand: stands.Stand, agent: stands.AgentProcess, every_s: float, rows: int) -> dict[str, Any]:
    """Watch two runs with ten rows a second each, over two replicas and two workers."""
    addresses = [stand.place(name, "--role", "api") for name in ("api0", "api1")]
    for name in ("worker0", "worker1"):
        stand.place(name, "--role", "worker", "--shard-limit", "1")
    stand.start()
    for address in addresses:
        await stands.wait_at(address)
    async with Client(addresses[0]) as client:
        run_spec = stands.settings("watched", "http", agent.url, concurrency=2)
        runs = [await stands.create_run(client, run_spec, stands.recorded_cases(rows)) for _ in range(2)]
    gauge = stands.Gauge(stand.orchestrators() | {"watchers": psutil.Process()})
    watches = [
        stands.CutWatch(addresses, runs[number % 2].run_id, number / WATCHERS * every_s, every_s=every_s)
        for number in range(WATCHERS)
    ]
    began = time.monotonic()
    await asyncio.gather(*(watch.follow() for watch in watches))
    seconds = round(time.monotonic() - began, 1)
    gauge.look()
    return {"seconds": seconds, **stands.verdict_on(watches, stand.database_url), **gauge.figures()}


async def watchers_idle(server_url: str, seconds: float) -> dict[str, Any]:
    """Measure a process that serves clients, without watchers and with many watchers of a waiting run."""
    async with stands.open_stand(server_url, "postgres") as stand, AsyncExitStack() as stack:
        address = stand.place("api", "--role", "api")
        stand.start()
        await stands.wait_at(address)
        client = await stack.enter_async_context(Client(address))
        # Waits for ever: no client hosts its agent.
        run = await stands.create_run(
            client, stands.settings("idle", "python", "agent:answer"), stands.recorded_cases(10)
        )

        async def cost() -> dict[str, Any]:
            gauge = stands.Gauge(stand.orchestrators())
            await asyncio.sleep(seconds)
            gauge.look()
            load = gauge.figures()
            return {
                "cpu_percent": round(load["cpu_s"]["api"] / seconds * 100, 1),
                "own_mib": load["own_mib"]["api"][0],
            }

        without = await cost()
        watches = [stands.IdleWatch(address, run.run_id) for _ in range(IDLE)]
        following = [asyncio.create_task(watch.follow()) for watch in watches]
        await asyncio.gather(*(watch.began.wait() for watch in watches))
        with_all = await cost()
        for task in following:
            task.cancel()
        problems = await asyncio.gather(*following, return_exceptions=True)
        surfaced = sum(not isinstance(problem, asyncio.CancelledError) for problem in problems)
    return {"watchers": IDLE, "without": without, "with": with_all, "surfaced": surfaced}


async def stop(server_url: str, full: bool) -> dict[str, Any]:
    """Return the seconds from SIGTERM to exit, with 200 cases in flight and 200 watchers."""
    figures = [await stop_once(server_url) for _ in range(3 if full else 1)]
    return {"goal_s": 10, "rounds": figures}


async def stop_once(server_url: str) -> dict[str, Any]:
    """Stop the process that has all work and all watchers; other processes take over."""
    with stands.AgentProcess(1.0) as agent:
        async with stands.open_stand(server_url, "postgres") as stand:
            first, second = stands.free_addresses(2)
            stand.place("first", listen=first)
            stand.place("second", "--role", "api", listen=second)
            stand.start()
            for address in (first, second):
                await stands.wait_at(address)
            stand.place("worker", "--role", "worker")
            async with Client(f"ipv4:{first},{second}") as client:
                return await stop_first(stand, agent, client)


async def stop_first(stand: stands.Stand, agent: stands.AgentProcess, client: Client) -> dict[str, Any]:
    """Stop the first process during a run."""
    run_spec = stands.settings("stopped", "http", agent.url, concurrency=200)
    run = await stands.create_run(client, run_spec, stands.recorded_cases(600))
    watches = [stands.CutWatch([client.address], run.run_id, 0.0, every_s=None) for _ in range(WATCHERS)]
    following = asyncio.gather(*(watch.follow() for watch in watches))
    await agent.until_asked(200)
    began = time.monotonic()
    stand.slots["first"].restarts = False
    stand.send("first", signal.SIGTERM)
    stand.start_one("worker")
    await stand.until_ended("first")
    seconds = time.monotonic() - began
    await following
    ended = await client.get_run(run.run_id, partial=False)
    return {
        "seconds_until_exit": round(seconds, 2),
        "exit_status": stand.slots["first"].statuses[-1],
        "seconds_until_run_ended": round(time.monotonic() - began, 2),
        "asked_twice": agent.asked()[1],
        "rows": ended.counts.finished_count,
        "agent_errors": stands.reasons_of_errors(stand.database_url),
        **stands.seen_by(watches),
    }


SCENARIOS: dict[str, Callable[[str, bool], Coroutine[Any, Any, dict[str, Any]]]] = {
    "restart": restart,
    "throughput": throughput,
    "million": million,
    "fairness": fairness,
    "watchers": watchers,
    "stop": stop,
}


if __name__ == "__main__":
    main()
