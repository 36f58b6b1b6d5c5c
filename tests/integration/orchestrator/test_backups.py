"""Backups of docs/operating.md, by its own commands: a dump, a point in time, a copy of a file.

What is restored is served by an orchestrator: it shows the runs of that moment, and continues the one that was open.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import psycopg
import pytest
from tests.support.docs.guides import blocks
from tests.support.processes.postgres_server import PostgresServer, own_server
from tests.support.processes.waiting import until
from tests.support.services.ended_runs import await_end

from assay.agent_host.caller import AgentCaller
from assay.client.client import Client
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec, MetricSpec, RunSpec, RunState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    Serve: TypeAlias = Callable[..., AbstractAsyncContextManager[Client]]

PAGE = "docs/operating.md"
CASES = [
    Case(f"c{n}", (Turn(f"q{n}", references=("yes",)),), recordings=((AgentResponse(text="yes" if n else "no"),),))
    for n in range(5)
]


def command(start: str) -> str:
    """Return the command of the guide that begins so."""
    (found,) = {line for block in blocks(PAGE, "bash") for line in block.commands() if line.startswith(start)}
    return found


def archive_settings() -> Mapping[str, str]:
    """Return the guide's settings of a server that archives its log, which is kept beside its data here."""
    (text,) = (block.text for block in blocks(PAGE) if "archive_command" in block.text and not block.language)
    pairs = (line.split(" = ", 1) for line in text.splitlines())
    return {name: value.strip("'").replace("/backup", "../backup") for name, value in pairs}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """Return a server that archives its log."""
    with own_server(archive_settings()) as started:
        run_as_server(started, f"mkdir -p {started.folder}/backup/wal")
        yield started


def run_as_server(server: PostgresServer, text: str, **environment: str) -> None:
    """Run a command as the user of the server, with its programs on PATH."""
    done = subprocess.run(
        server.command("/bin/sh", "-c", text), cwd=server.folder, capture_output=True, text=True, timeout=110,
        env={**os.environ, "PATH": f"{server.binaries}:{os.environ['PATH']}", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def new_database(server: PostgresServer) -> str:
    """Return the URL of an empty database."""
    name = f"backup_{uuid.uuid4().hex}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0".encode())
    return server.url.replace("/postgres", f"/{name}")


async def store_runs(client: Client) -> str:
    """Store a run that has ended and one that waits for its agent; return the id of the second."""
    dataset = await client.upload_dataset(CASES, name="d")
    ended = await client.create_run(settings("replay", ""), dataset.dataset_id)
    await await_end(client, ended.run_id)
    return (await client.create_run(settings("python", "agent:answer"), dataset.dataset_id)).run_id


def settings(adapter: str, target: str) -> RunSpec:
    """Return the settings of a run."""
    return RunSpec(adapter, AgentSpec(adapter, target), [MetricSpec("exact_match")])


async def shown(client: Client) -> list[tuple[str, int, int]]:
    """Return what a client sees of all runs that have ended: their names, rows and passed rows."""
    found = []
    for run in await client.list_runs(where="state:completed"):
        rows = [row async for row in client.list_rows(run.run_id)]
        found.append((run.spec.name, len(rows), run.counts.passed_count))
    return found


async def check_restored(client: Client, open_run: str) -> None:
    """Fail unless the run that had ended is whole, and the one that was open can be continued to its end."""
    assert await shown(client) == [("replay", 5, 4)]

    async def answer(request: object) -> str:
        return "yes"

    await client.host_agent(open_run, AgentCaller(answer), concurrency=2)
    run = await client.get_run(open_run)
    assert (run.state, run.counts.passed_count) == (RunState.COMPLETED, 5)


@pytest.mark.postgres
async def test_a_dump_is_of_one_moment(serve_at: Serve, server: PostgresServer, tmp_path: Path) -> None:
    """Made while an orchestrator works; a run that was created later is not in it."""
    url, restored = new_database(server), new_database(server)
    async with serve_at(tmp_path, database_url=url) as client:
        open_run = await store_runs(client)
        run_as_server(server, command("pg_dump"), ASSAY_DATABASE_URL=url)
        await store_runs(client)
    run_as_server(server, command("pg_restore"), ASSAY_DATABASE_URL=restored)
    async with serve_at(tmp_path, database_url=restored) as client:
        await check_restored(client, open_run)


@pytest.mark.postgres
async def test_a_moment_comes_back(serve_at: Serve, server: PostgresServer, tmp_path: Path) -> None:
    """The base backup is older than the runs: their rows come from the archived log, and what was deleted is there."""
    url = new_database(server)
    own = f"{server.folder}/backup"
    run_as_server(server, command("pg_basebackup").replace("/backup", own), REPLICATION_URL=server.url)
    async with serve_at(tmp_path, database_url=url) as client:
        open_run = await store_runs(client)
        with psycopg.connect(server.url, autocommit=True) as admin:
            (moment,) = admin.execute("SELECT clock_timestamp()::text").fetchone() or ("",)
        for run in await client.list_runs(where="state:completed"):
            await client.delete_run(run.run_id)
        assert await shown(client) == []
    with psycopg.connect(server.url, autocommit=True) as admin:
        (segment,) = admin.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchone() or ("",)
        archived = "SELECT last_archived_wal >= %s FROM pg_stat_archiver"
        await until(lambda: admin.execute(archived, (segment,)).fetchone() == (True,))

    server.stop()
    server.data.rename(server.folder / "lost")
    (restoring,) = (block for block in blocks(PAGE, "bash") if "recovery_target_time" in block.text)
    text = restoring.text.replace("/backup", own).replace("2026-11-25 17:59:00+00", moment)
    run_as_server(server, f"set -e\n{text}", PGDATA=str(server.data))
    server.start()
    with psycopg.connect(server.url, autocommit=True) as admin:
        await until(lambda: admin.execute("SELECT pg_is_in_recovery()").fetchone() == (False,))
    async with serve_at(tmp_path, database_url=url) as client:
        await check_restored(client, open_run)


async def test_a_file_is_copied_while_it_is_used(serve_at: Serve, tmp_path: Path) -> None:
    """With the guide's statement; the copy is whole, without the log beside the file."""
    copy = tmp_path / "restored" / "assay.db"
    copy.parent.mkdir()
    statement = command("sqlite3").partition('"')[2].rstrip('"').replace("assay-backup.db", str(copy))
    async with serve_at(tmp_path) as client:
        open_run = await store_runs(client)
        with closing(sqlite3.connect(tmp_path / "assay.db")) as connection:
            connection.execute(statement)
        await store_runs(client)
    async with serve_at(copy.parent) as client:
        await check_restored(client, open_run)
