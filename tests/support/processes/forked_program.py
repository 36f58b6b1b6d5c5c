"""The server that forks a program, and the setup of each forked process.

Started by `tests.support.processes.fork_server.ForkServer`. It imports the program on the first call.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

from tests.support.processes.fork_server import LONGEST_CALL, MODULES, SERVICE_ENVIRONMENT, Call, Forks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support.processes.fork_server import Process

_FREED = {"__main__", "builtins", "sys"}


def _next_call(channel: socket.socket) -> Call:
    """Return a call in the process forked for it; the server itself never returns.

    Between them stands a process that waits for the status, so that this one need not.
    """
    while True:
        call, fds, _, _ = socket.recv_fds(channel, LONGEST_CALL, 8)
        if not call:
            os._exit(0)  # the tests have ended
        if os.fork():
            for fd in fds:
                os.close(fd)
            continue
        channel.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        status, *given = fds
        child = os.fork()
        if child == 0:
            os.close(status)
            for number, fd in enumerate(given[:3]):
                os.dup2(fd, number)
                os.close(fd)
            for fd in given[3:]:
                os.set_inheritable(fd, True)  # a program may replace itself by another
            return Call(**json.loads(call))
        for fd in (0, 1, 2, *given):
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


def _show_command(command: Sequence[str]) -> None:
    """Overwrite the command line that the system shows, in the space of the server's own."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # fields 48 and 49 of the file
    shown = b"\0".join(map(os.fsencode, command))[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, shown, len(shown))


def _arm_failpoints() -> None:
    """Configure failpoints from the environment, as their import does."""
    from assay.process import failpoints

    old = {name: getattr(failpoints, name) for name in ("failpoint", "clock_offset_s")}
    importlib.reload(failpoints)
    for module in list(sys.modules.values()):
        for name, value in old.items():
            if getattr(module, name, None) is value:
                setattr(module, name, getattr(failpoints, name))


def _fork_services(services: Mapping[str, Forks]) -> None:
    """Make the local stack of this process fork its services unless they need their own imports."""
    from assay.local_stack import stack

    def start(command: list[str], *, stdout: IO[bytes], pass_fds: Sequence[int], **options: Any) -> Process:
        place = command.index("-m") + 1
        forks = services[command[place]]
        if forks.needs_own_imports(os.environ):
            return subprocess.Popen(command, stdout=stdout, pass_fds=pass_fds, **options)
        with Path(os.devnull).open("rb") as nothing:
            fds = [nothing.fileno(), stdout.fileno(), stdout.fileno(), *pass_fds]
            return forks.fork(command[place + 1 :], folder=Path.cwd(), environment=os.environ, fds=fds, is_service=True)

    vars(stack)["subprocess"] = SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT)


def _renew_streams() -> None:
    """Reopen the standard streams on their current descriptors, as a starting interpreter does."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        file = open(  # noqa: SIM115 - open for as long as the process is
            fd, old.mode, 1 if name == "stderr" else -1, old.encoding, old.errors, closefd=False
        )
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)


def _leave_modules(kept: dict[str, ModuleType]) -> None:
    """Leave some modules to the system at exit, instead of freeing them one by one.

    That frees them one by one, in a third of the time of a short command. All else is as it is: threads are joined,
    exit handlers called, files flushed, and what the program itself has made is freed.

    Args:
        kept: They are added later.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))

    def forget() -> None:
        for name in kept:
            sys.modules.pop(name, None)

    atexit.register(forget)  # the first one is called last


def _main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that wait are waited for by no process
    before = dict(os.environ)
    number, program, fds, *_ = sys.argv[1:]
    channel = socket.socket(fileno=int(number))
    if not channel.recv(1, socket.MSG_PEEK):  # nothing is imported before the first call
        return  # the tests have ended without one
    if program == "assay_cli":
        os.environ["GRPC_VERBOSITY"] = "NONE"  # as the command does before it imports
    kept: dict[str, ModuleType] = {}
    _leave_modules(kept)
    for name in MODULES[program]:
        importlib.import_module(name)
    kept.update((name, module) for name, module in sys.modules.items() if name not in _FREED)
    gc.collect()
    gc.freeze()
    call = _next_call(channel)
    set_by_imports = {name: value for name, value in os.environ.items() if name not in before}
    os.environ.clear()
    os.environ.update({**set_by_imports, **call.environment})
    own = {**SERVICE_ENVIRONMENT, **before}
    if services := {name: Forks(name, socket.socket(fileno=fd), own) for name, fd in json.loads(fds).items()}:
        _fork_services(services)
    _become(program, call)
    runpy.run_module(program, run_name="__main__", alter_sys=True)


def _become(program: str, call: Call) -> None:
    """Turn this process into the one that a start would have created."""
    if call.is_service:
        os.setsid()
    _show_command([sys.executable, "-m", program, *call.arguments])
    _renew_streams()
    if os.environ.get("ASSAY_FAILPOINTS") or os.environ.get("ASSAY_FAILPOINTS_LOG"):
        _arm_failpoints()
    os.umask(call.umask)
    os.chdir(call.folder)
    if call.is_service:
        del sys.path[0]
    else:
        sys.path[0] = str(Path.cwd())
    sys.argv[1:] = call.arguments


if __name__ == "__main__":
    _main()
