"""Processes of a program, forked from a server that has already imported it.

Imports take most of the time of a short command and half the start of a service, and the tests start two thousand of
them. A forked process has its own folder, environment, standard streams, command line and exit status. It runs
`python -m PROGRAM` and exits as an interpreter does. Variables that the interpreter or an import reads keep the values
of the server: `Forks.needs_own_imports` reports whether they differ.

A server imports its program on the first call, so an unused server costs nothing.
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
        "assay.client.api.evaluate", "assay.client.service_start", "assay.local_stack.stack",
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
    "pytest": ("assay.client.api.evaluate", "assay.client.service_start", "assay_pytest.evaluation", "pytest"),
}  # fmt: skip
"""The modules that the server of each program imports before it forks."""

_ROOT = Path(__file__).resolve().parents[3]
_READ_AT_IMPORT = (
    "PYTHON", "LANG", "LC_", "GRPC_", "HF_", "TRANSFORMERS_", "TOKENIZERS_", "TORCH", "PYTORCH_", "OMP_", "MKL_",
    "ASSAY_EMBEDDER_THREADS",
)  # fmt: skip
LONGEST_CALL = 1 << 20
_LONGEST_COMMAND = 1 << 12
SERVICE_ENVIRONMENT = {"GRPC_VERBOSITY": "NONE"}
"""The variables that a service inherits from the command that starts it."""


@dataclass(frozen=True)
class Call:
    """A process to fork, without its streams.

    Args:
        arguments: The arguments of the program.
        folder: The current folder.
        environment: All variables.
        umask: The mask for files that it creates.
        is_service: Whether it starts a session and imports nothing from the current folder.
    """

    arguments: list[str]
    folder: str
    environment: dict[str, str]
    umask: int
    is_service: bool


class ForkedProcess:
    """A forked process with the interface of `subprocess.Popen`.

    Args:
        status: The socket that delivers its process id and, when it ends, its exit status.
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
        """Return the exit status, or None while the process runs."""
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
    """Starts processes of a program through its server.

    Args:
        program: The package to run.
        channel: The socket of the server.
        environment: The environment of the server.
    """

    def __init__(self, program: str, channel: socket.socket, environment: Mapping[str, str]) -> None:
        self._program = program
        self._channel = channel
        self._environment = dict(environment)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST_CALL)

    def needs_own_imports(self, environment: Mapping[str, str]) -> bool:
        """Return whether an environment changes variables that are read at startup or on import."""
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
        """Fork the program, or start a new interpreter if it needs its own imports.

        Args:
            arguments: The arguments of the program.
            folder: The current folder.
            streams: The descriptors of its standard input, output and errors.
            environment: All variables; None for the variables of this process.
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
        """Fork the program, even if a new interpreter would import something else.

        Args:
            arguments: The arguments of the program.
            folder: The current folder.
            environment: All variables.
            fds: The descriptors of its standard input, output and errors, then any others it inherits.
            is_service: Whether it starts a session and imports nothing from the current folder.
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
        """Run the program and return its output and exit status.

        Raises:
            TimeoutError: The program did not end in time.
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
                outputs = _read_all([out, err], time.monotonic() + timeout_s)
                returned = process.wait(timeout_s)
            except TimeoutError:
                process.kill()
                process.wait()
                raise
        finally:
            os.close(out)
            os.close(err)
        output, errors = (text.decode().replace("\r\n", "\n").replace("\r", "\n") for text in outputs)
        return subprocess.CompletedProcess(list(arguments), returned, output, errors)


class ForkServer(Forks):
    """The process that forks a program. It ends when it is closed or the tests end.

    Args:
        program: A key of MODULES.
        services: The servers of programs that a forked process starts.
        defaults: Variables to set unless this process has them.
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
        """Return the file descriptor of the channel."""
        return self._channel.fileno()

    def close(self) -> None:
        """End the server; programs that start processes through it must have ended."""
        self._channel.close()
        self._process.wait()


def service_servers() -> dict[str, ForkServer]:
    """Return the servers of the services that a command starts, by program."""
    services = ("assay_embedder", "assay_judge", "assay_orchestrator")
    return {program: ForkServer(program, defaults=SERVICE_ENVIRONMENT) for program in services}


def _read_all(fds: Sequence[int], deadline: float) -> list[bytes]:
    chunks: dict[int, list[bytes]] = {fd: [] for fd in fds}
    with selectors.DefaultSelector() as selector:
        for fd in fds:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(deadline - time.monotonic())
            if not ready:
                raise TimeoutError("the command has not ended")
            for key, _ in ready:
                chunks[key.fd].append(os.read(key.fd, 1 << 16))
                if not chunks[key.fd][-1]:
                    selector.unregister(key.fd)
    return [b"".join(chunks[fd]) for fd in fds]
