"""Restart every process of an installation in turn, under load, and count the errors that clients see.

Two processes per service over one PostgreSQL, with the real embedding model and a stand-in for the provider.
Clients start and watch runs, host an agent, list runs, embed texts and ask for verdicts, all the time; each process
gets SIGTERM and is started again once it has ended, so that one of two is missing meanwhile. With --base the processes
are those of another revision with the same tables, and are replaced by this version's. From the root of the repository:
`python -m benchmarks.rolling_restart [--rounds N] [--base REV] [--json FILE]`. It exits with 1 where a client saw an
error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import grpc.aio
import uvloop
from benchmarks import engine_stand as stands
from benchmarks.engine import postgres
from benchmarks.saved_figures import save
from tests.chaos.topologies import Slot
from tests.compat.versions import check_out

from assay.agent_host.caller import AgentCaller
from assay.client.client import Client
from assay.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from assay.errors import AssayError
from assay.judge.v1 import judge_pb2, judge_pb2_grpc
from assay.model.run import RunState, ScoreStatus
from assay.rpc.channel import open_channel
from assay.specs.loader import spec_from_mapping
from assay.testing.judges import says
from assay.testing.providers import ScriptedProvider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from assay.model.answers.agent_response import AgentRequest

SERVICES = ("embedder", "judge", "worker", "api")
REPLICAS = 2
LATENCY_S = 0.2
CASES = 40
RUN_LOOPS = 3
UNDISTURBED_S = 7.0  # clients reconnect to a missing server within 5 s; the next process is not stopped earlier
_CALL_EVERY_S = 0.05
_KEY = "OPENAI_API_KEY"


@dataclass
class Seen:
    """Observations of the clients.

    Args:
        phase: The process that is being restarted.
        done: Calls and runs that ended well, by kind.
        errors: Failed calls and runs: the phase, the kind and the problem.
    """

    phase: str = "before"
    done: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def repeat(self, kind: str, work: Callable[[], Awaitable[str]], pause_s: float = 0.0) -> None:
        """Repeat an action until the end and record its problems."""
        while not self.stopping.is_set():
            try:
                problem = await work()
            except (AssayError, grpc.aio.AioRpcError) as error:
                problem = f"{type(error).__name__}: {error}"
            if problem:
                self.errors.append(f"{self.phase}, {kind}: {problem[:300]}")
            else:
                self.done[kind] += 1
            await asyncio.sleep(pause_s)


def main() -> int:
    """Measure and print; return 1 if a client saw an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="how often each process is restarted")
    parser.add_argument("--base", metavar="REVISION", help="start with this version's processes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with postgres() as server_url, TemporaryDirectory(prefix="assay-base-") as folder:
        base = check_out(options.base, Path(folder)).python if options.base else None
        figures = uvloop.run(measure(server_url, options.rounds, base))
    print(json.dumps(figures, indent=1))
    save(options.json, figures)
    return 1 if figures["errors"] else 0


async def measure(server_url: str, rounds: int, base: Path | None = None) -> dict[str, Any]:
    """Return what clients saw while each process was restarted `rounds` times, starting from the base version."""
    seen, restarts = Seen(), {}
    with (
        ScriptedProvider(says({"reasoning": "It is right.", "score": 4})) as provider,
        stands.AgentProcess(LATENCY_S) as agent,
    ):
        async with stands.open_stand(server_url, "postgres") as stand:
            doors = place_all(stand, provider.openai_url)
            for slot in stand.slots.values():
                slot.arguments = (str(base or sys.executable), *slot.arguments[1:])
            stand.start()
            await asyncio.gather(*(stands.wait_at(door, "") for door in doors.values()))
            async with load(seen, doors, agent.url) as working:
                await asyncio.sleep(UNDISTURBED_S)
                for number in range(1, rounds + 1):
                    for name, door in doors.items():
                        restarts[f"{name} {number}"] = await restart(stand, seen, name, door)
                seen.phase = "after"
                await asyncio.sleep(UNDISTURBED_S)
                seen.stopping.set()
                await asyncio.gather(*working)
            problems = await stand.stop()
            reasons = stands.reasons_of_errors(stand.database_url)
        asked, again = agent.asked()
    return {
        "replicas": REPLICAS, "agent_latency_s": LATENCY_S, "restarts": restarts, "done": dict(seen.done),
        "errors": seen.errors + problems, "rows_with_errors": reasons, "questions": asked, "asked_twice": again,
    }  # fmt: skip


async def restart(stand: stands.Stand, seen: Seen, name: str, door: str) -> dict[str, Any]:
    """Restart a process and wait until it serves; return its exit status and the times of stop and start."""
    seen.phase = f"restarting {name}"
    stand.slots[name].arguments = (sys.executable, *stand.slots[name].arguments[1:])
    ended_before, began = len(stand.slots[name].statuses), time.monotonic()
    stand.send(name, signal.SIGTERM)
    await stand.until_ended(name, ended_before + 1)
    until_exit_s = time.monotonic() - began
    await stands.wait_at(door, "")
    until_ready_s = time.monotonic() - began
    await asyncio.sleep(UNDISTURBED_S)
    status = stand.slots[name].statuses[-1]
    if status:
        seen.errors.append(f"{seen.phase}: it ended with {status}: {stand.log_of(name)[-500:]}")
    return {"exit_status": status, "s_until_exit": round(until_exit_s, 2), "s_until_ready": round(until_ready_s, 2)}


def place_all(stand: stands.Stand, provider_url: str) -> Mapping[str, str]:
    """Make places for all processes; return their addresses.

    Both of a service have one port, at two addresses of this machine: the name `localhost` stands for both, as the name
    of a headless Service does for its pods.
    """
    ports = {service: free_port() for service in ("embedder", "judge")}
    doors = {}
    for service, port in ports.items():
        for number, host in enumerate(("127.0.0.1", "[::1]")):
            name, doors[f"{service}{number}"] = f"{service}{number}", f"{host}:{port}"
            own = ("--cache-mib", "0") if service == "embedder" else judge_arguments(stand, name, provider_url)
            command = (sys.executable, "-m", f"assay_{service}", "--listen", doors[name], "--grace-s", "10", *own)
            environment = {"TMPDIR": str(stand.temporary), "ASSAY_HOME": str(stand.folder / "home"), _KEY: "k"}
            stand.slots[name] = Slot(name, command, {**os.environ, **environment})
    services = [part for name, port in ports.items() for part in (f"--{name}", f"dns:///localhost:{port}")]
    usual = (*services, "--grace-s", "10", "--shard-limit", "4")
    for number in range(REPLICAS):
        doors[f"worker{number}"] = stand.place(f"worker{number}", "--role", "worker", *usual)
    for number, address in enumerate(stands.free_addresses(REPLICAS)):
        doors[f"api{number}"] = stand.place(f"api{number}", "--role", "api", *usual, listen=address)
    return doors


def judge_arguments(stand: stands.Stand, name: str, provider_url: str) -> tuple[str, ...]:
    """Return the arguments of a judge whose verdicts never hit the cache."""
    prices = stand.folder / "prices.yaml"
    prices.write_text("prices: [{model: '*', input: 1, output: 5}]\n")
    return (
        "--database-url", stand.database_url, "--provider", "openai", "--model", "judge-1", "--base-url", provider_url,
        "--prices", str(prices), "--no-cache", "--state-dir", str(stand.folder / name),
    )  # fmt: skip


def free_port() -> int:
    """Return a port that is free at both addresses of this machine."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as probe:
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def load(seen: Seen, doors: Mapping[str, str], agent_url: str) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Yield the actions of the clients."""
    address = "ipv4:" + ",".join(doors[f"api{number}"] for number in range(REPLICAS))
    async with (
        Client(address) as client,
        open_channel(f"dns:///localhost:{doors['embedder0'].rpartition(':')[2]}") as embedders,
        open_channel(f"dns:///localhost:{doors['judge0'].rpartition(':')[2]}") as judges,
    ):
        dataset = await client.upload_dataset(stands.plain_cases(CASES), name="rolling")
        embedder, judge = embedder_pb2_grpc.EmbedderServiceStub(embedders), judge_pb2_grpc.JudgeServiceStub(judges)
        numbers = iter(range(10**9))

        async def embed() -> str:
            request = embedder_pb2.EmbedRequest(texts=[f"text {next(numbers)}"], model="all-MiniLM-L6-v2")
            return "" if (await embedder.Embed(request)).vectors else "no vector"

        async def grade() -> str:
            answer = f"answer {next(numbers)}"
            request = judge_pb2.GradeRequest(rubric="answer", question="q", reference="a", answer=answer)
            return "" if (await judge.Grade(request)).HasField("verdict") else "no verdict"

        async def list_runs() -> str:
            await client.list_runs()
            return ""

        http = {"adapter": "http", "target": agent_url}
        yield [
            *(
                asyncio.create_task(seen.repeat("runs", lambda: run_once(client, dataset.dataset_id, http)))
                for _ in range(RUN_LOOPS)
            ),
            asyncio.create_task(seen.repeat("hosted runs", lambda: host_once(client, dataset.dataset_id))),
            asyncio.create_task(seen.repeat("lists", list_runs, _CALL_EVERY_S)),
            asyncio.create_task(seen.repeat("embeddings", embed, _CALL_EVERY_S)),
            asyncio.create_task(seen.repeat("verdicts", grade, _CALL_EVERY_S)),
        ]


async def run_once(client: Client, dataset_id: str, agent: Mapping[str, str]) -> str:
    """Start a run and watch it to its end; return its problem, if any."""
    run = await client.create_run(settings(agent), dataset_id)
    await stands.until_ended(client, run.run_id)
    return await problem_of(client, run.run_id)


async def host_once(client: Client, dataset_id: str) -> str:
    """Start a run, host its agent until it ends, and return its problem, if any."""

    async def answer(request: AgentRequest) -> str:
        await asyncio.sleep(LATENCY_S)
        return request.input.replace("q", "a")

    run = await client.create_run(settings({"adapter": "python", "target": "agent:answer"}), dataset_id)
    await client.host_agent(run.run_id, AgentCaller(answer), concurrency=4)
    await stands.until_ended(client, run.run_id)
    return await problem_of(client, run.run_id)


def settings(agent: Mapping[str, str]) -> Any:
    """Return the settings of a run that needs agent, embedder and judge for each row."""
    spec = {
        "name": "rolling", "agent": {"concurrency": 4, "retries": 0, "timeout": "20s", **agent},
        "metrics": ["exact_match", {"semantic_similarity": {"threshold": 0.01}}, "quality"],
    }  # fmt: skip
    return spec_from_mapping(spec, needs_dataset=False).settings


async def problem_of(client: Client, run_id: str) -> str:
    """Return the problem of a finished run: a wrong state, a missing row, or a row or score with an error."""
    run = await client.get_run(run_id, partial=False)
    counts = run.counts
    if run.state is not RunState.COMPLETED or (counts.finished_count, counts.agent_error_count) != (
        counts.total_count,
        0,
    ):
        return f"{run_id} {run.state.value} {run.state_message}: {counts}"
    failed = [
        row async for row in client.list_rows(run_id) if any(score.status is ScoreStatus.ERROR for score in row.scores)
    ]
    return f"{run_id}: {len(failed)} rows have scores with errors: {failed[0].scores}" if failed else ""


if __name__ == "__main__":
    sys.exit(main())
