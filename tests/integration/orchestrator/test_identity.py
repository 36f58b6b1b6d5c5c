"""Tokens at a shared installation: who is admitted, and to what."""

from __future__ import annotations

import dataclasses
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest
import sqlalchemy as sa
from google.protobuf.field_mask_pb2 import FieldMask
from tests.support.services.ended_runs import await_end
from tests.support.services.shared_installation import shared_installation

from assay.admin.v1 import admin_pb2, admin_pb2_grpc
from assay.client import admin
from assay.client.client import Client
from assay.errors import (
    AssayError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from assay.identity.rights import RIGHTS, Right, Role
from assay.identity.tokens import new_token
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import PauseCause, RunState
from assay.rpc.channel import open_channel, wait_for_ready
from assay.rpc.methods import METHODS
from assay.rpc.status import translated
from assay.v1 import host_pb2, host_pb2_grpc, run_pb2, run_pb2_grpc, server_pb2
from assay_orchestrator.identity.bootstrap import make_operator_token
from assay_orchestrator.identity.verifier import KEEP_S
from assay_orchestrator.service import SERVICES
from assay_orchestrator.settings import Settings
from assay_orchestrator.store import schema
from assay_orchestrator.store.teams import tokens

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.model.run import RunSpec

    SettingsOf = Callable[..., RunSpec]

CASES = [Case("c", (Turn("?", references=("yes",)),), recordings=((AgentResponse(AgentStatus.SUCCESS, text="yes"),),))]
ADMIN = "assay.admin.v1.AdminService"
RUNS = "assay.v1.RunService"


def later(days: float) -> str:
    """Return a moment from now as the store keeps it."""
    moment = datetime.now(UTC) + timedelta(days=days)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def drained(stream: Any) -> None:
    """Read a stream to its end."""
    message = await stream.read()
    while message is not grpc.aio.EOF:
        message = await stream.read()


def stored_bytes(folder: Path) -> bytes:
    """Return all that a store has on disk."""
    return b"".join(file.read_bytes() for file in folder.glob("assay.db*"))


async def test_a_token_admits_to_its_team_until_it_ends(tmp_path: Path, database_url: str) -> None:
    """Missing, malformed, unknown, expired and revoked tokens are refused with a reason each; the right one is not."""
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        good = await shared.token("search")
        other_secret = good[:17] + new_token().text[17:]
        refused = {
            "": "TOKEN_MISSING",
            "hello": "TOKEN_MALFORMED",
            good[:-1]: "TOKEN_MALFORMED",
            other_secret: "TOKEN_MALFORMED",  # its check is not of this id
            new_token().text: "TOKEN_UNKNOWN",
            await shared.token("search", expires_at=later(-1)): "TOKEN_EXPIRED",
        }
        for text, reason in refused.items():
            with pytest.raises(UnauthenticatedError) as caught:
                await (await shared.client(text)).list_runs()
            assert caught.value.reason == reason
            assert not text or text not in caught.value.message
        client = await shared.client(good)
        assert await client.list_runs() == []
        own = await admin.get_identity(client)
        assert (own.team, own.role, own.token_id) == ("search", "runner", good[6:16])


async def test_the_first_token_is_made_at_the_database(tmp_path: Path, database_url: str) -> None:
    """Each call makes a further one of the same team, which admits to a server over that database."""
    settings = Settings(database=tmp_path / "assay.db", database_url=database_url)
    made = [await make_operator_token(settings) for _ in range(2)]
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        for token in made:
            own = await admin.get_identity(await shared.client(token.text))
            assert (own.team, own.role, own.token_id) == ("operators", "operator", token.token_id)


async def test_the_hash_of_another_secret_does_not_admit(tmp_path: Path) -> None:
    """An id that is known, as from a list, with a secret of one's own is an unknown token, in the same words."""
    async with shared_installation(tmp_path) as shared:
        good, forged = await shared.token("search"), new_token()
        change = sa.update(schema.tokens).values(token_id=forged.token_id)
        await shared.database.write(lambda c: c.execute(change))
        messages = set()
        for text in (forged.text, new_token().text, good):
            with pytest.raises(UnauthenticatedError) as caught:
                await (await shared.client(text)).list_runs()
            messages.add((caught.value.reason, caught.value.message))
        assert len(messages) == 1


async def test_a_revoked_token_is_refused_within_a_minute(tmp_path: Path, database_url: str) -> None:
    """It is remembered for less than 30 s, and its role, team and expiry with it."""
    assert KEEP_S <= 30
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        text = await shared.token("search")
        client = await shared.client(text)
        await client.list_runs()
        leader = await shared.member("search", Role.TEAM_ADMIN)
        ended = await admin.revoke_token(leader, text[6:16])
        assert ended.revoked_at
        shared.clock.now_s += KEEP_S
        with pytest.raises(UnauthenticatedError) as caught:
            await client.list_runs()
        assert caught.value.reason == "TOKEN_REVOKED"
        assert (await admin.revoke_token(leader, text[6:16])).revoked_at == ended.revoked_at


async def test_a_revoked_token_ends_its_open_streams(tmp_path: Path, settings_of: SettingsOf) -> None:
    """A watch and a host of an agent do not outlive the token by which they were opened."""
    async with shared_installation(tmp_path, recheck_s=0.01) as shared:
        text = await shared.token("search")
        client = await shared.client(text)
        dataset = await client.upload_dataset(CASES, name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        stub = run_pb2_grpc.RunServiceStub(client._channel)
        attach = host_pb2.HostRequest(attach=host_pb2.AttachAgent(run_id=run.run_id, concurrency=1))
        watching = stub.WatchRun(run_pb2.WatchRunRequest(run_id=run.run_id))
        hosting = host_pb2_grpc.HostServiceStub(client._channel).Host()
        await hosting.write(attach)
        assert await watching.read() is not grpc.aio.EOF
        assert await hosting.read() is not grpc.aio.EOF
        await shared.database.write(lambda c: tokens.revoke_token(c, text[6:16], "search", ["runner"]))
        shared.clock.now_s += KEEP_S
        for stream in (watching, hosting):
            with pytest.raises(UnauthenticatedError), translated():
                await drained(stream)


@pytest.mark.parametrize("role", Role)
async def test_each_role_calls_the_methods_of_its_rights_alone(tmp_path: Path, role: Role) -> None:
    """Every method of the process refuses a role without its right by name, before it looks at the request."""
    async with shared_installation(tmp_path) as shared:
        client = await shared.member("search", role)
        for service in (*SERVICES, ADMIN):
            for name, rule in METHODS[service].items():
                kind = "_".join(
                    "stream" if streams else "unary" for streams in (rule.client_streams, rule.server_streams)
                )
                request: Any = iter([b"\xff"]) if rule.client_streams else b"\xff"
                call: Any = getattr(client._channel, kind)(f"/{service}/{name}")(request, timeout=60)
                with pytest.raises(AssayError) as caught, translated():
                    await (call.read() if rule.server_streams else call)
                assert rule.right is not None
                if rule.right is Right.NONE or rule.right in RIGHTS[role]:
                    assert caught.value.reason == "MALFORMED_REQUEST", name
                else:
                    assert isinstance(caught.value, PermissionDeniedError)
                    assert f"{name} needs the right '{rule.right.value}'" in caught.value.message


async def test_health_needs_no_token_and_reflection_does(tmp_path: Path) -> None:
    """Probes have none; the contracts are shown to callers with an identity."""
    async with shared_installation(tmp_path) as shared, open_channel(shared.address) as channel:
        await wait_for_ready(channel, RUNS, 60)
        call: Any = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
        with pytest.raises(UnauthenticatedError), translated():
            await call(iter([b""]), timeout=60).read()


async def test_the_team_of_a_run_is_that_of_its_token(tmp_path: Path, settings_of: SettingsOf) -> None:
    """A spec of another team is refused by its field's name; one without has that of the token, in queues too."""
    async with shared_installation(tmp_path) as shared:
        await shared.token("ads")
        client = await shared.member("search")
        dataset = await client.upload_dataset(CASES, name="d")
        messages = set()
        for team in ("ads", "nothing", "local", "Search"):
            with pytest.raises(PermissionDeniedError, match=r"^spec\.team: names another team") as caught:
                await client.create_run(dataclasses.replace(settings_of(), team=team), dataset.dataset_id)
            messages.add(caught.value.message)
            assert caught.value.reason == "TEAM_DIFFERS"
        assert len(messages) == 1
        made = [
            await client.create_run(dataclasses.replace(settings_of(), team=team), dataset.dataset_id)
            for team in ("", "search")
        ]
        assert {run.spec.team for run in made} == {"search"}
        stored = sa.select(schema.runs.c.team, schema.runs.c.fair_share)
        rows = await shared.database.read(lambda c: c.execute(stored).all())
        assert {tuple(row) for row in rows} == {("search", "search")}
        operator = await shared.member("operators", Role.OPERATOR)
        with pytest.raises(PermissionDeniedError):
            await operator.create_run(dataclasses.replace(settings_of(), team="search"), dataset.dataset_id)


async def test_an_operator_makes_teams_and_a_team_admin_its_tokens(tmp_path: Path, database_url: str) -> None:
    """Each gives out what it has, for the teams it has; what it may not is refused alike whether it exists or not."""
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        operator = await shared.member("operators", Role.OPERATOR)
        assert (await admin.create_team(operator, "search")).team == "search"
        with pytest.raises(ConflictError):
            await admin.create_team(operator, "search")
        made = await admin.create_token(operator, "team-admin", "Ana", team="search", lifetime_s=3600)
        assert made.token.expires_at > later(0)
        leader = await shared.client(made.secret)
        for team in ("", "search"):
            assert (await admin.create_token(leader, "runner", "CI", team=team)).token.team == "search"
        messages = set()
        for team in ("operators", "nothing"):
            for call in (admin.list_tokens(leader, team), admin.create_token(leader, "viewer", "x", team=team)):
                with pytest.raises(PermissionDeniedError) as caught:
                    await call
                messages.add(caught.value.message)
        assert len(messages) == 1
        with pytest.raises(PermissionDeniedError, match="'operator' has rights that the role 'team-admin'"):
            await admin.create_token(leader, "operator", "x")
        with pytest.raises(PermissionDeniedError, match="ListTeams needs the right 'operate'"):
            await admin.list_teams(leader)
        assert [team.team for team in await admin.list_teams(operator)] == ["operators", "search"]
        listed = await admin.list_tokens(leader)
        assert [token.role for token in listed] == ["team-admin", "runner", "runner"]
        assert listed[0].last_used_at.endswith(":00:00.000Z")
        operators = await admin.list_tokens(operator)
        refusals = set()
        for token_id in (operators[0].token_id, "0000000000", "", "é", listed[1].token_id.swapcase() + "x"):
            with pytest.raises(NotFoundError) as missing:
                await admin.revoke_token(leader, token_id)
            refusals.add(missing.value.message.replace(repr(token_id), "ID"))
        assert len(refusals) == 1
        assert (await admin.revoke_token(operator, listed[1].token_id)).revoked_at


async def test_a_team_admin_cannot_revoke_an_operator_of_its_team(tmp_path: Path) -> None:
    """A role does not end the tokens of a role above it."""
    async with shared_installation(tmp_path) as shared:
        operator = await shared.token("operators", Role.OPERATOR)
        leader = await shared.member("operators", Role.TEAM_ADMIN)
        with pytest.raises(PermissionDeniedError, match="'operator' has rights"):
            await admin.revoke_token(leader, operator[6:16])


async def test_a_disabled_team_works_no_more_until_it_is_enabled(
    tmp_path: Path, database_url: str, settings_of: SettingsOf
) -> None:
    """Its tokens are refused, its runs are paused in the middle, no run begins with a token that is remembered."""
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        operator = await shared.member("operators", Role.OPERATOR)
        client, other = await shared.member("search"), await shared.member("ads")
        runs = []
        for each in (client, other):
            dataset = await each.upload_dataset(CASES, name="d")
            runs.append(await each.create_run(settings_of("python", "m:f"), dataset.dataset_id))
        changed, paused = await admin.update_team(operator, "search", disabled=True)
        assert changed.disabled_at
        assert changed.state == "disabled"
        assert paused == 1
        found = await client.get_run(runs[0].run_id)  # the token is still remembered
        assert (found.state, found.pause_cause) == (RunState.PAUSED, PauseCause.OWNER)
        assert found.state_message == "the operator has disabled the team; stored rows are kept"
        dataset = await client.upload_dataset(CASES, name="d")
        for call in (client.create_run(settings_of(), dataset.dataset_id), client.resume_run(runs[0].run_id)):
            with pytest.raises(PermissionDeniedError) as denied:
                await call
            assert denied.value.reason == "TEAM_DISABLED"
        shared.clock.now_s += KEEP_S
        with pytest.raises(UnauthenticatedError) as caught:
            await client.list_runs()
        assert caught.value.reason == "TEAM_DISABLED"
        assert (await other.get_run(runs[1].run_id)).state in (RunState.PENDING, RunState.RUNNING)
        await admin.update_team(operator, "search", disabled=True)
        enabled, _ = await admin.update_team(operator, "search", disabled=False)
        assert (enabled.state, enabled.disabled_at) == ("active", "")
        assert (await client.get_run(runs[0].run_id)).state is RunState.PAUSED
        await client.resume_run(runs[0].run_id)
        with pytest.raises(InvalidInputError, match="your own team"):
            await admin.update_team(operator, "operators", disabled=True)
        for disabled in (True, False):
            with pytest.raises(NotFoundError):
                await admin.update_team(operator, "nothing", disabled=disabled)


async def test_a_restart_pauses_the_runs_of_a_disabled_team(tmp_path: Path, settings_of: SettingsOf) -> None:
    """A run that was running when its process was killed does not continue for a team that was disabled since."""
    async with shared_installation(tmp_path) as shared:
        client = await shared.member("search")
        dataset = await client.upload_dataset(CASES, name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        await shared.database.write(lambda c: tokens.set_disabled(c, "search", disabled=True))
    async with shared_installation(tmp_path) as shared:
        await shared.database.write(lambda c: tokens.set_disabled(c, "search", disabled=False))
        shared.teams.add("search")
        found = await (await shared.member("search")).get_run(run.run_id)
        assert found.state is RunState.PAUSED
        assert "disabled the team" in found.state_message


@pytest.mark.parametrize(
    "team",
    ["", "Search", "sear ch", "seаrch", "-search", "search-", "1search", "a" * 64, "../x", "*", "search\n"],
)
async def test_names_that_no_team_may_have_are_refused(tmp_path: Path, team: str) -> None:
    """Names that look like another one, that are paths, or that mean something else cannot be made."""
    async with shared_installation(tmp_path) as shared:
        operator = await shared.member("operators", Role.OPERATOR)
        with pytest.raises(InvalidInputError) as caught:
            await admin.create_team(operator, team)
        assert caught.value.problems[0].field == "team"


async def test_wrong_requests_for_tokens_name_every_problem(tmp_path: Path) -> None:
    """All at once, and nothing is stored."""
    async with shared_installation(tmp_path) as shared:
        operator = await shared.member("operators", Role.OPERATOR)
        with pytest.raises(InvalidInputError) as caught:
            await admin.create_token(operator, "king", "x")
        assert [problem.field for problem in caught.value.problems] == ["role"]
        stub = admin_pb2_grpc.AdminServiceStub(operator._channel)
        for expiry in ({"lifetime_ms": 10**12}, {"lifetime_ms": 0}, {"never_expires": False}):
            request = admin_pb2.CreateTokenRequest(team="operators", **expiry)
            with pytest.raises(InvalidInputError) as caught, translated():
                await stub.CreateToken(request)
            assert [problem.field for problem in caught.value.problems] == ["role", "name", *expiry]
        with pytest.raises(NotFoundError, match="assay admin teams create"):
            await admin.create_token(operator, "viewer", "x", team="nothing")
        assert len(await admin.list_tokens(operator)) == 1


async def test_a_token_expires_after_90_days_unless_the_request_says_otherwise(tmp_path: Path) -> None:
    """A request that names no lifetime does not create an eternal token; one that never expires says so."""
    async with shared_installation(tmp_path) as shared:
        operator = await shared.member("operators", Role.OPERATOR)
        stub = admin_pb2_grpc.AdminServiceStub(operator._channel)
        request = admin_pb2.CreateTokenRequest(team="operators", role=server_pb2.ROLE_VIEWER, name="x")
        created = (await stub.CreateToken(request)).token
        assert created.expire_time.seconds - created.create_time.seconds in (90 * 86_400, 90 * 86_400 + 1)
        assert (await admin.create_token(operator, "viewer", "x", never_expires=True)).token.expires_at == ""


async def test_a_request_without_a_team_is_refused(tmp_path: Path) -> None:
    """An empty name is not the caller's own team: a client that forgets the team changes nothing."""
    async with shared_installation(tmp_path) as shared:
        operator = await shared.member("operators", Role.OPERATOR)
        stub = admin_pb2_grpc.AdminServiceStub(operator._channel)
        quotas, mask = admin_pb2.Quotas(active_runs=1), FieldMask(paths=["active_runs"])
        requests = {
            "UpdateQuotas": admin_pb2.UpdateQuotasRequest(quotas=quotas, update_mask=mask),
            "GetQuotas": admin_pb2.GetQuotasRequest(),
            "GetTeam": admin_pb2.GetTeamRequest(),
            "UpdateTeam": admin_pb2.UpdateTeamRequest(update_mask=FieldMask(paths=["keep_runs_days"])),
            "DeleteTeam": admin_pb2.DeleteTeamRequest(),
            "CreateToken": admin_pb2.CreateTokenRequest(role=server_pb2.ROLE_VIEWER, name="x"),
            "ListTokens": admin_pb2.ListTokensRequest(),
            "CreateDestination": admin_pb2.CreateDestinationRequest(name="x", address="example.org"),
            "ListDestinations": admin_pb2.ListDestinationsRequest(),
            "DeleteDestination": admin_pb2.DeleteDestinationRequest(name="x"),
        }
        for method, request in requests.items():
            with pytest.raises(InvalidInputError, match="name the team") as caught, translated():
                await getattr(stub, method)(request)
            assert caught.value.problems[0].field == ("team.team" if method == "UpdateTeam" else "team")


async def test_lists_are_read_page_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every entry comes once and in order, whatever the size of the pages."""
    async with shared_installation(tmp_path) as shared:
        operator = await shared.member("operators", Role.OPERATOR)
        names = [f"team-{number}" for number in range(5)]
        for name in names:
            await admin.create_team(operator, name)
            await admin.create_token(operator, "viewer", name)
            await admin.create_destination(operator, name, "example.org")
        lists = (admin.list_teams, admin.list_tokens, admin.list_destinations, admin.list_team_usage)
        whole = [await read(operator) for read in lists]
        monkeypatch.setattr(admin, "PAGE_SIZE", 2)
        assert [await read(operator) for read in lists] == whole
        assert [len(entries) for entries in whole] == [6, 6, 5, 6]
        assert [place.name for place in await admin.list_destinations(operator)] == names
        assert [token.name for token in await admin.list_tokens(operator)][1:] == names


async def test_no_token_is_in_a_log_or_a_row(
    tmp_path: Path, settings_of: SettingsOf, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither one that is used, nor one that was made over the wire, nor one that was refused."""
    caplog.set_level(logging.DEBUG)
    unknown = new_token().text
    async with shared_installation(tmp_path) as shared:
        used = await shared.token("operators", Role.OPERATOR)
        client = await shared.client(used)
        made = (await admin.create_token(client, "runner", "CI")).secret
        dataset = await (await shared.client(made)).upload_dataset(CASES, name="d")
        run = await client.create_run(settings_of(), dataset.dataset_id)
        await await_end(client, run.run_id)
        for text in (unknown, made[:-1]):
            with pytest.raises(UnauthenticatedError):
                await (await shared.client(text)).list_runs()
    found = caplog.text.encode() + stored_bytes(tmp_path)
    assert made[6:16].encode() in found
    for text in (used, made, unknown):
        assert text.split("_")[2].encode() not in found


async def test_a_database_that_is_away_refuses_nothing_that_it_admitted(tmp_path: Path) -> None:
    """A token that was looked up is remembered; another one is UNAVAILABLE, not UNAUTHENTICATED."""
    async with shared_installation(tmp_path) as shared:
        client, other = await shared.member("search"), await shared.token("search")
        await admin.get_identity(client)
        shared.database.close()
        assert (await admin.get_identity(client)).team == "search"
        with pytest.raises(AssayError) as caught:
            await admin.get_identity(await shared.client(other))
        assert not isinstance(caught.value, UnauthenticatedError)


async def test_a_server_without_identities_says_so(serve: Any) -> None:
    """A laptop takes calls with and without a token, and has no teams to manage."""
    async with serve() as client:
        assert await client.list_runs() == []
        async with Client(client.address, token=new_token().text) as other:
            assert await other.list_runs() == []
            with pytest.raises(AssayError) as caught:
                await admin.list_teams(other)
            assert caught.value.reason == "NO_IDENTITIES"


def test_rights_are_in_use() -> None:
    """Each right is needed by some method, and each method of a contract needs one."""
    needed = {rule.right for methods in METHODS.values() for rule in methods.values()}
    assert needed == set(Right)
