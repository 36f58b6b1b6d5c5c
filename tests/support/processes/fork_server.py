"""Processes of a program, forked from one that has imported it.

Importing is most of what a short command does, and half of what a service does until it is ready; tests start two
thousand of them. A forked process has a folder, environment, standard streams, command line and exit status of its own,
runs `python -m PROGRAM` and ends as an interpreter does. What an interpreter or an import reads from the environment is
that of the process that was forked: `Forks.needs_own_imports` says where it differs.

What forks imports the program when it is first called: a server that no test needs costs nothing.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MODULES = {
    "assay_cli": (
        "assay.client.evaluate", "assay.client.service_start", "assay.local_stack.stack",
        "assay.reports.comparison.writing", "assay.reports.formats.html.summary_view", "assay_cli.commands.compare",
        "assay_cli.commands.run", "assay_cli.output.console", "assay_cli.output.report_files", "jinja2",
        "scipy.optimize", "scipy.special",
    ),
    "assay_embedder": (
        "assay.local_stack.lease", "assay_embedder.models.packed.network", "assay_embedder.service",
        "safetensors.torch", "tokenizers", "torch",
    ),
    "assay_judge": (
        "assay.storage.postgres", "assay.storage.sqlite", "assay_judge.resources", "assay_judge.service", "anthropic",
        "openai", "sqlalchemy.dialects.sqlite.pysqlite",
    ),
    "assay_orchestrator": (
        "assay.local_stack.lease", "assay.rpc.server", "assay.storage.sqlite",
        "assay_orchestrator.engine.dispatcher_factory",
        "assay_orchestrator.runs.manager", "assay_orchestrator.service", "sqlalchemy.dialects.sqlite.pysqlite",
        "uvloop",
    ),
    "pytest": ("assay.client.evaluate", "assay.client.service_start", "assay_pytest.evaluation", "pytest"),
}  # fmt: skip
"""What is imported before a process of a program is forked."""

_ROOT = Path(__file__).resolve().parents[3]
_READ_AT_IMPORT = (
    "PYTHON", "LANG", "LC_", "GRPC_", "HF_", "TRANSFORMERS_", "TOKENIZERS_", "TORCH", "PYTORCH_", "OMP_", "MKL_",
    "ASSAY_EMBEDDER_THREADS",
)  # fmt: skip
LONGEST_CALL = 1 << 20
_LONGEST_COMMAND = 1 << 12
SERVICE_ENVIRONMENT = {"GRPC_VERBOSITY": "NONE"}
"""What a service inherits from the command that starts it."""


@dataclass(frozen=True)
class Call:
    """What a process is to be, beside its streams.

    Args:
        arguments: What follows the program's name.
        folder: The current folder.
        environment: All variables.
        umask: Of the files that it makes.
        is_service: Whether it leads a session of its own, and imports nothing from the current folder.
    """

    arguments: list[str]
    folder: str
    environment: dict[str, str]
    umask: int
    is_service: bool


class ForkedProcess:
    """A forked process, with what `subprocess.Popen` has for one.

    Args:
        status: Where its process id comes from, and its exit status when it has ended.
    """

    def __init__(self, status: socket.socket) -> None:
        self._status = status
        self._reading = threading.Lock()
        self.pid = int(status.recv(16))
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process is known to have ended."""
        if self.returncode is None:
            os.kill(self.pid, number)  # its number stays its own until its status is read

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def poll(self) -> int | None:
        """Return the exit status, None before the end."""
        try:
            return self.wait(0)
        except (TimeoutError, BlockingIOError):
            return None

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for the end and return the exit status.

        Raises:
            TimeoutError: It has not ended by then.
        """
        with self._reading:
            if self.returncode is None:
                self._status.settimeout(timeout_s)
                self.returncode = int(self._status.recv(16))
                self._status.close()
            return self.returncode


Process: TypeAlias = "ForkedProcess | subprocess.Popen[bytes]"


class Forks:
    """Starts processes of a program through the process that forks them.

    Args:
        program: The package that is run.
        channel: To the process that forks.
        environment: That of this process.
    """

    def __init__(self, program: str, channel: socket.socket, environment: Mapping[str, str]) -> None:
        self._program = program
        self._channel = channel
        self._environment = dict(environment)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST_CALL)

    def needs_own_imports(self, environment: Mapping[str, str]) -> bool:
        """Return whether what is read at the start of a process differs in this environment."""
        names = [name for name in {*environment, *self._environment} if name.startswith(_READ_AT_IMPORT)]
        return any(environment.get(name, "") != self._environment.get(name, "") for name in names)

    def start(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        streams: Sequence[int],
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """Start the program; where it needs imports of its own, as a shell does.

        Args:
            arguments: What follows its name.
            folder: The current folder.
            streams: The descriptors of its standard input, output and errors.
            environment: All variables; None for those of this process.
        """
        environment = os.environ if environment is None else environment
        if self.needs_own_imports(environment):
            stdin, stdout, stderr = streams
            command = [sys.executable, "-m", self._program, *arguments]
            return subprocess.Popen(command, cwd=folder, env=environment, stdin=stdin, stdout=stdout, stderr=stderr)
        return self.fork(list(arguments), folder=folder, environment=environment, fds=streams)

    def fork(
        self,
        arguments: list[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        fds: Sequence[int],
        is_service: bool = False,
    ) -> ForkedProcess:
        """Fork the program, whatever it would import in this environment.

        Args:
            arguments: What follows its name.
            folder: The current folder.
            environment: All variables.
            fds: The descriptors of its standard input, output and errors; then others that it holds.
            is_service: Whether it leads a session of its own, and imports nothing from the current folder.
        """
        mask = os.umask(0)
        os.umask(mask)
        call = Call(arguments, os.fspath(folder), dict(environment), mask, is_service)
        status, answering = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with answering:
            socket.send_fds(self._channel, [json.dumps(asdict(call)).encode()], [answering.fileno(), *fds])
        return ForkedProcess(status)

    def run(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        timeout_s: float,
        stdin: int = 0,
    ) -> subprocess.CompletedProcess[str]:
        """Call the program and wait until it has ended and its output is complete.

        Raises:
            TimeoutError: It has not by then.
        """
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        try:
            try:
                process = self.start(
                    arguments, folder=folder, environment=environment, streams=(stdin, out_end, err_end)
                )
            finally:
                os.close(out_end)
                os.close(err_end)
            try:
                said = _read_all([out, err], time.monotonic() + timeout_s)
                returned = process.wait(timeout_s)
            except TimeoutError:
                process.kill()
                process.wait()
                raise
        finally:
            os.close(out)
            os.close(err)
        output, errors = (text.decode().replace("\r\n", "\n").replace("\r", "\n") for text in said)
        return subprocess.CompletedProcess(list(arguments), returned, output, errors)


class ForkServer(Forks):
    """The process that forks; ends when it is closed, or the tests do.

    Args:
        program: A key of MODULES.
        services: Programs that a forked process starts: they are forked as well.
        defaults: Variables of the environment where this process has none of that name.
    """

    def __init__(
        self, program: str, services: Mapping[str, ForkServer] | None = None, defaults: Mapping[str, str] | None = None
    ) -> None:
        environment = {**(defaults or {}), **os.environ}
        channel, served = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(program, channel, environment)
        started = {name: server.fileno() for name, server in (services or {}).items()}
        with served:
            fds = (served.fileno(), *started.values())
            command = [
                sys.executable,
                "-m",
                "tests.support.processes.forked_program",
                str(served.fileno()),
                program,
                json.dumps(started),
            ]
            command.append(" " * _LONGEST_COMMAND)  # room for the command line of a forked process
            self._process = subprocess.Popen(command, pass_fds=fds, env=environment, cwd=_ROOT)

    def fileno(self) -> int:
        """Return the descriptor of the channel."""
        return self._channel.fileno()

    def close(self) -> None:
        """End the process that forks; those that start its processes have ended."""
        self._channel.close()
        self._process.wait()


def service_servers() -> dict[str, ForkServer]:
    """Return what forks the services that a command starts, by their programs."""
    services = ("assay_embedder", "assay_judge", "assay_orchestrator")
    return {program: ForkServer(program, defaults=SERVICE_ENVIRONMENT) for program in services}


def _read_all(fds: Sequence[int], deadline: float) -> list[bytes]:
    said: dict[int, list[bytes]] = {fd: [] for fd in fds}
    with selectors.DefaultSelector() as selector:
        for fd in fds:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(deadline - time.monotonic())
            if not ready:
                raise TimeoutError("the command has not ended")
            for key, _ in ready:
                said[key.fd].append(os.read(key.fd, 1 << 16))
                if not said[key.fd][-1]:
                    selector.unregister(key.fd)
    return [b"".join(said[fd]) for fd in fds]
