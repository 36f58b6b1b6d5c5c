"""The command as users run it: a process per call, in a separate folder for each test.

Tests that start, stop or kill services, or that read the whole store, have their own state directory: use `cli` or
`project`, or `own_stack` for a running orchestrator. All other tests share a local stack that stays up, so that their
commands start neither services nor models: use `shared_cli` or `shared_project`, or `judged_project` for a running
judge. `Cli.run` forks the command and its services from processes that have imported them. `Cli.start` starts the
command as a shell does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.support.processes.fork_server import ForkServer, service_servers
from tests.support.processes.waiting import wait_until

from assay.local_stack.stack import SERVICES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
WAITING_AGENT = """
import pathlib, time
def answer(request):
    with open("asked.txt", "a") as file:
        file.write(request.case_id + "\\n")
    while request.case_id == "c15" and not pathlib.Path("go").exists():
        time.sleep(0.01)
    return request.input.upper()
"""


class Cli:
    """Runs `assay` in a folder.

    Args:
        folder: The current folder of the command.
        home: The state directory; None for a new one in the folder.
        server: Forks the processes of `run` unless they need their own imports; None to start each.
    """

    def __init__(self, folder: Path, home: Path | None = None, server: ForkServer | None = None) -> None:
        self.folder = folder
        self.server = server
        self.home = home if home is not None else folder / "home"
        self.env = {**os.environ, "ASSAY_HOME": str(self.home), "NO_COLOR": "1"}

    def command(self, *arguments: str | Path) -> list[str]:
        """Return the command line."""
        return [sys.executable, "-m", "assay_cli", *map(str, arguments)]

    def run(
        self, *arguments: str | Path, status: int | None = 0, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[str]:
        """Run the command to its end and check that it exits with `status`."""
        if self.server is None or self.server.needs_own_imports(self.env):
            done = subprocess.run(
                self.command(*arguments), cwd=self.folder, env=self.env, input=stdin.decode(), capture_output=True,
                text=True, timeout=110,
            )  # fmt: skip
        else:
            words = [str(argument) for argument in arguments]
            with TemporaryFile() as file:
                file.write(stdin)
                file.seek(0)
                done = self.server.run(
                    words, folder=self.folder, environment=self.env, timeout_s=110, stdin=file.fileno()
                )
        assert status is None or done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Start the command without waiting."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def write(self, name: str, content: str | dict[str, Any]) -> Path:
        """Write a file in the folder; a mapping is written as JSON, which is valid YAML."""
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def wait_until(self, condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
        """Wait for a condition while a process lives that may make it true."""

        def ended() -> str | None:
            if process.poll() is None:
                return None
            out, err = process.communicate()
            return f"the command ended with {process.returncode}\n{out}\n{err}"

        wait_until(condition, ended=ended)

    def services(self) -> list[psutil.Process]:
        """Return the running services of this state directory."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or [])
            if str(self.home) in line and any(f"assay_{name}" in line for name in SERVICES):
                found.append(process)
        return found


@pytest.fixture(scope="session")
def command_server() -> Iterator[ForkServer]:
    """Return the server that forks the command, which forks its services too."""
    services = service_servers()
    server = ForkServer("assay_cli", services)
    yield server
    for forks in (server, *services.values()):
        forks.close()


@pytest.fixture
def cli(tmp_path: Path, command_server: ForkServer) -> Iterator[Cli]:
    """Return the command in an empty folder; no service may outlive the test."""
    caller = Cli(tmp_path, server=command_server)
    yield caller
    _check_nothing_left(caller)


@contextmanager
def stack_up(caller: Cli, *options: str) -> Iterator[None]:
    """Keep the local stack of a command up inside the block; no service may outlive it."""
    caller.run("up", *options)
    try:
        yield
    finally:
        caller.run("down")
        _check_nothing_left(caller)


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory, command_server: ForkServer) -> Iterator[Path]:
    """Return the state directory of the shared stack, whose services and model start once."""
    caller = Cli(tmp_path_factory.mktemp("shared"), server=command_server)
    with stack_up(caller):
        yield caller.home


@pytest.fixture
def shared_cli(tmp_path: Path, shared_home: Path, command_server: ForkServer) -> Cli:
    """Return the command in an empty folder, over the shared stack, which also stores the runs of other tests."""
    return Cli(tmp_path, shared_home, command_server)


@pytest.fixture(scope="session")
def shared_judge(
    shared_home: Path, tmp_path_factory: pytest.TempPathFactory, command_server: ForkServer
) -> dict[str, str]:
    """Return the settings of the shared stack's judge: one attempt per call, and a price for every model."""
    caller = Cli(tmp_path_factory.mktemp("judge"), shared_home, command_server)
    prices = caller.write("prices.yaml", "prices: [{model: '*', input: 1, output: 5}]")
    settings = {"ASSAY_JUDGE_PRICES": str(prices), "ASSAY_JUDGE_ATTEMPTS": "1"}
    caller.env |= settings
    caller.run("up", "--judge")
    return settings


def _check_nothing_left(caller: Cli) -> None:
    services = caller.services()
    psutil.wait_procs(services, timeout=60)
    leaked = [process for process in services if process.is_running()]
    for process in leaked:
        process.kill()
    assert not leaked, "services were left behind"


@pytest.fixture
def project(cli: Cli) -> Cli:
    """Return the command in a new folder with a small spec, dataset and agent."""
    return with_project(cli)


@pytest.fixture
def own_stack(project: Cli) -> Iterator[Cli]:
    """Return such a command with a running orchestrator, so that each call is quick and all runs are its own."""
    with stack_up(project, "--no-embedder"):
        yield project


@pytest.fixture
def shared_project(shared_cli: Cli) -> Cli:
    """Return the command in a folder with a small spec, dataset and agent, over the shared stack."""
    return with_project(shared_cli)


@pytest.fixture
def judged_project(shared_project: Cli, shared_judge: dict[str, str]) -> Cli:
    """Return such a command with a running judge."""
    shared_project.env |= shared_judge
    return shared_project


def report_of(folder: Path) -> dict[str, Any]:
    """Return the JSON report of a folder."""
    document: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return document


def with_project(cli: Cli) -> Cli:
    cli.write("agent.py", "def answer(request):\n    return request.input.upper()\n")
    lines = [json.dumps({"id": f"c{i}", "question": f"q{i}", "answer": f"Q{i}"}) for i in range(20)]
    cli.write("qa.jsonl", "\n".join(lines))
    cli.write(
        "assay.yaml",
        "name: small\ndataset: qa.jsonl\nagent: {adapter: python, target: 'agent:answer'}\n"
        "metrics: [exact_match, latency]\ngates: ['pass_rate >= 0.9']\n",
    )
    return cli
