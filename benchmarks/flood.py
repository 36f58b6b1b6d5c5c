"""Fifty teams at one orchestrator, of which one floods: how long the others wait, beside the same without the flood.

A real orchestrator process over TLS, with tokens and the quotas of every installation. Forty-nine teams make calls at
times that do not depend on the answers (open loop, exponential gaps), over a connection of each team; the fiftieth is
silent, or calls as often as it can from a process of its own. Phases with and without the flood take turns; the figures
are medians over the pairs of phases. A call's time begins when it was due, so that no slow answer hides what waits for
it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
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
from tests.certificates import certificate_for

from assay.identity.rights import Role
from assay.identity.tokens import new_token
from assay.rpc.channel import open_channel, wait_for_ready
from assay.rpc.options import ChannelOptions
from assay.rpc.tls import ClientFiles
from assay.v1 import orchestrator_pb2 as pb
from assay.v1 import orchestrator_pb2_grpc
from assay_orchestrator.settings import Settings
from assay_orchestrator.store import tokens
from assay_orchestrator.store.database import open_database

TEAMS = 50
_SERVICE = "assay.v1.RunService"
_FLOOD = "flood"


def main() -> None:
    """Measure and print; with --flood-at, be the team that floods."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="phases without and with the flood")
    parser.add_argument("--seconds", type=float, default=6.0, help="length of a phase")
    parser.add_argument("--rate", type=float, default=2.0, help="calls a second of each calm team")
    parser.add_argument("--flood-rate", type=float, default=1_000.0, help="calls a second that the flood tries")
    parser.add_argument("--connections", type=int, default=2, help="connections of the flood")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--flood-at", default="")
    given = parser.parse_args()
    if given.flood_at:
        asyncio.run(flood(given))
        return
    with TemporaryDirectory(prefix="assay-flood-") as folder:
        figures = asyncio.run(measure(Path(folder), given))
    print(json.dumps(figures, indent=1))
    if given.json:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
        given.json.write_text(json.dumps({"machine": machine, "figures": figures}, indent=1) + "\n")


async def measure(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Return the latencies of calm teams in both kinds of phases, in milliseconds, and what came of the flood."""
    names = [f"team-{number}" for number in range(TEAMS - 1)] + [_FLOOD]
    texts = await store_tokens(folder, names)
    async with AsyncExitStack() as stack:
        address = await start_server(folder, stack)
        stubs = [
            orchestrator_pb2_grpc.RunServiceStub(await stack.enter_async_context(channel_of(address, folder, text)))
            for text in texts
        ]
        await asyncio.gather(*(stub.ListRuns(pb.ListRunsRequest()) for stub in stubs))
        phases: dict[str, list[dict[str, float]]] = {"undisturbed": [], "flooded": []}
        floods: list[dict[str, float]] = []
        for number in range(given.pairs):
            phases["undisturbed"].append(await phase(stubs, given, seed=number))
            flooding = await start_flood(address, folder, texts[-1], given)
            phases["flooded"].append(await phase(stubs[:-1], given, seed=number))
            output, _ = await flooding.communicate()
            floods.append(json.loads(output))
    ratios = {
        name: statistics.median(
            after[name] / before[name] for before, after in zip(phases["undisturbed"], phases["flooded"], strict=True)
        )
        for name in ("p50_ms", "p99_ms")
    }
    return {
        **{name: medians(found) for name, found in phases.items()},
        "flood": medians(floods),
        "ratio": {name.removesuffix("_ms"): round(value, 2) for name, value in ratios.items()},
    }


async def phase(stubs: list[Any], given: argparse.Namespace, *, seed: int) -> dict[str, float]:
    """Let calm teams call for one phase; return their latencies."""
    found: list[float] = []
    await asyncio.gather(
        *(
            calm(stub, given.rate, given.seconds, random.Random(f"{seed}/{index}"), found)
            for index, stub in enumerate(stubs[: TEAMS - 1])
        )
    )
    found.sort()
    return {
        "calls": len(found),
        "p50_ms": 1000 * found[len(found) // 2],
        "p99_ms": 1000 * found[int(len(found) * 0.99)],
        "max_ms": 1000 * found[-1],
    }


async def calm(stub: Any, rate: float, seconds: float, rng: random.Random, found: list[float]) -> None:
    """Make the calls of one team when they are due, whatever became of earlier ones."""
    loop = asyncio.get_running_loop()
    due, end = loop.time() + rng.expovariate(rate), loop.time() + seconds
    calls = set[asyncio.Task[None]]()

    async def one(at: float) -> None:
        await stub.ListRuns(pb.ListRunsRequest())
        found.append(loop.time() - at)

    while due < end:
        await asyncio.sleep(due - loop.time())
        calls.add(asyncio.create_task(one(due)))
        due += rng.expovariate(rate)
    await asyncio.gather(*calls)


async def flood(given: argparse.Namespace) -> None:
    """Call as often as the rate says for one phase and a second more, and print how many were refused."""
    settings = json.loads(given.flood_at)
    loop = asyncio.get_running_loop()
    counts: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        stubs = []
        for number in range(given.connections):
            channel = channel_of(settings["address"], Path(settings["folder"]), settings["token"], number)
            stubs.append(orchestrator_pb2_grpc.RunServiceStub(await stack.enter_async_context(channel)))

        async def one(stub: Any) -> None:
            try:
                await stub.ListRuns(pb.ListRunsRequest(), timeout=given.seconds)
                counts["admitted"] += 1
            except grpc.aio.AioRpcError as error:
                counts[error.code().name.lower()] += 1

        await asyncio.gather(*map(one, stubs))
        print("flooding", flush=True)
        begun, sent, calls = loop.time(), 0, set[asyncio.Task[None]]()
        while loop.time() - begun < given.seconds:
            while sent < (loop.time() - begun) * given.flood_rate:
                calls.add(asyncio.create_task(one(stubs[sent % len(stubs)])))
                sent += 1
            await asyncio.sleep(0.005)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    print(json.dumps({"tried_per_s": sent / given.seconds, **counts}))


async def start_flood(address: str, folder: Path, token: str, given: argparse.Namespace) -> asyncio.subprocess.Process:
    """Start the process that floods, and wait until it does."""
    place = json.dumps({"address": address, "folder": str(folder), "token": token})
    values = {"--seconds": given.seconds, "--flood-rate": given.flood_rate, "--connections": given.connections}
    arguments = [part for name, value in values.items() for part in (name, str(value))]
    # It has the lowest priority of this machine's processes: what is measured is the server's work, not its client's.
    process = await asyncio.create_subprocess_exec(
        "nice", "-n", "19", sys.executable, "-m", "benchmarks.flood", "--flood-at", place, *arguments,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None, "it is a pipe"
    await process.stdout.readline()
    return process


def channel_of(address: str, folder: Path, token: str, number: int = 0) -> Any:
    """Return a channel of a connection of its own."""
    options = ChannelOptions(token=token, tls=ClientFiles(folder / "c.pem"), keepalive_time_ms=30_000 + number)
    return open_channel(address, options)


async def start_server(folder: Path, stack: AsyncExitStack) -> str:
    """Start an orchestrator over TLS with tokens; return its address."""
    certificate = certificate_for("localhost")
    (folder / "c.pem").write_bytes(certificate.certificate_pem)
    (folder / "c.key").write_bytes(certificate.key_pem)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "assay_orchestrator", "--listen", "localhost:0", "--database", str(folder / "assay.db"),
        "--auth", "tokens", "--tls-cert", str(folder / "c.pem"), "--tls-key", str(folder / "c.key"),
        stderr=subprocess.PIPE,
    )  # fmt: skip
    stack.push_async_callback(stopped, process)
    assert process.stderr is not None, "it is a pipe"
    while line := (await process.stderr.readline()).decode():
        if "ready: address=" in line:
            address = line.partition("address=")[2].split()[0].replace("127.0.0.1", "localhost")
            stack.callback(asyncio.create_task(drained(process.stderr)).cancel)
            async with open_channel(address, ChannelOptions(tls=ClientFiles(folder / "c.pem"))) as channel:
                await wait_for_ready(channel, _SERVICE, 30)
            return address
    raise SystemExit("the orchestrator did not start")


async def drained(stream: asyncio.StreamReader) -> None:
    """Read what the server logs, so that it never waits."""
    while line := await stream.readline():
        sys.stderr.buffer.write(line)


async def stopped(process: asyncio.subprocess.Process) -> None:
    """Stop the server."""
    with suppress(ProcessLookupError):
        process.terminate()
    await process.wait()


async def store_tokens(folder: Path, names: list[str]) -> list[str]:
    """Store a team with a token for each name; return the tokens."""
    made = [new_token() for _ in names]

    def store(connection: Any) -> None:
        for name, token in zip(names, made, strict=True):
            tokens.create_team(connection, name)
            tokens.create_token(connection, token, tokens.NewToken(name, Role.RUNNER, "benchmark"))

    database = open_database(Settings(database=folder / "assay.db"))
    try:
        await database.write(store)
    finally:
        database.close()
    return [token.text for token in made]


def medians(found: list[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure."""
    names = dict.fromkeys(name for each in found for name in each)
    return {name: round(statistics.median(each.get(name, 0) for each in found), 2) for name in names}


if __name__ == "__main__":
    main()
