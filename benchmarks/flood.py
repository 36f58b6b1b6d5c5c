"""Fifty teams at one orchestrator, one of them flooding it: latencies of the others with and without the flood.

A real orchestrator process over TLS, with tokens and the quotas of every installation. Forty-nine teams make calls at
times that do not depend on the answers (open loop, exponential gaps), over a connection per team. The fiftieth is
silent, or calls as often as it can from a separate process. The latency of a call counts from the time when it was due,
so that a slow answer does not hide the calls that wait for it.

Three kinds of phases take turns: without a flood, with one, and with the same flood at another orchestrator on this
machine, which takes processor time from the calm teams but leaves their server alone. The ratios to both are medians
over the rounds: of all calls of a phase, of the calls due in its first second, and of the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc.aio
from benchmarks.saved_figures import save
from tests.support.services.certificates import certificate_for

from assay.identity.rights import Role
from assay.identity.tokens import new_token
from assay.rpc.channel import open_channel, wait_for_ready
from assay.rpc.options import ChannelOptions
from assay.rpc.tls import ClientFiles
from assay.v1 import run_pb2 as pb
from assay.v1 import run_pb2_grpc
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import open_database
from assay_orchestrator.store.teams import tokens

TEAMS = 50
_SERVICE = "assay.v1.RunService"
_FLOOD, _CALM = "flood", "undisturbed"


def main() -> None:
    """Measure and print; with --flood-at, be the team that floods."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="phases of each kind")
    parser.add_argument("--seconds", type=float, default=6.0, help="length of a phase")
    parser.add_argument("--rate", type=float, default=2.0, help="calls per second of each calm team")
    parser.add_argument("--flood-rate", type=float, default=3_000.0, help="calls per second that the flood attempts")
    parser.add_argument("--connections", type=int, default=4, help="connections of the flood")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--flood-at", default="")
    options = parser.parse_args()
    if options.flood_at:
        asyncio.run(flood(options))
        return
    with TemporaryDirectory(prefix="assay-flood-") as folder:
        figures = asyncio.run(measure(Path(folder), options))
    print(json.dumps(figures, indent=1))
    save(options.json, figures)


async def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the latencies of calm teams by kind of phase, in milliseconds, and the outcome of the flood."""
    names = [f"team-{number}" for number in range(TEAMS - 1)] + [_FLOOD]
    other = folder / "other"
    other.mkdir()
    texts, (other_text,) = await store_tokens(folder, names), await store_tokens(other, [_FLOOD])
    async with AsyncExitStack() as stack:
        address, _ = await start_server(folder, stack)
        elsewhere, _ = await start_server(other, stack)
        floods = {"flooded": (address, folder, texts[-1]), "flood elsewhere": (elsewhere, other, other_text)}
        stubs = [
            run_pb2_grpc.RunServiceStub(await stack.enter_async_context(channel_of(address, folder, text)))
            for text in texts
        ]
        await asyncio.gather(*(stub.ListRuns(pb.ListRunsRequest()) for stub in stubs))
        phases: dict[str, list[dict[str, float]]] = {_CALM: [], **{name: [] for name in floods}}
        ends: dict[str, list[dict[str, float]]] = {name: [] for name in floods}
        for number in range(options.rounds):
            phases[_CALM].append(await phase(stubs, options, seed=number))
            for name, place in floods.items():
                flooding = await start_flood(*place, options)
                phases[name].append(await phase(stubs, options, seed=number))
                output, _ = await flooding.communicate()
                ends[name].append(json.loads(output))
    return {
        **{name: medians(figures) for name, figures in phases.items()},
        "flood": medians(ends["flooded"]),
        "ratio": ratios(phases["flooded"], phases[_CALM]),
        "ratio to the flood elsewhere": ratios(phases["flooded"], phases["flood elsewhere"]),
        "ratio of the flood elsewhere": ratios(phases["flood elsewhere"], phases[_CALM]),
    }


def ratios(figures: list[dict[str, float]], others: list[dict[str, float]]) -> dict[str, float]:
    """Return the medians of the ratios of the phases of each round."""
    pairs = list(zip(figures, others, strict=True))
    return {
        name.removesuffix("_ms"): round(statistics.median(figure[name] / other[name] for figure, other in pairs), 2)
        for name in ("p50_ms", "p99_ms", "first_p50_ms", "first_p99_ms", "later_p50_ms", "later_p99_ms")
    }


async def phase(stubs: list[Any], options: argparse.Namespace, *, seed: int) -> dict[str, float]:
    """Let calm teams call for one phase; return their latencies."""
    timed: list[tuple[float, float]] = []
    await asyncio.gather(
        *(
            calm(stub, options.rate, options.seconds, random.Random(f"{seed}/{index}"), timed)
            for index, stub in enumerate(stubs[: TEAMS - 1])
        )
    )
    parts = {
        "": [latency for _, latency in timed],
        "first_": [latency for due, latency in timed if due < 1],
        "later_": [latency for due, latency in timed if due >= 1],
    }
    return {name: value for part, latencies in parts.items() for name, value in quantiles(part, sorted(latencies))}


def quantiles(part: str, latencies: list[float]) -> list[tuple[str, float]]:
    """Return named figures of one part of a phase from its latencies, in seconds and ascending."""
    return [
        (f"{part}calls", len(latencies)),
        (f"{part}p50_ms", 1000 * latencies[len(latencies) // 2]),
        (f"{part}p99_ms", 1000 * latencies[int(len(latencies) * 0.99)]),
        (f"{part}max_ms", 1000 * latencies[-1]),
    ]


async def calm(stub: Any, rate: float, seconds: float, rng: random.Random, timed: list[tuple[float, float]]) -> None:
    """Make the calls of one team when they are due, without waiting for earlier calls.

    Args:
        stub: Its connection.
        rate: Calls per second.
        seconds: Duration.
        rng: Draws the gaps.
        timed: Receives when each call was due, from the start, and how long it took, in seconds.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    due, end = start + rng.expovariate(rate), start + seconds
    calls = set[asyncio.Task[None]]()

    async def list_runs(at: float) -> None:
        await stub.ListRuns(pb.ListRunsRequest())
        timed.append((at - start, loop.time() - at))

    while due < end:
        await asyncio.sleep(due - loop.time())
        calls.add(asyncio.create_task(list_runs(due)))
        due += rng.expovariate(rate)
    await asyncio.gather(*calls)


async def flood(options: argparse.Namespace) -> None:
    """Call at the given rate for one phase plus one second, and print how many calls were refused."""
    settings = json.loads(options.flood_at)
    loop = asyncio.get_running_loop()
    counts: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        stubs = []
        for number in range(options.connections):
            channel = channel_of(settings["address"], Path(settings["folder"]), settings["token"], number)
            stubs.append(run_pb2_grpc.RunServiceStub(await stack.enter_async_context(channel)))

        async def list_runs(stub: Any) -> None:
            try:
                await stub.ListRuns(pb.ListRunsRequest(), timeout=options.seconds)
                counts["admitted"] += 1
            except grpc.aio.AioRpcError as error:
                counts[error.code().name.lower()] += 1

        await asyncio.gather(*map(list_runs, stubs))
        print("flooding", flush=True)
        begun, sent, calls = loop.time(), 0, set[asyncio.Task[None]]()
        while loop.time() - begun < options.seconds + 1:
            while sent < (loop.time() - begun) * options.flood_rate:
                calls.add(asyncio.create_task(list_runs(stubs[sent % len(stubs)])))
                sent += 1
            await asyncio.sleep(0.005)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    print(json.dumps({"tried_per_s": sent / (options.seconds + 1), **counts}))


async def start_flood(
    address: str, folder: Path, token: str, options: argparse.Namespace
) -> asyncio.subprocess.Process:
    """Start the flooding process and wait until it floods."""
    place = json.dumps({"address": address, "folder": str(folder), "token": token})
    values = {"--seconds": options.seconds, "--flood-rate": options.flood_rate, "--connections": options.connections}
    arguments = [part for name, value in values.items() for part in (name, str(value))]
    # The lowest priority: the benchmark measures the work of the server, not that of its client.
    process = await asyncio.create_subprocess_exec(
        "nice", "-n", "19", sys.executable, "-m", "benchmarks.flood", "--flood-at", place, *arguments,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None, "it is a pipe"
    await process.stdout.readline()
    return process


def channel_of(address: str, folder: Path, token: str, number: int = 0) -> Any:
    """Return a channel with its own connection."""
    options = ChannelOptions(token=token, tls=ClientFiles(folder / "c.pem"), keepalive_time_ms=30_000 + number)
    return open_channel(address, options)


async def start_server(folder: Path, stack: AsyncExitStack, *arguments: str, is_shared: bool = True) -> tuple[str, int]:
    """Start an orchestrator, over TLS with tokens where it is shared; return its address and the id of its process."""
    certificate = certificate_for("localhost")
    (folder / "c.pem").write_bytes(certificate.certificate_pem)
    (folder / "c.key").write_bytes(certificate.key_pem)
    files = ("--tls-cert", str(folder / "c.pem"), "--tls-key", str(folder / "c.key"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "assay_orchestrator", "--listen", "localhost:0", "--database", str(folder / "assay.db"),
        *(("--auth", "tokens", *files) if is_shared else ()), *arguments, stderr=subprocess.PIPE,
    )  # fmt: skip
    stack.push_async_callback(stopped, process)
    assert process.stderr is not None, "it is a pipe"
    while line := (await process.stderr.readline()).decode():
        if "ready: address=" in line:
            address = line.partition("address=")[2].split()[0].replace("127.0.0.1", "localhost")
            stack.callback(asyncio.create_task(drained(process.stderr)).cancel)
            tls = ClientFiles(folder / "c.pem") if is_shared else None
            async with open_channel(address, ChannelOptions(tls=tls)) as channel:
                await wait_for_ready(channel, _SERVICE, 30)
            return address, process.pid
    raise SystemExit("the orchestrator did not start")


async def drained(stream: asyncio.StreamReader) -> None:
    """Drain the log of the server, so that it never blocks."""
    while line := await stream.readline():
        sys.stderr.buffer.write(line)


async def stopped(process: asyncio.subprocess.Process) -> None:
    """Stop the server."""
    with suppress(ProcessLookupError):
        process.terminate()
    await process.wait()


async def store_tokens(folder: Path, names: list[str]) -> list[str]:
    """Store a team and a token per name; return the tokens."""
    new_tokens = [new_token() for _ in names]

    def store(connection: Any) -> None:
        for name, token in zip(names, new_tokens, strict=True):
            tokens.create_team(connection, name)
            tokens.create_token(connection, token, tokens.NewToken(name, Role.RUNNER, "benchmark"))

    database = open_database(Settings(database=folder / "assay.db"))
    try:
        await database.write(store)
    finally:
        database.close()
    return [token.text for token in new_tokens]


def medians(phases: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure."""
    names = dict.fromkeys(name for figures in phases for name in figures)
    return {name: round(statistics.median(figures.get(name, 0) for figures in phases), 2) for name in names}


if __name__ == "__main__":
    main()
