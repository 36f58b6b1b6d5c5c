"""Processes of a program, forked from one that has imported it.

Importing is most of what a short command does, and half of what a service does until it is ready; tests start two
thousand of them. A forked process has a folder, environment, standard streams and exit status of its own, runs
`python -m PROGRAM` and ends as an interpreter does. What an interpreter or an import reads from the environment is that
of the process that was forked: `ForkServer.needs_own_imports` says where it differs.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_READ_AT_IMPORT = ("PYTHON", "LANG", "LC_", "GRPC_", "ASSAY_FAILPOINTS")
_LONGEST_CALL = 1 << 20


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


class ForkServer:
    """Starts processes of a program by forking one that has imported it; ends when it is closed, or the tests do.

    Args:
        program: The package that is run.
        modules: What is imported before.
    """

    def __init__(self, program: str, modules: Sequence[str]) -> None:
        self._program = program
        self._environment = dict(os.environ)
        self._channel, served = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST_CALL)
        with served:
            fd = served.fileno()
            command = [sys.executable, __file__, str(fd), program, *modules]
            self._process = subprocess.Popen(command, pass_fds=(fd,))

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
        mask = os.umask(0)
        os.umask(mask)
        call = json.dumps([list(arguments), os.fspath(folder), dict(environment), mask]).encode()
        status, answering = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with answering:
            socket.send_fds(self._channel, [call], [answering.fileno(), *streams])
        return ForkedProcess(status)

    def run(
        self, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Call the program and wait until it has ended and its output is complete.

        Raises:
            TimeoutError: It has not by then.
        """
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        try:
            try:
                process = self.start(arguments, folder=folder, environment=environment, streams=(0, out_end, err_end))
            finally:
                os.close(out_end)
                os.close(err_end)
            said = _read_all([out, err], time.monotonic() + timeout_s)
            returned = process.wait(timeout_s)
        finally:
            os.close(out)
            os.close(err)
        output, errors = (text.decode().replace("\r\n", "\n").replace("\r", "\n") for text in said)
        return subprocess.CompletedProcess(list(arguments), returned, output, errors)

    def close(self) -> None:
        """End the process that forks."""
        self._channel.close()
        self._process.wait()


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


def _next_call(channel: socket.socket) -> Any:
    """Return a call, in the process that is forked to answer it; the others never return.

    Between them stands a process that waits for the status, so that this one need not.
    """
    while True:
        call, fds, _, _ = socket.recv_fds(channel, _LONGEST_CALL, 4)
        if not call:
            os._exit(0)  # the tests have ended
        if os.fork():
            for fd in fds:
                os.close(fd)
            continue
        channel.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        status, *streams = fds
        child = os.fork()
        if child == 0:
            os.close(status)
            for number, fd in enumerate(streams):
                os.dup2(fd, number)
                os.close(fd)
            return json.loads(call)
        for fd in (0, 1, 2, *streams):
            os.close(fd)
        with socket.socket(fileno=status) as answer:
            answer.send(str(child).encode())
            # The child stays a zombie, whose number no other process gets, until its status is read.
            ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
            assert ended is not None, "there is no WNOHANG"
            signalled = ended.si_code != os.CLD_EXITED
            with suppress(OSError):  # the tests have ended
                answer.send(str(-ended.si_status if signalled else ended.si_status).encode())
                answer.recv(1)
        os._exit(0)


def _renew_streams() -> None:
    """Read and write what is at the standard descriptors now, as an interpreter that starts does."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        file = open(  # noqa: SIM115 - open for as long as the process is
            fd, old.mode, 1 if name == "stderr" else -1, old.encoding, old.errors, closefd=False
        )
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)


def _main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that wait are waited for by no process
    before = dict(os.environ)
    program, *modules = sys.argv[2:]
    if program == "assay_cli":
        os.environ["GRPC_VERBOSITY"] = "NONE"  # as the command does before it imports
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    arguments, folder, environment, mask = _next_call(socket.socket(fileno=int(sys.argv[1])))
    set_by_imports = {name: value for name, value in os.environ.items() if name not in before}
    os.environ.clear()
    os.environ.update({**set_by_imports, **environment})
    _renew_streams()
    os.umask(mask)
    os.chdir(folder)
    sys.path[0] = str(Path.cwd())
    sys.argv[1:] = arguments
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
