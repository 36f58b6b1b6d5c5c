"""Real processes over a real database: how they are started, watched, started again, and that they leave nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import psutil
import psycopg
import sqlalchemy as sa

from assay.errors import UnavailableError
from assay.rpc.channel import open_channel, wait_for_ready

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

_READY_S = 180.0
_END_S = 90.0


@dataclass(frozen=True, slots=True)
class Ending:
    """A process that has ended, or that was disturbed in another way.

    Args:
        slot: Which one.
        at: When, in seconds since 1970.
        status: Its exit status; the negative signal where one ended it; None where it goes on.
    """

    slot: str
    at: float
    status: int | None


@dataclass(slots=True)
class Slot:
    """A place for a process: whenever it ends unasked, another one takes its place.

    Args:
        name: Of the place.
        arguments: Its command line.
        environ: Its environment.
        armed: Failpoints of the processes to come, the next one's first; those after the last have none.
        restarts: Whether one that ended is followed by another.
    """

    name: str
    arguments: Sequence[str]
    environ: Mapping[str, str]
    armed: list[str] = field(default_factory=list)
    restarts: bool = True
    process: subprocess.Popen[bytes] | None = None
    statuses: list[int] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)


class Topology:
    """Processes that serve one database.

    Args:
        folder: Where sockets, logs and temporary files lie.
        embedder: The embedder's address.
    """

    def __init__(self, folder: Path, embedder: str) -> None:
        self.folder = folder
        self.endings: list[Ending] = []
        self._launches = 0
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.address = f"unix:{folder}/o.sock"
        self.slots: dict[str, Slot] = {}
        self._embedder = embedder
        self._waiters = ThreadPoolExecutor(16, thread_name_prefix="waits")
        self._keeping: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for slot in self.slots.values():
            slot.restarts = False
            if slot.process is not None and slot.process.poll() is None:
                slot.process.kill()
        await asyncio.gather(*self._keeping.values())
        self._waiters.shutdown()

    def add(self, name: str, *arguments: str) -> Slot:
        """Make a place for `python -m assay_orchestrator` with some arguments."""
        environ = {**os.environ, "TMPDIR": str(self.temporary), "ASSAY_HOME": str(self.folder / "home")}
        common = ("--embedder", self._embedder, "--http-hosts", "127.0.0.1", "--row-try-limit", "100000")
        command = (sys.executable, "-m", "assay_orchestrator", *common, "--watch-bookmark-s", "1", *arguments)
        self.slots[name] = Slot(name, command, environ)
        return self.slots[name]

    def start(self) -> None:
        """Start a process in every place."""
        for name, slot in self.slots.items():
            self._launch(slot)
            self._keeping[name] = asyncio.create_task(self._keep(slot))

    async def ready(self, timeout_s: float = _READY_S) -> None:
        """Wait until runs can be handed in."""
        for address in self._doors():
            async with open_channel(address) as channel:
                await wait_for_ready(channel, "assay.v1.RunService", timeout_s)

    def _doors(self) -> Sequence[str]:
        return [self.address]

    def send(self, name: str, number: signal.Signals) -> None:
        """Send the process in a place a signal; the moment is noted."""
        process = self.slots[name].process
        assert process is not None, "start it first"
        self.disturbed(name)
        process.send_signal(number)

    def disturbed(self, name: str) -> None:
        """Note that answers on their way may have been lost just now."""
        self.endings.append(Ending(name, time.time(), None))

    def last_moments(self, name: str) -> tuple[float, float]:
        """Return when the process in a place was disturbed or ended the last two times."""
        *_, before, last = (ending.at for ending in self.endings if ending.slot == name)
        return before, last

    async def until_stopped(self, name: str) -> None:
        """Wait until the process in a place stands still."""
        started = self.slots[name].process
        assert started is not None, "start it first"
        process = psutil.Process(started.pid)
        async with asyncio.timeout(_READY_S):
            while True:
                if process.status() == psutil.STATUS_STOPPED:
                    return self.disturbed(name)
                await asyncio.sleep(0.02)

    async def lose(self, name: str) -> None:
        """Kill the process in a place, and let nobody take its place."""
        slot = self.slots[name]
        slot.restarts = False
        self.send(name, signal.SIGKILL)
        await self._keeping.pop(name)
        del self.slots[name]
        (self.folder / f"{name}.sock").unlink(missing_ok=True)  # a kill leaves it behind

    async def until_ended(self, name: str, count: int = 1) -> None:
        """Wait until processes in a place have ended so many times in all."""
        slot = self.slots[name]
        async with slot.changed:
            await slot.changed.wait_for(lambda: len(slot.statuses) >= count)

    async def stop(self) -> list[str]:
        """Tell every process to stop; return what is wrong with how they did."""
        for slot in self.slots.values():
            slot.restarts = False
            if slot.process is not None and slot.process.poll() is None:
                slot.process.terminate()
        problems: list[str] = []
        try:
            async with asyncio.timeout(_END_S):
                await asyncio.shield(asyncio.gather(*self._keeping.values()))
        except TimeoutError:
            problems.append(f"a process did not end within {_END_S:g} s of SIGTERM")
        ended = [slot for slot in self.slots.values() if slot.statuses]
        # Killed by its failpoint, or by chance, in the moment in which the run had ended: it could not clean up.
        killed = [slot for slot in ended if slot.statuses[-1] == -signal.SIGKILL]
        problems += [
            f"{slot.name} ended with {slot.statuses[-1]} when told to stop: {self.log_of(slot.name)}"
            for slot in ended
            if slot.statuses[-1] != 0 and slot not in killed
        ]
        if not killed:
            problems += [f"{path.name} was left behind" for path in self.left_behind()]
        return problems

    def left_behind(self) -> list[Path]:
        """Return sockets and temporary files that nobody uses any more."""
        return [*self.folder.glob("*.sock*"), *self.temporary.iterdir()]

    def log_of(self, name: str) -> str:
        """Return the end of what a place's processes have said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-3000:]

    def passed(self) -> list[tuple[str, str]]:
        """Return the failpoints that processes came by, each with what was done there."""
        logs = sorted(self.folder.glob("failpoints-*.log"))
        lines = [line.split() for log in logs for line in log.read_text().splitlines()]
        return [(line[1], line[3]) for line in lines]

    def failpoint_environment(self, failpoints: str) -> dict[str, str]:
        """Return the variables of a process with these failpoints and a log of its own."""
        if not failpoints:  # with a log, even of nothing to do, every failpoint costs something
            return {"ASSAY_FAILPOINTS": ""}
        self._launches += 1
        log = self.folder / f"failpoints-{self._launches:04}.log"
        return {"ASSAY_FAILPOINTS": failpoints, "ASSAY_FAILPOINTS_LOG": str(log)}

    def _launch(self, slot: Slot) -> None:
        failpoints = slot.armed.pop(0) if slot.armed else ""
        environ = {**slot.environ, **self.failpoint_environment(failpoints)}
        with (self.folder / f"{slot.name}.log").open("ab") as log:
            slot.process = subprocess.Popen(
                slot.arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ, cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip

    async def _keep(self, slot: Slot) -> None:
        loop = asyncio.get_running_loop()
        while True:
            process = slot.process
            assert process is not None
            status = await loop.run_in_executor(self._waiters, process.wait)
            self.endings.append(Ending(slot.name, time.time(), status))
            async with slot.changed:
                slot.statuses.append(status)
                slot.changed.notify_all()
            if not slot.restarts:
                return
            self._launch(slot)


class OneOrchestrator(Topology):
    """One orchestrator, over a file or over PostgreSQL.

    Args:
        folder: As above.
        embedder: As above.
        database_url: PostgreSQL; empty for a file.
        more: Further arguments.
    """

    def __init__(self, folder: Path, embedder: str, database_url: str = "", more: Sequence[str] = ()) -> None:
        super().__init__(folder, embedder)
        self.database_url = database_url
        where: Sequence[str] = ("--database", str(folder / "data" / "assay.db"))
        if database_url:
            where = ("--database-url", database_url, "--dead-after-s", "4")
        self.add("orchestrator", "--listen", self.address, *where, "--grace-s", "5", *more)


class Cluster(Topology):
    """Processes that take runs ("api", or "api0", "api1" ...) and others that work on them, over one PostgreSQL.

    Args:
        folder: As above.
        embedder: As above.
        database_url: PostgreSQL.
        apis: How many processes take runs.
        workers: How many processes work.
        dead_after_s: After so long without a sign of life a worker counts as dead.
        urls: The database's URL for some processes, by their names, where it is another.
        more: Further arguments of all.
    """

    def __init__(
        self,
        folder: Path,
        embedder: str,
        database_url: str,
        *,
        apis: int = 1,
        workers: int = 2,
        dead_after_s: float = 4.0,
        more: Sequence[str] = (),
        urls: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, embedder)
        self.database_url = database_url
        self._urls = urls if urls is not None else {}
        self.dead_after_s = dead_after_s
        common = ["--dead-after-s", str(dead_after_s), "--shard-limit", "1", *more]  # so that each has some of the work
        self.addresses = [self.address]
        if apis > 1:
            self.addresses = _free_addresses(apis)
            self.address = "ipv4:" + ",".join(self.addresses)  # clients go to the first that answers
        for index, address in enumerate(self.addresses):
            self._add(f"api{index}" if apis > 1 else "api", "--role", "api", "--listen", address, *common)
        for index in range(workers):
            self._add(f"worker{index}", "--role", "worker", "--listen", f"unix:{folder}/worker{index}.sock", *common)

    def _add(self, name: str, *arguments: str) -> None:
        self.add(name, "--database-url", self._urls.get(name, self.database_url), *arguments)

    async def stop(self) -> list[str]:
        """Tell every process to stop, once those that have just been started again are there."""
        doors = [slot.arguments[slot.arguments.index("--listen") + 1] for slot in self.slots.values() if slot.restarts]
        for address in doors:
            with suppress(UnavailableError):  # one that is not there is noticed by how it ends
                async with open_channel(address) as channel:
                    await wait_for_ready(channel, "", _END_S)
        return await super().stop()

    def _doors(self) -> Sequence[str]:
        return self.addresses


def _free_addresses(count: int) -> list[str]:
    with ExitStack() as stack:
        places = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [f"127.0.0.1:{place.getsockname()[1]}" for place in places]


def open_engine(topology: OneOrchestrator | Cluster) -> sa.Engine:
    """Return a plain engine for what the processes have stored; they must have ended where it is a file."""
    if topology.database_url:
        url = topology.database_url
        return sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=sa.NullPool)
    copy = topology.folder / "copy"  # a look must not repair what a kill has left
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(topology.folder / "data", copy)
    return sa.create_engine(f"sqlite:///{copy}/assay.db", poolclass=sa.NullPool)
