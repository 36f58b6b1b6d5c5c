"""What docker-compose.yml starts, as plain processes: its commands with its flags, TLS, tokens and one-shot tasks.

Only what a container would give is replaced: host names by ports of this machine, volumes by folders, the database by
that of the tests. Each process may write where its container may, and nowhere else.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.docs.compose_file import IMAGES, SERVICES, image_environment, mounts, program
from tests.support.processes.read_only_root import landlock_version
from tests.support.processes.waiting import WITHIN_S

from assay.identity.tokens import parse_token
from assay.rpc.channel import open_channel, wait_for_ready
from assay.rpc.options import ChannelOptions
from assay.rpc.tls import ClientFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parents[2]
STARTED = ("embedder", "judge", "api-1", "worker-1")
"""Those that are the only one of their kind, and the first of two that have the same command line."""
_SANDBOX = ROOT / "tests" / "support" / "processes" / "read_only_root.py"


class Host:
    """A machine on which the containers of docker-compose.yml run as processes.

    Args:
        folder: An empty one.
        database_url: The database that stands in for the container of that name.
    """

    def __init__(self, folder: Path, database_url: str) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._database_url = database_url
        self._ports: dict[tuple[str, str], int] = {}

    def address(self, service: str, port: str) -> str:
        """Return where a port of a container is served here."""
        if (service, port) not in self._ports:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self._ports[service, port] = free.getsockname()[1]
        return f"localhost:{self._ports[service, port]}"

    def path(self, service: str, path: str) -> Path:
        """Return where a path of a container is here; its mounts are made first."""
        root = self.folder / "roots" / service
        for source, target, _ in mounts(service):
            place = root / target[1:]
            if not place.is_symlink():
                place.parent.mkdir(parents=True, exist_ok=True)
                place.symlink_to(self._volume(source), target_is_directory=True)
        return root / path[1:]

    def run(self, service: str) -> subprocess.CompletedProcess[str]:
        """Run a task to its end."""
        return subprocess.run(
            self._command(service), env=self._environment(service), cwd="/", capture_output=True, text=True, timeout=110
        )

    def start(self, service: str) -> None:
        """Start a container's process."""
        with (self.folder / f"{service}.log").open("wb") as log:
            self.processes[service] = subprocess.Popen(
                self._command(service), env=self._environment(service), cwd="/", stdin=subprocess.DEVNULL, stdout=log,
                stderr=log,
            )  # fmt: skip

    async def until_healthy(self, service: str) -> None:
        """Wait until the address of a container's health check says that it is ready, as the check does."""
        address = SERVICES[service]["healthcheck"]["test"][-1]
        async with open_channel(self.address(service, address.rpartition(":")[2])) as channel:
            ready = asyncio.create_task(wait_for_ready(channel, "", WITHIN_S))
            while not ready.done():
                await asyncio.wait([ready], timeout=0.2)
                assert self.processes[service].poll() is None, self.log_of(service)
            await ready

    def log_of(self, service: str) -> str:
        """Return what a process has logged."""
        return (self.folder / f"{service}.log").read_text(errors="replace")

    def stop(self) -> None:
        """End all processes as `docker compose down` does."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()
            process.wait()

    def _volume(self, source: str) -> Path:
        if source.startswith("./"):
            return ROOT / source
        volume = self.folder / "volumes" / source
        volume.mkdir(parents=True, exist_ok=True)
        return volume

    def _command(self, service: str) -> list[str | Path]:
        """Return a command line that may write where the container may: to its volumes and to /tmp."""
        temporary = self.folder / "tmp" / service
        temporary.mkdir(parents=True, exist_ok=True)
        writable = [self.path(service, target) for _, target, is_writable in mounts(service) if is_writable]
        python, *words = program(service)
        assert python == "python"
        words = [self._here(service, word) for word in [*words, *SERVICES[service]["command"]]]
        return [sys.executable, _SANDBOX, temporary, *writable, "--", sys.executable, *words]

    def _here(self, service: str, word: str) -> str:
        """Return a word of a command line as it is on this machine."""
        if word.startswith("/"):
            return str(self.path(service, word))
        if word == "10001":
            return str(os.getuid())  # the user of the containers
        named = re.fullmatch(r"([\w.-]+):(\d+)", word)
        if named is not None:
            is_own = named[1] in ("0.0.0.0", "127.0.0.1")
            return self.address(service if is_own else named[1], named[2])
        return re.sub(r"=server:(embedder|judge)$", "=server:localhost", word)

    def _environment(self, service: str) -> Mapping[str, str]:
        """Return the variables of a container, and no others of this machine's but those by which Python is found."""
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        given = {name: value or "" for name, value in SERVICES[service].get("environment", {}).items()}
        own = {name: value for name, value in image_environment(IMAGES[service]).items() if name != "PATH"}
        found = {**own, **{name: value for name, value in given.items() if name != "PGPASSWORD"}}
        found = {name: self._here(service, value) for name, value in found.items()}
        if "ASSAY_DATABASE_URL" in found:
            found["ASSAY_DATABASE_URL"] = self._database_url
        return {**kept, **found, "HOME": "/nonexistent", "TMPDIR": str(self.folder / "tmp" / service)}


@pytest.fixture
def host(tmp_path: Path, postgres_url: str) -> Iterator[Host]:
    """Yield a machine on which nothing runs yet; afterwards nothing does."""
    if not landlock_version():
        pytest.skip("the kernel has no Landlock, by which the root file system is made read-only")
    made = Host(tmp_path, postgres_url)
    with ExitStack() as stack:
        stack.callback(made.stop)
        yield made


def smoke(host: Host, token: str) -> subprocess.CompletedProcess[str]:
    """Run the smoke script against the installation, as docs/installation.md does."""
    environment = {
        **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "ASSAY_TOKEN": token,
        "ASSAY_SERVER": host.address("api-1", "7070"), "ASSAY_TLS_CA": str(host.path("api-1", "/etc/assay/tls/ca.crt")),
        "ASSAY_HOME": str(host.folder / "client"),
    }  # fmt: skip
    command = [ROOT / "deploy/compose/smoke"]
    return subprocess.run(command, env=environment, cwd=host.folder, capture_output=True, text=True, timeout=250)


async def answer_of(address: str, tls: ClientFiles) -> grpc.StatusCode:
    """Return how a service answers a health check of a client with these files."""
    async with open_channel(address, ChannelOptions(tls=tls, attempts=1)) as channel:
        try:
            await health_pb2_grpc.HealthStub(channel).Check(  # type: ignore[attr-defined]  # its stubs lack it
                health_pb2.HealthCheckRequest(), timeout=20
            )
        except grpc.aio.AioRpcError as refusal:
            return refusal.code()
    return grpc.StatusCode.OK


async def test_the_installation_of_the_file_works_for_a_team(host: Host) -> None:
    """Tasks, then services, in the order of the file; a team's runs pass; only the orchestrators reach the services.

    No process writes outside its volumes and /tmp, and each ends with status 0.
    """
    for task in ("certificates", "migrate"):
        done = host.run(task)
        assert done.returncode == 0, done.stderr
    for service in STARTED:
        host.start(service)
    made = host.run("bootstrap")
    token = made.stdout.strip()
    assert parse_token(token) is not None, made.stderr
    for service in STARTED:
        await host.until_healthy(service)

    done = smoke(host, token)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{host.log_of('api-1')}"
    assert re.findall(r"smoke: ([a-z-]+)-\d{8}-\d{6}-\w+ passed", done.stdout) == ["product-manual", "recorded"]
    assert "started run: run=recorded-" in host.log_of("worker-1")

    own, other = (host.path("api-1", f"/etc/assay/{name}") for name in ("services", "tls"))
    for service, port in (("embedder", "7071"), ("judge", "7072")):
        address = host.address(service, port)
        clients = [files(own), ClientFiles(own / "ca.crt"), files(other)]  # no certificate, one for servers
        answers = [await answer_of(address, each) for each in clients]
        assert answers == [grpc.StatusCode.OK, *[grpc.StatusCode.UNAVAILABLE] * 2]

    host.stop()
    ends = {name: process.returncode for name, process in host.processes.items()}
    assert ends == dict.fromkeys(STARTED, 0), "\n".join(map(host.log_of, STARTED))


def files(folder: Path) -> ClientFiles:
    """Return what a client with the files of a folder proves its identity with."""
    return ClientFiles(folder / "ca.crt", folder / "tls.crt", folder / "tls.key")
