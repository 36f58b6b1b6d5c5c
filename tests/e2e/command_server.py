"""Processes of the command, forked from one that has imported it.

Importing is most of what a short command does, and tests call it a thousand times. A forked process has a folder,
environment, standard streams and exit status of its own, runs `python -m assay_cli` and ends as an interpreter does.
What an interpreter or an import reads from the environment is that of the process that was forked:
`CommandServer.needs_own_imports` says where it differs.
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
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MODULES = (
    "assay.client.evaluate", "assay.client.starting", "assay.local.stack", "assay.reports.formats.html.summary_view",
    "assay_cli.commands.run", "assay_cli.output.console", "assay_cli.output.report_files", "jinja2",
)  # fmt: skip
_READ_AT_IMPORT = ("PYTHON", "LANG", "LC_", "GRPC_", "ASSAY_FAILPOINTS")
_LONGEST_CALL = 1 << 20


class CommandServer:
    """Starts processes of the command by forking one that has imported it; ends when it is closed, or the tests do."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._channel, served = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST_CALL)
        with served:
            fd = served.fileno()
            self._process = subprocess.Popen([sys.executable, __file__, str(fd)], pass_fds=(fd,))

    def needs_own_imports(self, environment: Mapping[str, str]) -> bool:
        """Return whether what is read at the start of a process differs in this environment."""
        names = [name for name in {*environment, *self._environment} if name.startswith(_READ_AT_IMPORT)]
        return any(environment.get(name) != self._environment.get(name) for name in names)

    def run(
        self, arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Call the command and wait until it has ended and its output is complete.

        Raises:
            TimeoutError: It has not by then.
        """
        mask = os.umask(0)
        os.umask(mask)
        call = json.dumps([list(arguments), os.fspath(folder), dict(environment), mask]).encode()
        status, answering = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        try:
            socket.send_fds(self._channel, [call], [answering.fileno(), 0, out_end, err_end])
        finally:
            answering.close()
            os.close(out_end)
            os.close(err_end)
        try:
            said = _read_all([out, err], time.monotonic() + timeout_s)
            status.settimeout(timeout_s)
            returned = int(status.recv(16))
        finally:
            status.close()
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
        _, ended = os.waitpid(child, 0)
        with socket.socket(fileno=status) as answer:
            answer.send(str(os.waitstatus_to_exitcode(ended)).encode())
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
    os.environ["GRPC_VERBOSITY"] = "NONE"  # as the command does before it imports
    for name in _MODULES:
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
    runpy.run_module("assay_cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
