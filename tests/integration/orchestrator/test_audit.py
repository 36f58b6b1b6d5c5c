"""The audit of a shared installation: every change has its entry, in its transaction, and no entry is ever changed."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from tests.support.services.ended_runs import await_end, run_cases
from tests.support.services.shared_installation import SharedInstallation, shared_installation

from assay.admin.v1 import admin_pb2 as pb
from assay.admin.v1 import admin_pb2_grpc
from assay.client import admin, baselines, calibrations
from assay.client.audit import AuditFilter, ChainCheck, list_audit
from assay.client.client import Client
from assay.errors import AssayError, InvalidInputError, PermissionDeniedError, StorageError
from assay.identity.audit import AuditEntry
from assay.identity.quotas import Quota
from assay.identity.rights import Role
from assay.identity.tokens import new_token
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.judge_calibration import JudgeCalibration
from assay.model.views import RowView
from assay.rpc.auditing import action_of
from assay.rpc.methods import METHODS, Audit
from assay.rpc.status import translated
from assay.v1 import run_pb2, run_pb2_grpc
from assay.wire.run import SETTINGS
from assay_orchestrator.identity.audit_log import MOST_KINDS, WINDOW_S
from assay_orchestrator.service import SERVICES
from assay_orchestrator.store import schema
from assay_orchestrator.store.teams import audit
from assay_orchestrator.store.teams.audit import AuditQuery

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from assay.identity.audit import StoredEntry
    from assay.model.run import RunSpec
    from assay.storage.database import Database

    SettingsOf = Callable[..., RunSpec]
    Open = Callable[[], Database]
    Drive = Callable[["World"], Awaitable[Any]]

CASES = [Case("c", (Turn("?", references=("yes",)),), recordings=((AgentResponse(AgentStatus.SUCCESS, text="yes"),),))]
SERVED = (*SERVICES, "assay.admin.v1.AdminService")


@dataclasses.dataclass
class World:
    """A team admin and an operator, and what the calls below change."""

    member: Client
    operator: Client
    settings: RunSpec
    dataset_id: str
    unused_id: str
    runs: list[str]
    token_id: str


async def world(shared: SharedInstallation, settings: RunSpec) -> World:
    """Return a team with four finished runs and one that is paused, and a token to revoke."""
    member, operator = await shared.member("search", Role.TEAM_ADMIN), await shared.member("ops", Role.OPERATOR)
    dataset = await member.upload_dataset(CASES, name="d")
    unused = await member.upload_dataset([*CASES, dataclasses.replace(CASES[0], case_id="other")], name="unused")
    runs = []
    for number in range(4):
        run = await member.create_run(settings, dataset.dataset_id, request_id=f"old-{number}")
        await await_end(member, run.run_id)
        runs.append(run.run_id)
    hosted = dataclasses.replace(settings, agent=dataclasses.replace(settings.agent, adapter="python", target="m:f"))
    runs += [(await member.create_run(hosted, dataset.dataset_id)).run_id for _ in range(3)]
    await member.pause_run(runs[-1])
    await baselines.set_baseline(member, "old", runs[0])
    await calibrations.set_calibration(member, dataclasses.replace(CALIBRATION, rubric="old rubric"))
    spare = await admin.create_token(member, "viewer", "spare")
    await admin.create_destination(member, "old-bot", "example.org")
    await admin.create_team(operator, "idle")
    await admin.create_team(operator, "doomed")
    await admin.create_team(operator, "disabled")
    await admin.update_team(operator, "disabled", disabled=True)
    return World(member, operator, settings, dataset.dataset_id, unused.dataset_id, runs, spare.token.token_id)


async def create_run(found: World) -> None:
    """Create a run and wait for its end, after which nothing of it changes any more."""
    stub = run_pb2_grpc.RunServiceStub(found.member._channel)
    request = run_pb2.CreateRunRequest(
        request_id="new", dataset_id=found.dataset_id, spec=SETTINGS.to_wire(found.settings)
    )
    response = await stub.CreateRun(request)
    await await_end(found.member, response.run.run_id)


CALIBRATION = JudgeCalibration(
    "quality", fingerprints=("sha256:1",), answer_count=60, measure="alpha_interval", trust="unknown", drawing="random"
)


async def delete_calibration(world: World) -> None:
    """Delete the calibration of a rubric."""
    (old,) = [each for each in await calibrations.list_calibrations(world.member) if each.rubric == "old rubric"]
    await calibrations.delete_calibration(world.member, old.calibration_id)


# How each method that changes something is called, once; what it changes, and whose that is.
CALLS: dict[str, tuple[Drive, Callable[[World], str], str]] = {
    "UploadDataset": (lambda w: w.member.upload_dataset(CASES, name="new"), lambda w: "", "search"),
    "DeleteDataset": (lambda w: w.member.delete_dataset(w.unused_id), lambda w: w.unused_id, "search"),
    "CreateRun": (create_run, lambda w: "", "search"),
    "CancelRun": (lambda w: w.member.cancel_run(w.runs[4]), lambda w: w.runs[4], "search"),
    "PauseRun": (lambda w: w.member.pause_run(w.runs[5]), lambda w: w.runs[5], "search"),
    "ResumeRun": (lambda w: w.member.resume_run(w.runs[6]), lambda w: w.runs[6], "search"),
    "RetryRun": (lambda w: w.member.retry_run(w.runs[2]), lambda w: w.runs[2], "search"),
    "UpdateRun": (lambda w: w.member.update_run(w.runs[1], note="n"), lambda w: w.runs[1], "search"),
    "DeleteRun": (lambda w: w.member.delete_run(w.runs[3]), lambda w: w.runs[3], "search"),
    "SetBaseline": (lambda w: baselines.set_baseline(w.member, "new", w.runs[1]), lambda w: "new", "search"),
    "DeleteBaseline": (lambda w: baselines.delete_baseline(w.member, "old"), lambda w: "old", "search"),
    "SetCalibration": (
        lambda w: calibrations.set_calibration(w.member, CALIBRATION),
        lambda w: "quality",
        "search",
    ),
    "DeleteCalibration": (delete_calibration, lambda w: "old rubric", "search"),
    "CreateTeam": (lambda w: admin.create_team(w.operator, "fresh"), lambda w: "fresh", "fresh"),
    "CreateDestination": (
        lambda w: admin.create_destination(w.operator, "bot", "example.org", team="idle"),
        lambda w: "bot",
        "idle",
    ),
    "DeleteDestination": (lambda w: admin.delete_destination(w.member, "old-bot"), lambda w: "old-bot", "search"),
    "UpdateTeam": (
        lambda w: admin.update_team(w.operator, "idle", disabled=True, keep_runs_days=90),
        lambda w: "idle",
        "idle",
    ),
    "CreateToken": (lambda w: admin.create_token(w.operator, "viewer", "x", team="idle"), lambda w: "", "idle"),
    "UpdateQuotas": (
        lambda w: admin.update_quotas(w.operator, "search", {Quota.ACTIVE_RUNS: 9}),
        lambda w: "search",
        "search",
    ),
    "UpdateDefaultQuotas": (
        lambda w: admin.update_default_quotas(w.operator, {Quota.ACTIVE_RUNS: 99}),
        lambda w: "default",
        "operators",
    ),
    "RevokeToken": (lambda w: admin.revoke_token(w.member, w.token_id), lambda w: w.token_id, "search"),
    # Last, for the work that it begins continues in the background.
    "DeleteTeam": (lambda w: admin.delete_team(w.operator, "doomed"), lambda w: "doomed", "doomed"),
}


async def entries_of(shared: SharedInstallation, **query: str) -> list[StoredEntry]:
    """Return the stored entries, the newest first."""
    return list(await shared.database.read(lambda c: audit.list_entries(c, AuditQuery(**query), None, 10_000)))


def contents(connection: sa.Connection) -> dict[str, list[Any]]:
    """Return the rows of every table, but for those that each call writes."""
    tables = (table for table in schema.metadata.sorted_tables if table.name not in ("audit_entries", "shards"))
    return {table.name: sorted(map(str, connection.execute(sa.select(table)))) for table in tables}


def checked(entries: list[StoredEntry]) -> list[str]:
    """Return what is wrong with chains of entries."""
    check = ChainCheck()
    for stored in entries:
        check.add(stored)
    check.finish()
    return check.problems


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_every_change_is_recorded_in_its_transaction(
    tmp_path: Path, database_url: str, settings_of: SettingsOf
) -> None:
    """Each method that changes something leaves one entry; where that cannot be stored, nothing is changed."""
    changing = {name for service in SERVED for name, rule in METHODS[service].items() if rule.audit is Audit.CHANGE}
    assert set(CALLS) == changing, "say how a new method is called, and record its change with `audit.recorded`"
    async with shared_installation(tmp_path) as shared:
        shared.patience_s = 0.0  # what the database refuses is not waited for
        found = await world(shared, settings_of())
        actors = {"search": found.member, "ops": found.operator}
        for name, (call, resource, team) in CALLS.items():
            action = action_of(name)
            await shared.database.write(lambda c: c.exec_driver_sql(
                "CREATE TRIGGER full BEFORE INSERT ON audit_entries BEGIN SELECT RAISE(ABORT, 'no room'); END"
            ))  # fmt: skip
            before, known = await shared.database.read(contents), len(await entries_of(shared))
            with pytest.raises(AssayError), translated():
                async with asyncio.timeout(30):
                    await call(found)
            assert await shared.database.read(contents) == before, name
            await shared.database.write(lambda c: c.exec_driver_sql("DROP TRIGGER full"))
            await call(found)
            new = (await entries_of(shared))[:-known]
            assert [stored.entry.action for stored in new if stored.entry.action == action] == [action], name
            [stored] = [stored for stored in new if stored.entry.action == action]
            assert stored.entry.team == team, name
            assert stored.entry.resource, name
            assert resource(found) in ("", stored.entry.resource), name
            assert stored.entry.actor_team in actors, name
            assert stored.entry.outcome == "done", name
        assert checked(await entries_of(shared)) == []


async def test_the_entry_of_a_team_says_what_changed(tmp_path: Path) -> None:
    """A team that is disabled, enabled or kept for another time leaves an entry of that name each."""
    async with shared_installation(tmp_path) as shared:
        operator = await shared.member("operators", Role.OPERATOR)
        await admin.create_team(operator, "search")
        await admin.update_team(operator, "search", disabled=True)
        await admin.update_team(operator, "search", disabled=False)
        await admin.update_team(operator, "search", keep_runs_days=30)
        found = await entries_of(shared, team="search")
        actions = [(stored.entry.action, stored.entry.resource) for stored in reversed(found)]
        assert actions[-3:] == [("disable-team", "search"), ("enable-team", "search"), ("update-team", "search")]
        assert checked(found) == []


async def test_refusals_are_recorded_and_counted(tmp_path: Path, database_url: str, settings_of: SettingsOf) -> None:
    """A flood of wrong tokens from many addresses, and of refused calls, leaves a bounded number of entries."""
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        viewer = await shared.member("search", Role.VIEWER)
        for _ in range(20):
            with pytest.raises(PermissionDeniedError):
                await admin.create_token(viewer, "viewer", "x")
        wrong = new_token()
        stub = admin_pb2_grpc.AdminServiceStub(viewer._channel)
        for _ in range(20):
            with pytest.raises(AssayError), translated():
                await stub.ListTeams(pb.ListTeamsRequest(), metadata=[("authorization", f"Bearer {wrong.text}")])
        for number in range(10 * MOST_KINDS):  # as from as many addresses
            await shared.audit.count(
                AuditEntry("operators", "login", outcome="TOKEN_UNKNOWN", address=f"10.0.0.{number}")
            )
        shared.clock.now_s += WINDOW_S
        await shared.audit.flush()
        found = await entries_of(shared)
        assert checked(found) == []
        assert len(found) < 2 * MOST_KINDS
        denied = [each.entry for each in found if each.entry.action == "create-token"]
        assert [(entry.team, entry.outcome, entry.count, entry.role) for entry in denied] == [
            ("search", "PERMISSION_DENIED", count, "viewer") for count in (19, 1)
        ]
        logins = [each.entry for each in found if each.entry.action == "login"]
        assert sum(entry.count for entry in logins) >= 10 * MOST_KINDS
        assert {entry.actor for entry in logins} == {""}
        assert not any(wrong.text.split("_")[2] in str(entry) for entry in logins)


async def test_reading_a_run_as_a_whole_is_recorded(tmp_path: Path, database_url: str, settings_of: SettingsOf) -> None:
    """The results of a run, fetched with their answers, leave one entry a minute; a page of a list does not."""
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        member = await shared.member("search")
        run = await run_cases(member, settings_of(), CASES)
        _ = [row async for row in member.list_rows(run.run_id, view=RowView.BASIC)]
        assert await entries_of(shared, action="export-results") == []
        for _ in range(3):
            assert [row async for row in member.list_rows(run.run_id)]
        async for _ in member.watch_run(run.run_id, view=RowView.FULL):
            pass
        await shared.audit.flush()
        found = await entries_of(shared, action="export-results")
        assert [(each.entry.resource, each.entry.count) for each in found] == [(run.run_id, 3), (run.run_id, 1)]


async def test_who_sees_which_entries(tmp_path: Path, database_url: str) -> None:
    """A team admin sees the entries of its team, an operator all; filters and pages hold for both."""
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        ana, ben = await shared.member("alpha", Role.TEAM_ADMIN), await shared.member("beta", Role.TEAM_ADMIN)
        operator = await shared.member("ops", Role.OPERATOR)
        for client, count in ((ana, 5), (ben, 2)):
            for number in range(count):
                await admin.create_token(client, "viewer", f"{number}")
        await admin.create_token(operator, "viewer", "by an operator", team="alpha")

        async def seen(client: Client, **wanted: str) -> list[tuple[str, str, int]]:
            entries = [each async for each in list_audit(client, AuditFilter(**wanted))]
            return [(each.entry.team, each.entry.actor_team, each.sequence) for each in entries]

        own = [("alpha", "ops", 6), *(("alpha", "alpha", number) for number in (5, 4, 3, 2, 1))]
        assert await seen(ana) == own
        assert await seen(operator, team="alpha") == own
        assert len(await seen(operator)) == 8
        [actor] = {each.entry.actor for each in await entries_of(shared, team="beta")}
        assert await seen(operator, actor=actor) == [("beta", "beta", 2), ("beta", "beta", 1)]
        assert await seen(ana, actor=actor) == []
        assert len(await seen(operator, action="create-token")) == 8
        assert await seen(operator, action="create-team") == []
        assert await seen(operator, until="2020-01-01") == []
        assert len(await seen(operator, since="2020-01-01T00:00:00+02:00")) == 8
        with pytest.raises(InvalidInputError, match="since: must be a time"):
            await seen(ana, since="yesterday")
        with pytest.raises(PermissionDeniedError, match="names another team"):
            await seen(ana, team="beta")
        with pytest.raises(PermissionDeniedError, match="needs the right 'administer'"):
            await seen(await shared.member("alpha", Role.RUNNER))

        stub = admin_pb2_grpc.AdminServiceStub(operator._channel)
        first = await stub.ListAuditEvents(pb.ListAuditEventsRequest(page_size=5))
        second = await stub.ListAuditEvents(pb.ListAuditEventsRequest(page_size=5, page_token=first.next_page_token))
        pages = [(each.team, each.sequence) for each in (*first.events, *second.events)]
        assert len(set(pages)) == 10  # with two refusals
        assert second.next_page_token == ""
        for wrong in (first.next_page_token[:-2], first.next_page_token):
            with pytest.raises(InvalidInputError, match="page_token: does not belong to this query"), translated():
                await stub.ListAuditEvents(pb.ListAuditEventsRequest(page_token=wrong, action="login"))


async def test_entries_are_a_chain_that_the_database_keeps(
    database_url: str, open_store: Open, engine: sa.Engine
) -> None:
    """Concurrent entries are numbered without gaps; no statement changes or removes one; a way around it shows."""
    store = open_store()
    try:
        entry = AuditEntry("search", "delete-run", "\u202e=1+1\x00\n", actor_name="é")
        await asyncio.gather(*(store.write(lambda c: audit.append(c, entry)) for _ in range(40)))
        await store.write(lambda c: audit.append(c, AuditEntry("other", "delete-run")))
        found = list(await store.read(lambda c: audit.list_entries(c, AuditQuery(), None, 100)))
        assert sorted(each.sequence for each in found if each.entry.team == "search") == list(range(1, 41))
        assert checked(found) == []
        changes = ["UPDATE audit_entries SET outcome = 'x'", "DELETE FROM audit_entries"]
        for statement in [*changes, "TRUNCATE audit_entries"] if database_url else changes:
            with pytest.raises(sa.exc.DBAPIError, match="never changed"), engine.begin() as connection:
                connection.exec_driver_sql(statement)
    finally:
        store.close()
    gone = [each for each in found if each.sequence != 20]
    assert checked(gone) == ["team search: entries 20 to 20 are missing"]
    changed = [dataclasses.replace(each, at="2020") if each.sequence == 20 else each for each in found]
    assert checked(changed) == ["team search: entry 20 or its predecessor was changed"]
    first = [dataclasses.replace(each, at="2020") if each.entry.team == "other" else each for each in found]
    assert checked(first) == ["team other: entry 1 was changed"]


async def test_retention_removes_what_is_older_than_the_team_keeps(open_store: Open, engine: sa.Engine) -> None:
    """Old entries of a team with a retention may go, but its newest; the rest of its chain still fits."""

    def ago(days: float) -> str:
        moment = datetime.now(UTC) - timedelta(days=days)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    store = open_store()
    try:

        def fill(connection: sa.Connection) -> None:
            connection.execute(schema.teams.insert().values(team="search", created_at=ago(900), keep_audit_days=400))
            connection.execute(schema.teams.insert().values(team="all", created_at=ago(900)))
            for team in ("search", "all", "no-team"):
                for days in (800, 500, 401, 399, 1):
                    audit.append(connection, AuditEntry(team, "create-run"), at=ago(days))

        await store.write(fill)
        with pytest.raises(StorageError):
            await store.write(lambda c: audit.remove_before(c, "search", ago(300)))
        for team in ("all", "no-team"):
            with pytest.raises(StorageError):
                await store.write(lambda c, team=team: audit.remove_before(c, team, ago(400)))  # type: ignore[misc]
        assert await store.write(lambda c: audit.remove_before(c, "search", ago(400))) == 3
        found = list(await store.read(lambda c: audit.list_entries(c, AuditQuery(team="search"), None, 100)))
        assert [each.sequence for each in found] == [5, 4]
        assert checked(found) == []
    finally:
        store.close()
