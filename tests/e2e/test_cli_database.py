"""`assay serve orchestrator --database-url`: whole runs over PostgreSQL, and what is said where it cannot be used."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psutil
import psycopg
import pytest

from assay.rpc.channel import open_channel, wait_for_ready
from assay.storage.postgres import PostgresDatabase
from assay_orchestrator.store.revisions import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.conftest import Cli

PASSWORD = "s3cret%ü"


@contextmanager
def serving(project: Cli, *arguments: str | Path, **environment: str) -> Iterator[str]:
    """Serve an orchestrator and return its address; it must end with status 0 when it is told to stop."""
    address = f"unix:{project.folder}/orchestrator.sock"
    project.env.update(environment)
    process = project.start("serve", "orchestrator", "--listen", address, *arguments)

    async def wait() -> None:
        async with open_channel(address) as channel:
            await wait_for_ready(channel, "assay.v1.RunService", 60)

    try:
        asyncio.run(wait())
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        said = "".join(process.communicate(timeout=180))
    assert process.returncode == 0, said


def rows_of(project: Cli, folder: str) -> list[dict[str, Any]]:
    """Return the rows of a report without what no two runs share: times."""
    rows = json.loads((project.folder / folder / "results.json").read_text(encoding="utf-8"))["rows"]
    for row in rows:
        for moment in ("latency_ms", "started_at", "duration_ms"):
            row.pop(moment)
        row["scores"].pop("latency")
    return list(rows)


@pytest.fixture
def role(postgres_server: str) -> Iterator[Callable[[str], str]]:
    """Return a function that makes a user with a password and some rights; they are dropped again."""
    made: list[str] = []
    with psycopg.connect(postgres_server, autocommit=True) as admin:

        def make(options: str = "") -> str:
            name = f"assay_test_{len(made)}"
            made.append(name)
            admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}' {options}".encode())
            return name

        yield make
        for name in made:
            admin.execute(f"DROP OWNED BY {name}".encode())
            admin.execute(f"DROP ROLE {name}".encode())


def url_of(url: str, user: str, password: str = PASSWORD) -> str:
    """Return the URL with another user and password."""
    return re.sub("//[^@]*@", lambda _: f"//{user}:{quote(password)}@", url, count=1)


def schema_of(url: str) -> str:
    """Return the name of the test's schema."""
    found = re.search(r"search_path%3D(\w+)", url)
    assert found is not None
    return found[1]


def refused(cli: Cli, url: str, *, password: str = PASSWORD) -> str:
    """Return the line with which the orchestrator ends with status 3; nothing shows the password."""
    cli.env["ASSAY_DATABASE_URL"] = url
    done = cli.run("serve", "orchestrator", "--listen", f"unix:{cli.folder}/o.sock", status=3)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for secret in (password, quote(password)):
        assert secret not in done.stderr
    return done.stderr.splitlines()[-1]


def test_a_run_over_postgresql_is_the_run_over_sqlite(project: Cli, postgres_url: str) -> None:
    """The same run over either database has the same rows; a restart of the server finds it again."""
    answers = "def answer(request):\n    return 'no \\ud800\\0' if request.case_id == 'c3' else request.input.upper()\n"
    project.write("agent.py", answers)
    project.run("run", "assay.yaml", "--repeats", "2", "--output-dir", "sqlite")
    with serving(project, "--database-url", postgres_url) as address:
        project.run("run", "assay.yaml", "--repeats", "2", "--server", address, "--output-dir", "postgres")
    with serving(project, ASSAY_DATABASE_URL=postgres_url) as address:
        listed = json.loads(project.run("runs", "list", "--server", address, "--json").stdout)["runs"]
    assert [run["state"] for run in listed] == ["completed"]
    rows = rows_of(project, "postgres")
    assert len(rows) == 40
    assert rows == rows_of(project, "sqlite")


def test_the_local_stack_keeps_to_its_file(project: Cli) -> None:
    """A database that the environment names for a shared orchestrator is not the local stack's."""
    project.env["ASSAY_DATABASE_URL"] = "postgresql://nobody@127.0.0.1:1/none"
    project.run("run", "assay.yaml")
    assert (project.home / "assay.db").exists()


def test_a_server_that_is_not_there(cli: Cli) -> None:
    """The sentence names the database, host and port, and what to check."""
    said = refused(cli, url_of("postgresql://u@127.0.0.1:1/assay", "u"))
    assert "the PostgreSQL database assay at 127.0.0.1:1 cannot be reached: check that the server runs" in said


def test_a_database_that_is_not_there(cli: Cli, postgres_url: str) -> None:
    """The sentence says how to create it."""
    said = refused(cli, re.sub(r"/\w+\?", "/missing?", postgres_url))
    assert "database missing at" in said
    assert "CREATE DATABASE" in said


def test_a_wrong_password(cli: Cli, postgres_url: str, role: Callable[[str], str]) -> None:
    """Neither the wrong password nor the right one is shown."""
    said = refused(cli, url_of(postgres_url, role(""), "wr0ng"), password="wr0ng")
    assert "refuses this user or password: check" in said
    assert PASSWORD not in said


def test_a_user_who_may_not_create_tables(cli: Cli, postgres_url: str, role: Callable[[str], str]) -> None:
    """A new database needs CREATE on the schema, which the sentence asks for."""
    user = role("")
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"GRANT USAGE ON SCHEMA {schema_of(postgres_url)} TO {user}".encode())
    said = refused(cli, url_of(postgres_url, user))
    assert "lacks the right: GRANT it what it needs, CREATE on the schema included" in said


def test_a_user_who_may_only_read(cli: Cli, postgres_url: str, role: Callable[[str], str]) -> None:
    """A user of reports is refused before any run is accepted."""
    PostgresDatabase(postgres_url, TABLES).close()
    user = role("")
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        name = schema_of(postgres_url)
        admin.execute(f"GRANT USAGE ON SCHEMA {name} TO {user}".encode())
        admin.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO {user}".encode())
    assert "lacks the right" in refused(cli, url_of(postgres_url, user))


def test_too_many_connections(cli: Cli, postgres_url: str, role: Callable[[str], str]) -> None:
    """A user whose connections are used up is told which setting to raise."""
    said = refused(cli, url_of(postgres_url, role("CONNECTION LIMIT 0")))
    assert "no connection left: raise its max_connections" in said


def test_a_file_in_use(cli: Cli) -> None:
    """A second orchestrator on one SQLite file is refused with the first one's process."""
    with serving(cli, "--database", "a.db"):
        done = cli.run("serve", "orchestrator", "--listen", "unix:b.sock", "--database", "a.db", status=3)
    assert re.search(
        r"a\.db is in use by another orchestrator \(process \d+\): use that one with --server", done.stderr
    )


def test_the_password_is_in_no_help(cli: Cli) -> None:
    """What the environment gives is not shown as a default."""
    cli.env["ASSAY_DATABASE_URL"] = url_of("postgresql://u@h/n", "u")
    done = cli.run("serve", "orchestrator", "--help")
    assert "ASSAY_DATABASE_URL" in done.stdout
    assert quote(PASSWORD) not in done.stdout


def test_what_is_no_url(cli: Cli) -> None:
    """Another database's URL is refused as a wrong invocation, without repeating it."""
    cli.env["ASSAY_DATABASE_URL"] = f"mysql://u:{quote(PASSWORD)}@h/n"
    done = cli.run("serve", "orchestrator", status=2)
    assert "must begin with postgresql://" in done.stderr
    assert quote(PASSWORD) not in done.stderr


def test_the_command_line_of_a_server_shows_no_password(
    cli: Cli, postgres_url: str, role: Callable[[str], str]
) -> None:
    """With the URL in the environment, a list of processes shows no password, and neither does the log."""
    user = role("")
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"GRANT ALL ON SCHEMA {schema_of(postgres_url)} TO {user}".encode())
    with serving(cli, ASSAY_DATABASE_URL=url_of(postgres_url, user)):
        lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    shown = [line for line in lines if f"{cli.folder}/orchestrator.sock" in line]
    assert shown
    assert quote(PASSWORD) not in " ".join(shown)
