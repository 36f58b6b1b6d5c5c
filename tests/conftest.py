"""Settings of every test run, and the fixtures of PostgreSQL.

ASSAY_TEST_DATABASE_URL may name a server as postgresql://user:password@host:port/name. Its user must be a superuser,
because tests create and drop schemas and databases there. Tests that kill a server always start their own.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from tests.support.processes.leftovers import guard_processes
from tests.support.processes.postgres_server import GIVEN_URL, PostgresServer, guarded_folder, own_server
from tests.support.processes.temporary_files import keep_in_memory
from tests.support.rings.collection import Collection, Ring, check_folders, mark_services
from tests.support.rings.left_out import LeftOut

if TYPE_CHECKING:
    from collections.abc import Iterator

# Without byte code, every process that tests start would compile all its imports, which doubles the time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Services of commands and of `evaluate` end with their last user, except in the tests of those that wait idle.
os.environ["ASSAY_IDLE_S"] = "0"
# Idle threads of torch sleep instead of spinning: those of several processes would take each other's processors.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Examples have no deadline: speed is measured in benchmarks/. The gate repeats the same few examples, so that only a
# change can turn it red; `make test-nightly` tries many new ones.
_UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("gate", _UNTIMED, max_examples=25, derandomize=True)
settings.register_profile("nightly", _UNTIMED, max_examples=200)
settings.load_profile("gate")

_DATABASES = {"postgres", "new postgres"}  # the parameters of tests that run over PostgreSQL
_GUARD_KEY = pytest.StashKey[object]()
_FIXTURES = {"postgres_cluster", "postgres_server"}  # every fixture of PostgreSQL uses one of these


def pytest_configure(config: pytest.Config) -> None:
    """Select the ring, guard against leftover processes, and accept Ctrl-C even in the background of a shell."""
    keep_in_memory()
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        # Named files run whatever their ring; a target that names folders selects its ring with -m.
        config.option.markexpr = config.option.markexpr.removesuffix(" and not services")
    config.stash[_GUARD_KEY] = guard_processes()
    # A process has one gRPC poller. It may wake the event loop of a finished test, which asyncio logs during the next
    # test, and that test may compare its log.
    logging.getLogger("asyncio").addFilter(lambda record: "PollerCompletionQueue" not in record.getMessage())
    ring = Ring(config)
    config.pluginmanager.register(ring)
    config.pluginmanager.register(LeftOut(config, ring.ignored_files()))
    config.pluginmanager.register(Collection(int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need PostgreSQL before markers select; refuse tests that no target runs."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if fixtures & _FIXTURES or any(value in _DATABASES for value in parameters if isinstance(value, str)):
            item.add_marker("postgres")
    mark_services(items)
    check_folders(items)


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> None:
    """Refuse PostgreSQL to a test without the marker, because it would start a server in `make test`."""
    if fixturedef.argname in _FIXTURES and not request._pyfuncitem.get_closest_marker("postgres"):
        pytest.fail("this test needs PostgreSQL: mark it with pytest.mark.postgres")


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Print a failure at once, because the other tests take minutes."""
    if not report.failed:
        return None
    kind = "failed" if report.when == "call" else "error"
    return kind, f"\n{kind}: {report.nodeid}\n", kind.upper()


@pytest.fixture(scope="session")
def postgres_cluster() -> Iterator[Path]:
    """Return the data folder of a server that has never been started."""
    with guarded_folder() as folder:
        yield PostgresServer(folder).data


@pytest.fixture(scope="session")
def postgres_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of the session's server: the one in ASSAY_TEST_DATABASE_URL, or one started here."""
    given = os.environ.get(GIVEN_URL)
    if given:
        yield given
        return
    with own_server(cluster=request.getfixturevalue("postgres_cluster")) as server:
        yield server.url


@pytest.fixture
def killable_postgres(postgres_cluster: Path) -> Iterator[PostgresServer]:
    """Return a running server that the test may kill and start again."""
    with own_server(cluster=postgres_cluster) as server:
        yield server


def _drop_schema(connection: psycopg.Connection[tuple[object, ...]], name: str) -> None:
    """Drop a schema while the server may still end the transactions of killed processes."""
    for _ in range(10):
        with suppress(psycopg.errors.DeadlockDetected):
            connection.execute(f"DROP SCHEMA {name} CASCADE".encode())
            return
    raise AssertionError(f"{name} cannot be dropped: some process of the test still uses it")


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """Return the URL of an empty schema that is dropped after the test."""
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        yield f"{postgres_server}{'&' if '?' in postgres_server else '?'}options={quote(f'-c search_path={name}')}"
        _drop_schema(connection, name)
