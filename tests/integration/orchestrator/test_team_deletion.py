"""Deletion of teams: nothing of one is left anywhere, whatever happens meanwhile, and others notice nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from tests.support.processes.waiting import until
from tests.support.services.ended_runs import await_end
from tests.support.services.shared_installation import SharedInstallation, shared_installation

from assay.agent_host.caller import AgentCaller
from assay.client import admin, baselines, calibrations
from assay.client.client import Client
from assay.errors import (
    AssayError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnavailableError,
)
from assay.identity.rights import Role
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.judge_calibration import JudgeCalibration
from assay.model.run import RunState
from assay_orchestrator.identity.bootstrap import make_operator_token
from assay_orchestrator.settings import Settings
from assay_orchestrator.store import schema
from assay_orchestrator.store.removal import erasure
from assay_orchestrator.store.runs import datasets
from assay_orchestrator.store.teams import audit
from assay_orchestrator.store.teams.audit import AuditQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import RunSpec

    SettingsOf = Callable[..., RunSpec]


def secret(team: str, what: str) -> str:
    """Return a text of a team that is found nowhere else."""
    return f"planted-{what}-of-{team}"


def cases_of(team: str, count: int = 3) -> list[Case]:
    recorded = AgentResponse(AgentStatus.SUCCESS, text=secret(team, "answer"))
    turn = Turn(secret(team, "question"), references=(secret(team, "reference"),))
    return [
        Case(f"c{number}", (turn,), recordings=((recorded,),), category=secret(team, "category"))
        for number in range(count)
    ]


async def fill(shared: SharedInstallation, team: str, settings: RunSpec) -> Client:
    """Return a client of a team that has something in every table."""
    client = await shared.member(team, Role.TEAM_ADMIN)
    dataset = await client.upload_dataset(cases_of(team), name=secret(team, "dataset"))
    settings = dataclasses.replace(settings, note=secret(team, "note"), group_id="g")
    for _ in range(3):
        run = await client.create_run(settings, dataset.dataset_id)
        async for _event in client.watch_run(run.run_id):
            pass
    await baselines.set_baseline(client, "main", run.run_id)
    await calibrations.set_calibration(
        client,
        JudgeCalibration(
            "quality", fingerprints=("1",), judge=secret(team, "judge"), answer_count=60, measure="alpha_interval",
            trust="unknown", drawing="random",
        ),
    )  # fmt: skip
    await admin.create_destination(client, "bot", f"{team}.example.org")
    hosted = dataclasses.replace(settings, agent=dataclasses.replace(settings.agent, adapter="python", target="m:f"))
    await client.create_run(hosted, dataset.dataset_id)  # is never hosted, and stays active

    def break_off(connection: sa.Connection) -> None:  # as a killed process leaves an upload
        upload_id = datasets.new_upload_id()
        datasets.begin_upload(connection, team, upload_id)
        datasets.add_cases(connection, upload_id, 0, [("c", datasets.case_text(cases_of(team)[0]))])

    await shared.database.write(break_off)
    return client


def stored_texts(connection: sa.Connection) -> str:
    """Return all that every table of the database holds, those too that are not in the schema."""
    names = sa.inspect(connection).get_table_names()
    quoted = connection.dialect.identifier_preparer.quote
    rows = (row for name in names for row in connection.exec_driver_sql(f"SELECT * FROM {quoted(name)}"))
    return "\n".join(map(str, rows))


def files_of(folder: Path) -> bytes:
    """Return all that a SQLite database has on disk."""
    return b"".join(file.read_bytes() for file in folder.glob("assay.db*"))


def rows_of(connection: sa.Connection, team: str) -> dict[str, int]:
    """Return how many rows a team has in each table."""
    with_team = [table for table in schema.metadata.sorted_tables if "team" in table.c]
    counts = {table.name: sa.select(sa.func.count()).where(table.c.team == team) for table in with_team}
    runs, of_team = schema.runs, schema.runs.c.team == team
    for table in schema.metadata.sorted_tables:
        if "team" not in table.c and "run_id" in table.c:
            counts[table.name] = sa.select(sa.func.count()).where(table.c.run_id == runs.c.run_id, of_team)
    return {name: connection.execute(count).scalar_one() for name, count in counts.items()}


async def erased(client: Client, team: str) -> admin.TeamDeletion:
    """Delete a team and return what was found at the end."""
    await admin.delete_team(client, team)
    deletion: admin.TeamDeletion = await until(
        lambda: admin.get_team_deletion(client, team), lambda found: found.team.erased_at
    )
    assert deletion.team.state == "deleted"
    return deletion


def test_every_table_has_its_place_in_a_deletion() -> None:
    """A table that no one has given a place, so that its rows might outlive their team, fails here."""
    known = {table.name for table in (*erasure.parts_of_runs(), *erasure.tables_of_teams())}
    assert {table.name for table in schema.metadata.sorted_tables} == known | erasure.KEPT | erasure._OF_NO_TEAM


async def test_nothing_of_a_deleted_team_is_left(
    tmp_path: Path, database_url: str, settings_of: SettingsOf, engine: sa.Engine
) -> None:
    """No table, and no byte of a SQLite file, has a text of it; the counts say so; another team has all of its rows."""
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        await fill(shared, "alpha", settings_of())
        await fill(shared, "beta", settings_of())
        operator = await shared.member("ops", Role.OPERATOR)
        with engine.connect() as connection:
            before = {team: rows_of(connection, team) for team in ("alpha", "beta")}
        names = ("runs", "results", "answers", "baselines", "calibrations", "destinations", "tokens", "uploads")
        assert min(before["alpha"][name] for name in names) > 0

        found = await erased(operator, "alpha")
        counts = {each.store: (each.deleted_count, each.remaining_count) for each in found.stores}
        assert counts["runs"] == (4, 0)
        assert counts["dataset_cases"] == (4, 0)
        assert all(remaining == 0 for _, remaining in counts.values())
        assert set(counts) >= {table.name for table in (*erasure.parts_of_runs(), *erasure.tables_of_teams())}

        with engine.connect() as connection:
            after = {team: rows_of(connection, team) for team in ("alpha", "beta")}
            texts = stored_texts(connection)
        assert {name for name, count in after["alpha"].items() if count} == erasure.KEPT
        unchanged = [name for name in after["beta"] if name not in ("shards", "run_events", "audit_entries")]
        assert {name: after["beta"][name] for name in unchanged} == {name: before["beta"][name] for name in unchanged}
        assert "-of-alpha" not in texts
        assert secret("beta", "question") in texts
        log = await shared.database.read(lambda c: audit.list_entries(c, AuditQuery(team="alpha"), None, 1))
        assert [(each.entry.action, each.entry.actor_team) for each in log] == [("delete-team", "ops")]
    if not database_url:
        assert b"-of-alpha" not in files_of(tmp_path)


async def test_a_team_is_deleted_mid_run(tmp_path: Path, database_url: str, settings_of: SettingsOf) -> None:
    """Its run asks no further question, its clients get a reason, its tokens are refused, and its name stays."""
    asked = 0
    is_asked, answers = asyncio.Event(), asyncio.Event()

    async def answer(request: AgentRequest) -> str:
        nonlocal asked
        asked += 1
        is_asked.set()
        await answers.wait()
        return "late"

    async with shared_installation(tmp_path, database_url=database_url) as shared:
        member, operator = await shared.member("alpha"), await shared.member("ops", Role.OPERATOR)
        dataset = await member.upload_dataset(cases_of("alpha", 40), name="d")
        settings = settings_of("python", "m:f", concurrency=2)
        run = await member.create_run(settings, dataset.dataset_id)
        hosting = asyncio.create_task(member.host_agent(run.run_id, AgentCaller(answer), concurrency=2))

        async def watch() -> str:
            reasons = ""
            with suppress(NotFoundError):
                async for event in member.watch_run(run.run_id):
                    reasons += getattr(event, "reason", "")
            return reasons

        watching = asyncio.create_task(watch())
        await is_asked.wait()
        assert await admin.delete_team(operator, "alpha") == 1
        known = asked
        answers.set()
        with suppress(AssayError):
            await hosting
        await watching
        for call in (
            member.create_run(settings, dataset.dataset_id),
            member.upload_dataset(cases_of("alpha"), name="x"),
        ):
            with pytest.raises((PermissionDeniedError, NotFoundError), match=r"deleted the team|no dataset"):
                await call
        await erased(operator, "alpha")
        assert asked == known
        shared.clock.now_s += 26
        with pytest.raises(UnauthenticatedError, match="not of this installation"):
            await member.get_run(run.run_id)
        with pytest.raises(ConflictError, match="which was deleted at"):
            await admin.create_team(operator, "alpha")
        for refused in (
            admin.update_team(operator, "alpha", disabled=False),
            admin.create_token(operator, "viewer", "x", team="alpha"),
            admin.delete_team(operator, "never-made"),
        ):
            with pytest.raises(NotFoundError, match="there is no team"):
                await refused
        with pytest.raises(InvalidInputError, match="your own team"):
            await admin.delete_team(operator, "ops")


class HeldAgent:
    """An agent over HTTP that answers at once, but for questions that hold a word: these wait until they are dropped.

    Attributes:
        asked: The questions.
        is_held: Set when one waits.
        is_dropped: Set when the caller of one has hung up.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_held, self.is_dropped = asyncio.Event(), asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the questions of a connection."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := (await reader.readuntil(b"\r\n\r\n")).decode().lower():
                body = await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
                self.asked.append(body.decode())
                if "of-alpha" in self.asked[-1]:
                    self.is_held.set()
                    await reader.read(1)  # nothing comes: the caller hangs up
                    self.is_dropped.set()
                    break
                writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{"text": "yes"}')
                await writer.drain()
        writer.close()


def start_worker(flags: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start an orchestrator as a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "assay_orchestrator", *flags], stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_team_is_deleted_whose_run_is_at_a_worker_in_another_process(
    tmp_path: Path, database_url: str, settings_of: SettingsOf, engine: sa.Engine
) -> None:
    """The worker drops its questions and asks no more, nothing of the team is left, and it works on for other teams."""
    served = HeldAgent()
    listener = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
    flags = ["--role", "worker", "--database-url", database_url, "--http-hosts", "127.0.0.1"]
    settings = settings_of("http", url, concurrency=2, options={"response": {"text": "text"}}, retries=0)
    async with (
        listener,
        shared_installation(tmp_path, database_url=database_url, role="api", http_hosts=("127.0.0.1",)) as shared,
    ):
        operator = await shared.member("ops", Role.OPERATOR)
        clients = {team: await shared.member(team) for team in ("alpha", "beta")}
        worker = start_worker(flags)
        try:
            dataset = await clients["alpha"].upload_dataset(cases_of("alpha", 40), name="d")
            await clients["alpha"].create_run(settings, dataset.dataset_id)
            await asyncio.wait_for(served.is_held.wait(), 60)
            await admin.delete_team(operator, "alpha")
            await asyncio.wait_for(served.is_dropped.wait(), 60)
            await erased(operator, "alpha")
            count = len(served.asked)
            assert count <= 2
            dataset = await clients["beta"].upload_dataset(cases_of("beta"), name="d")
            run = await clients["beta"].create_run(settings, dataset.dataset_id)
            await await_end(clients["beta"], run.run_id)
            assert (await clients["beta"].get_run(run.run_id)).state is RunState.COMPLETED
            assert len(served.asked) == count + 3
            with engine.connect() as connection:
                left = {name for name, rows in rows_of(connection, "alpha").items() if rows}
                assert left == erasure.KEPT
                assert "-of-alpha" not in stored_texts(connection)
        finally:
            worker.terminate()
            assert await asyncio.to_thread(worker.wait, 60) == 0


async def test_runs_that_are_created_meanwhile_are_deleted_or_refused(
    tmp_path: Path, database_url: str, settings_of: SettingsOf, engine: sa.Engine
) -> None:
    """Whichever comes first, the deletion or a run, a baseline or an upload: nothing stays."""
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        operator = await shared.member("ops", Role.OPERATOR)
        for round_number in range(3):
            team = f"team-{round_number}"
            member = await shared.member(team)
            dataset = await member.upload_dataset(cases_of(team), name="d")
            run = await member.create_run(settings_of(), dataset.dataset_id)
            await await_end(member, run.run_id)
            works: list[Any] = [member.create_run(settings_of(), dataset.dataset_id) for _ in range(4)]
            works += [member.upload_dataset(cases_of(team, 5), name=f"{number}") for number in range(2)]
            works += [baselines.set_baseline(member, "b", run.run_id)]
            works.insert(round_number * 3, admin.delete_team(operator, team))
            ended = await asyncio.gather(*works, return_exceptions=True)
            assert all(
                isinstance(each, (PermissionDeniedError, NotFoundError))
                for each in ended
                if isinstance(each, Exception)
            )
            await erased(operator, team)
            with engine.connect() as connection:
                assert {name for name, count in rows_of(connection, team).items() if count} == erasure.KEPT
                orphans = sa.select(sa.func.count()).select_from(schema.dataset_cases)
                assert connection.execute(orphans).scalar_one() == 0


async def test_a_service_that_is_away_keeps_the_deletion_open(tmp_path: Path) -> None:
    """A team is deleted only once the judge has deleted what it has, however often it is asked."""

    class Judge:
        """A judge that is away at first."""

        name = "judge"
        is_there = False

        async def delete(self, team: str) -> tuple[dict[str, int], dict[str, int]]:
            if not self.is_there:
                raise UnavailableError("away")
            return {"verdicts": 2}, {"verdicts": 0}

    judge = Judge()
    async with shared_installation(tmp_path, services=[judge], upkeep_s=0.01) as shared:
        await shared.member("alpha")
        operator = await shared.member("ops", Role.OPERATOR)
        await admin.delete_team(operator, "alpha")
        found = await until(
            lambda: admin.get_team_deletion(operator, "alpha"),
            lambda found: ("judge", None) in [(each.store, each.remaining_count) for each in found.stores],
        )
        assert (found.team.state, found.team.erased_at) == ("deleting", "")
        judge.is_there = True
        stores = {each.store: each for each in (await erased(operator, "alpha")).stores}
        assert "judge" not in stores
        assert stores["judge verdicts"].deleted_count >= 2
        assert stores["judge verdicts"].remaining_count == 0


async def test_a_killed_deletion_continues_with_the_next_start(
    tmp_path: Path, database_url: str, settings_of: SettingsOf, engine: sa.Engine
) -> None:
    """What a process that is killed between two batches leaves of a team, the next one deletes."""
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        await fill(shared, "alpha", settings_of())
    own = Settings(listen="127.0.0.1:0", database=tmp_path / "assay.db", database_url=database_url)
    token = await make_operator_token(own)
    address = f"unix:{tmp_path}/killed.sock"

    def start(failpoints: str) -> subprocess.Popen[bytes]:
        place = ["--database-url", database_url] if database_url else ["--database", str(tmp_path / "assay.db")]
        command = [sys.executable, "-m", "assay_orchestrator", "--listen", address, "--auth", "tokens", *place]
        return subprocess.Popen(command, env={**os.environ, "ASSAY_FAILPOINTS": failpoints}, stderr=subprocess.DEVNULL)

    async def begun(client: Client, process: subprocess.Popen[bytes]) -> bool:
        with suppress(UnavailableError):  # it does not listen yet, or no more
            await admin.delete_team(client, "alpha")
        return process.poll() is not None

    def left() -> int:
        with engine.connect() as connection:
            return sum(count for name, count in rows_of(connection, "alpha").items() if name not in erasure.KEPT)

    process = start("team.batch_erased=kill@2")
    try:
        async with Client(address, token=token.text, patience_s=60.0) as client:
            await until(lambda: begun(client, process))
        assert await asyncio.to_thread(process.wait, 60) == -9
        assert left() > 0
    finally:
        process.kill()
    process = start("")
    try:
        await until(left, lambda count: count == 0)
    finally:
        process.terminate()
        assert await asyncio.to_thread(process.wait, 60) == 0
    with engine.connect() as connection:
        assert "-of-alpha" not in stored_texts(connection)


async def test_a_team_whose_retention_fails_holds_up_no_other(tmp_path: Path, settings_of: SettingsOf) -> None:
    """The database refuses the entry of one team: its runs stay, and those of the team after it go all the same."""
    async with shared_installation(tmp_path) as shared:
        members = {team: await fill(shared, team, settings_of()) for team in ("alpha", "beta")}
        operator = await shared.member("ops", Role.OPERATOR)
        for team in members:
            await admin.update_team(operator, team, keep_runs_days=90)

        def age(connection: sa.Connection) -> None:
            connection.execute(
                sa.text(
                    "CREATE TRIGGER refuse BEFORE INSERT ON audit_entries WHEN NEW.team = 'alpha' "
                    "BEGIN SELECT RAISE(ABORT, 'refused'); END"
                )
            )
            old = schema.runs.c.state == RunState.COMPLETED.value
            connection.execute(schema.runs.update().where(old).values(ended_at="2020-01-01T00:00:00.000Z"))

        before = {team: len(await member.list_runs()) for team, member in members.items()}
        await shared.database.write(age)
        await admin.update_team(operator, "beta", keep_runs_days=91)  # wakes it
        left = await until(members["beta"].list_runs, lambda found: len(found) < before["beta"])
        assert left
        assert len(await members["alpha"].list_runs()) == before["alpha"]


async def test_retention_deletes_runs_that_ended_long_ago(
    tmp_path: Path, database_url: str, settings_of: SettingsOf, engine: sa.Engine
) -> None:
    """Old runs go, then old datasets without runs; baselines, newer runs and datasets, and other teams' stay."""
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        member = await fill(shared, "alpha", settings_of())
        await fill(shared, "beta", settings_of())
        operator = await shared.member("ops", Role.OPERATOR)
        with engine.begin() as connection:
            old = schema.runs.c.state == RunState.COMPLETED.value
            connection.execute(schema.runs.update().where(old).values(ended_at="2020-01-01T00:00:00.000Z"))
        unused = [await member.upload_dataset(cases_of("alpha", count)[-1:], name="unused") for count in (2, 3)]
        with engine.begin() as connection:
            names = schema.dataset_names
            old = names.c.dataset_id != unused[1].dataset_id
            connection.execute(names.update().where(old).values(uploaded_at="2020-01-01T00:00:00.000Z"))
        dataset = await member.upload_dataset(cases_of("alpha"), name="new")
        new = await member.create_run(settings_of(), dataset.dataset_id)
        await await_end(member, new.run_id)
        [baseline] = await baselines.list_baselines(member)
        changed, _ = await admin.update_team(operator, "alpha", keep_runs_days=90, keep_audit_days=400)
        assert (changed.keep_runs_days, changed.keep_audit_days) == (90, 400)

        def counted() -> dict[str, int]:
            with engine.connect() as connection:
                return {team: rows_of(connection, team)["runs"] for team in ("alpha", "beta")}

        assert await until(counted, lambda counts: counts["alpha"] == 3) == {"alpha": 3, "beta": 4}
        await until(lambda: member.list_datasets(name="unused"), lambda stored: len(stored) == 1)
        left = [await member.get_dataset(stored.dataset_id) for stored in (unused[1], dataset)]
        assert [stored.run_count for stored in left] == [0, 3]
        for run_id in (new.run_id, baseline.run_id):
            assert (await member.get_run(run_id)).state is RunState.COMPLETED
        log = await shared.database.read(
            lambda c: audit.list_entries(c, AuditQuery(team="alpha", action="delete-run"), None, 10)
        )
        assert [(each.entry.actor, each.entry.actor_name) for each in log] == [("", "retention")] * 2
        kept, _ = await admin.update_team(operator, "alpha", keep_runs_days=0)
        assert (kept.keep_runs_days, kept.keep_audit_days) == (None, 400)
        with pytest.raises(InvalidInputError, match="1 to 36,500 days"):
            await admin.update_team(operator, "alpha", keep_audit_days=40_000)
