"""Orchestrators of a benchmark, their database and their runs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import socket
import statistics
import time
import uuid
from contextlib import aclosing, asynccontextmanager, closing
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import grpc.aio
import psutil
import psycopg
from tests.chaos.outer_services import CountingAgent
from tests.chaos.topologies import Topology

from assay.client.client import Client
from assay.errors import AssayError
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec, MetricSpec, RowResult, Run, RunSpec
from assay.rpc.channel import open_channel, wait_for_ready
from assay.rpc.methods import service_config
from assay.rpc.options import ChannelOptions, channel_arguments
from assay.v1 import run_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from multiprocessing.connection import Connection
    from types import TracebackType

BOTH = ("sqlite", "postgres")
_READY_S = 60.0


class Stand(Topology):
    """Processes over a separate database.

    Args:
        folder: The folder of all files.
        database_url: URL of PostgreSQL; empty for a SQLite file.
    """

    def __init__(self, folder: Path, database_url: str) -> None:
        super().__init__(folder, "")
        self.database_url = database_url

    def place(self, name: str, *arguments: str, listen: str = "") -> str:
        """Make a place for a process with its own settings; return its address."""
        address = listen or f"unix:{self.folder}/{name}.sock"
        where = ("--database-url", self.database_url) if self.database_url else ("--database", f"{self.folder}/a.db")
        self.add(name, "--listen", address, *where, "--watch-bookmark-s", "15", "--recover", "auto", *arguments)
        return address

    def place_usual(self, *arguments: str) -> str:
        """Make places for one process over a file, or for an API process and two workers; return the address."""
        if not self.database_url:
            return self.place("all", *arguments)
        for name in ("worker0", "worker1"):
            self.place(name, "--role", "worker", *arguments)
        return self.place("api", "--role", "api", *arguments)

    def start_one(self, name: str) -> None:
        """Start a process in a place that was added later."""
        self._launch(self.slots[name])
        self._keeping[name] = asyncio.create_task(self._keep(self.slots[name]))

    def orchestrators(self) -> dict[str, psutil.Process]:
        """Return the processes by place."""
        return {name: psutil.Process(slot.process.pid) for name, slot in self.slots.items() if slot.process is not None}


@asynccontextmanager
async def open_stand(server_url: str, kind: str) -> AsyncIterator[Stand]:
    """Yield a stand over an empty database of a kind; kill its processes at the end."""
    with TemporaryDirectory(prefix="assay-bench-") as name:
        schema = f"bench_{uuid.uuid4().hex}"
        url = ""
        if kind == "postgres":
            with psycopg.connect(server_url, autocommit=True) as connection:
                connection.execute(f"CREATE SCHEMA {schema}".encode())
            url = f"{server_url}{'&' if '?' in server_url else '?'}options={quote(f'-c search_path={schema}')}"
        async with Stand(Path(name), url) as stand:
            yield stand
        if url:
            with psycopg.connect(server_url, autocommit=True) as connection:
                connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


async def wait_at(address: str, service_name: str = "assay.v1.RunService") -> None:
    """Wait until an address accepts runs; with "" as the service, until the whole process is ready."""
    async with open_channel(address) as channel:
        await wait_for_ready(channel, service_name, _READY_S)


def free_addresses(count: int) -> list[str]:
    """Return local addresses with free ports."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = []
    for opened in sockets:
        with closing(opened):
            addresses.append(f"127.0.0.1:{opened.getsockname()[1]}")
    return addresses


def settings(name: str, adapter: str = "replay", target: str = "", *, concurrency: int = 64) -> RunSpec:
    """Return the settings of a run with exact_match."""
    agent = AgentSpec(adapter, target, concurrency=concurrency, retries=0)
    return RunSpec(name, agent, [MetricSpec("exact_match")], team=name)


def recorded_cases(count: int, prefix: str = "c") -> Iterator[Case]:
    """Yield cases with recorded answers, so that no agent is called."""
    for index in range(count):
        answer = f"A{index}"
        recorded = AgentResponse(text=answer, latency_ms=1.0)
        yield Case(f"{prefix}{index}", (Turn(f"q{index}", references=(answer,)),), recordings=((recorded,),))


def plain_cases(count: int) -> Iterator[Case]:
    """Yield cases that an agent must answer."""
    for index in range(count):
        yield Case(f"c{index}", (Turn(f"q{index}", references=(f"a{index}",)),))


async def create_run(client: Client, run_spec: RunSpec, cases: Iterator[Case]) -> Run:
    """Upload cases and start a run."""
    dataset = await client.upload_dataset(cases, name=run_spec.name)
    return await client.create_run(run_spec, dataset.dataset_id)


async def until_result(client: Client, run_id: str) -> None:
    """Watch a run until its first result."""
    async with aclosing(client.watch_run(run_id)) as events:  # type: ignore[type-var]  # it is a generator
        async for event in events:
            if isinstance(event, RowResult):
                return


async def until_ended(client: Client, run_id: str) -> None:
    """Watch a run to its end."""
    async for _ in client.watch_run(run_id):
        pass


class Gauge:
    """Processor time and memory of processes from construction on.

    Args:
        processes: Processes by name.
    """

    def __init__(self, processes: dict[str, psutil.Process]) -> None:
        self._processes = processes
        self._before = {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}
        self._resident: dict[str, list[int]] = {name: [] for name in processes}
        self._own: dict[str, list[int]] = {name: [] for name in processes}

    def look(self) -> None:
        """Record the present memory."""
        for name, process in self._processes.items():
            memory = process.memory_info()
            self._resident[name].append(round(memory.rss / 1024**2))
            # Without file pages: the mapped database would dominate the figure.
            self._own[name].append(round((memory.rss - memory.shared) / 1024**2))

    def figures(self) -> dict[str, Any]:
        """Return processor seconds and the recorded MiB."""
        busy = {
            name: round(sum(watched.cpu_times()[:2]) - self._before[name], 2)
            for name, watched in self._processes.items()
        }
        return {"cpu_s": busy, "rss_mib": self._resident, "own_mib": self._own}


class AgentProcess:
    """An agent in a separate process: many watchers in this process would delay it.

    Args:
        delay_s: Time per answer.
    """

    def __init__(self, delay_s: float) -> None:
        self._here, there = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")  # gRPC's threads would not survive a fork
        self._process = context.Process(target=_serve_agent, args=(there, delay_s), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self.url: str = self._here.recv()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()

    def asked(self) -> tuple[int, int]:
        """Return the number of questions, and how many of them were repeated."""
        self._here.send(None)
        count, again = self._here.recv()
        return count, again

    async def until_asked(self, count: int) -> None:
        """Wait for `count` questions."""
        while self.asked()[0] < count:  # noqa: ASYNC110 - it is another process that counts
            await asyncio.sleep(0.02)


def _serve_agent(pipe: Connection, delay_s: float) -> None:
    async def serve() -> None:
        async with CountingAgent(delay_s) as agent:
            pipe.send(agent.url)
            while True:
                await asyncio.to_thread(pipe.recv)
                pipe.send((len(agent.calls), len(agent.calls) - len({call.key for call in agent.calls})))

    with contextlib.suppress(EOFError):
        asyncio.run(serve())


_OPTIONS = ChannelOptions()
_OWN = (
    *channel_arguments(_OPTIONS, service_config(_OPTIONS, pool=False)),
    ("grpc.use_local_subchannel_pool", 1),
)


class OwnConnection(Client):
    """A client with its own connection; by default, gRPC would share connections within the process."""

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(self.address, options=_OWN)
        self._stub = run_pb2_grpc.RunServiceStub(self._channel)
        return self


class CutWatch:
    """A watcher whose connection breaks repeatedly and that resumes at the next address.

    Args:
        addresses: Addresses, used in turn.
        run_id: The run to watch.
        offset_s: Delay of the first break.
        every_s: Time between breaks; None for no breaks.
    """

    def __init__(self, addresses: Sequence[str], run_id: str, offset_s: float, *, every_s: float | None = 1.0) -> None:
        self.run_id = run_id
        self.sequences: list[int] = []
        self.results: list[tuple[int, float]] = []
        self.cuts = 0
        self.problem = ""
        self._addresses = itertools.cycle(addresses)
        self._offset_s = offset_s
        self._every_s = every_s

    async def follow(self) -> None:
        """Watch until the run ends or an error occurs that a client would have to handle."""
        next_cut = time.monotonic() + self._offset_s + (self._every_s or 0.0)
        try:
            while True:
                # A break between two connections affects none of them and is not repeated.
                while self._every_s is not None and next_cut <= time.monotonic():
                    next_cut += self._every_s
                async with OwnConnection(next(self._addresses)) as client:
                    left_s = max(0.0, next_cut - time.monotonic()) if self._every_s is not None else None
                    if await self._watch(client, left_s):
                        return
                self.cuts += 1
        except AssayError as problem:
            self.problem = f"{type(problem).__name__}: {problem.message}"

    async def _watch(self, client: Client, seconds: float | None) -> bool:
        """Watch until the next break; return whether the run has ended."""
        cursor = self.sequences[-1] if self.sequences else 0
        try:
            async with asyncio.timeout(seconds):
                events = client.watch_run(self.run_id, after_sequence=cursor)
                async with aclosing(events):  # type: ignore[type-var]  # it is a generator
                    async for event in events:
                        if isinstance(event, Run):
                            continue
                        self.sequences.append(event.sequence)
                        if isinstance(event, RowResult):
                            self.results.append((event.sequence, time.time()))
        except TimeoutError:
            return False
        return True


class IdleWatch:
    """A watcher of a run in which nothing happens.

    Args:
        address: The address to watch at.
        run_id: The run to watch.
    """

    def __init__(self, address: str, run_id: str) -> None:
        self.began = asyncio.Event()
        self._address = address
        self._run_id = run_id

    async def follow(self) -> None:
        """Watch for ever."""
        async with OwnConnection(self._address) as client:
            async for _ in client.watch_run(self._run_id):
                self.began.set()


def seen_by(watches: Sequence[CutWatch]) -> dict[str, Any]:
    """Return how many events watchers missed or saw twice, and the errors that they had to handle."""
    last = {
        run_id: max(w.sequences[-1] for w in watches if w.run_id == run_id) for run_id in {w.run_id for w in watches}
    }
    return {
        "cuts": sum(watch.cuts for watch in watches),
        "events_seen": sum(len(watch.sequences) for watch in watches),
        "gaps": sum(len(set(range(1, last[watch.run_id] + 1)) - set(watch.sequences)) for watch in watches),
        "duplicates": sum(len(watch.sequences) - len(set(watch.sequences)) for watch in watches),
        "surfaced": sorted({watch.problem for watch in watches if watch.problem}),
    }


def reasons_of_errors(database_url: str) -> dict[str, int]:
    """Return the number of failed rows by reason."""
    with psycopg.connect(database_url) as connection:
        reasons = connection.execute("SELECT reason, count(*) FROM results WHERE status = 'error' GROUP BY reason")
        return {reason[:200]: count for reason, count in reasons.fetchall()}


def verdict_on(watches: Sequence[CutWatch], database_url: str) -> dict[str, Any]:
    """Return what watchers saw, and the delay between storing and receiving each result."""
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT run_id, sequence, created_at FROM results").fetchall()
    stored = {(run_id, sequence): datetime.fromisoformat(at).timestamp() for run_id, sequence, at in rows}
    lags = sorted(came - stored[watch.run_id, sequence] for watch in watches for sequence, came in watch.results)
    return {
        **seen_by(watches),
        "lag_p50_s": round(lags[len(lags) // 2], 3),
        "lag_p99_s": round(lags[len(lags) * 99 // 100], 3),
        "lag_max_s": round(lags[-1], 3),
    }


def numbers(values: Sequence[float], digits: int = 2) -> dict[str, Any]:
    """Return the median of measurements, and the measurements."""
    return {"median": round(statistics.median(values), digits), "all": [round(value, digits) for value in values]}
