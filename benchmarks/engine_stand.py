"""Orchestrators of a benchmark, their database and their runs."""

from __future__ import annotations

import socket
import statistics
import uuid
from contextlib import asynccontextmanager, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psutil
import psycopg
from tests.chaos.topologies import Topology

from assay.answers import AgentResponse
from assay.cases import Case, Turn
from assay.client import Client
from assay.results import AgentSettings, MetricSettings, Run, RunSettings
from assay.rpc.channel import open_channel, wait_for_ready

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

__all__ = [
    "BOTH",
    "Gauge",
    "Stand",
    "create_run",
    "free_addresses",
    "numbers",
    "open_stand",
    "recorded_cases",
    "settings",
    "until_ended",
    "wait_at",
]

BOTH = ("sqlite", "postgres")
_READY_S = 60.0


class Stand(Topology):
    """Processes over a database of their own.

    Args:
        folder: Where everything lies.
        database_url: PostgreSQL; empty for a file.
    """

    def __init__(self, folder: Path, database_url: str) -> None:
        super().__init__(folder, "")
        self.database_url = database_url

    def place(self, name: str, *arguments: str, listen: str = "") -> str:
        """Make a place for a process with settings of its own; return its address."""
        address = listen or f"unix:{self.folder}/{name}.sock"
        where = ("--database-url", self.database_url) if self.database_url else ("--database", f"{self.folder}/a.db")
        self.add(name, "--listen", address, *where, "--watch-bookmark-s", "15", "--recover", "auto", *arguments)
        return address

    def place_usual(self, *arguments: str) -> str:
        """Make places for one process over a file, or for one that takes runs and two that work; return the address."""
        if not self.database_url:
            return self.place("all", *arguments)
        for name in ("worker0", "worker1"):
            self.place(name, "--role", "worker", *arguments)
        return self.place("api", "--role", "api", *arguments)

    def orchestrators(self) -> dict[str, psutil.Process]:
        """Return the processes by place."""
        return {name: psutil.Process(slot.process.pid) for name, slot in self.slots.items() if slot.process is not None}


@asynccontextmanager
async def open_stand(server_url: str, kind: str) -> AsyncIterator[Stand]:
    """Yield a stand over an empty database of a kind; its processes are killed in the end."""
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


async def wait_at(address: str) -> None:
    """Wait until runs can be handed in at an address."""
    async with open_channel(address) as channel:
        await wait_for_ready(channel, "assay.v1.RunService", _READY_S)


def free_addresses(count: int) -> list[str]:
    """Return addresses of this machine with ports that nobody has."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = []
    for one in sockets:
        with closing(one):
            addresses.append(f"127.0.0.1:{one.getsockname()[1]}")
    return addresses


def settings(name: str, adapter: str = "replay", target: str = "", *, concurrency: int = 64) -> RunSettings:
    """Return the settings of a run that looks for exact matches."""
    agent = AgentSettings(adapter, target, concurrency=concurrency, retries=0)
    return RunSettings(name, agent, [MetricSettings("exact_match")], team=name)


def recorded_cases(count: int, prefix: str = "c") -> Iterator[Case]:
    """Yield cases with recorded answers, of which the orchestrator needs to ask nobody."""
    for index in range(count):
        answer = f"A{index}"
        recorded = AgentResponse(text=answer, latency_ms=1.0)
        yield Case(f"{prefix}{index}", (Turn(f"q{index}", references=(answer,)),), recorded=recorded)


async def create_run(client: Client, run_settings: RunSettings, cases: Iterator[Case]) -> Run:
    """Upload cases and start a run of them."""
    dataset = await client.upload_dataset(cases, name=run_settings.name)
    return await client.create_run(run_settings, dataset.dataset_id)


async def until_ended(client: Client, run_id: str) -> None:
    """Watch a run to its end."""
    async for _ in client.watch_run(run_id):
        pass


class Gauge:
    """Processor time and memory of processes from now on.

    Args:
        processes: Processes by name.
    """

    def __init__(self, processes: dict[str, psutil.Process]) -> None:
        self._processes = processes
        self._before = {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}
        self._resident: dict[str, list[int]] = {name: [] for name in processes}
        self._own: dict[str, list[int]] = {name: [] for name in processes}

    def look(self) -> None:
        """Note the memory of this moment."""
        for name, process in self._processes.items():
            memory = process.memory_info()
            self._resident[name].append(round(memory.rss / 1024**2))
            # Without pages of files, of which the mapped database has the more the larger it is.
            self._own[name].append(round((memory.rss - memory.shared) / 1024**2))

    def figures(self) -> dict[str, Any]:
        """Return seconds of processor time, and MiB at every look."""
        busy = {name: round(sum(one.cpu_times()[:2]) - self._before[name], 2) for name, one in self._processes.items()}
        return {"cpu_s": busy, "rss_mib": self._resident, "own_mib": self._own}


def numbers(values: Sequence[float], digits: int = 2) -> dict[str, Any]:
    """Return the median of measurements, and the measurements."""
    return {"median": round(statistics.median(values), digits), "all": [round(value, digits) for value in values]}
