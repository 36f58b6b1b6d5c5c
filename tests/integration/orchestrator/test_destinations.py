"""Destinations of a shared installation: which hosts a team's agents may have, and which secrets go to which host."""

from __future__ import annotations

import asyncio
import ipaddress
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes.waiting import until
from tests.support.services.ended_runs import run_cases
from tests.support.services.shared_installation import SharedInstallation, shared_installation

from assay.client import admin
from assay.errors import ConflictError, InvalidInputError, NotFoundError, PermissionDeniedError
from assay.http.addresses import Address, covers, pattern_problem, url_address
from assay.identity.rights import Role
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec, JudgeModel, JudgeSpec, RunSpec, RunState
from assay_orchestrator.agents import secrets as secrets_module
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.destinations import Destination
from assay_orchestrator.runs.destination_watch import DestinationWatch
from assay_orchestrator.runs.planner import judge_key_problems, with_team
from assay_orchestrator.runs.team_access import TeamAccess
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import open_database
from assay_orchestrator.store.teams import destinations
from assay_orchestrator.store.teams.destinations import DestinationRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import sqlalchemy as sa

    from assay.client.client import Client
    from assay.model.run import Run, RunSpec

    SettingsOf = Callable[..., RunSpec]

KEY, OTHER_KEY = "key-of-alpha-0123456789", "key-of-beta-0123456789"
LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)


@dataclass
class Agent:
    """An HTTP agent that notes what it was sent."""

    port: int = 0
    heads: list[str] = field(default_factory=list)
    on_request: Callable[[], None] = lambda: None

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/"


@asynccontextmanager
async def agent() -> AsyncIterator[Agent]:
    """Serve an agent that answers "yes"."""
    served = Agent()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                await reader.readexactly(int(head.lower().split("content-length: ")[1].split("\r\n")[0]))
                served.heads.append(head)
                served.on_request()
                writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{"text": "yes"}')
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the caller has hung up, as it may
        finally:
            writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    served.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield served


@asynccontextmanager
async def installation(folder: Path, **changes: Any) -> AsyncIterator[tuple[SharedInstallation, Client, Client]]:
    """Serve two teams with a secret each; yields a team admin and a runner of the first."""
    for team, value in (("alpha", KEY), ("beta", OTHER_KEY)):
        (folder / "secrets" / team).mkdir(parents=True)
        (folder / "secrets" / team / f"{team}-key").write_text(f"{value}\n")
    async with shared_installation(folder, secrets=folder / "secrets", egress_networks=LOOPBACK, **changes) as shared:
        team_admin = await shared.member("alpha", Role.TEAM_ADMIN)
        await shared.member("beta", Role.TEAM_ADMIN)
        yield shared, team_admin, await shared.member("alpha")


def asking(settings_of: SettingsOf, url: str, header: str = "", **changes: Any) -> RunSpec:
    """Return a run whose agent is called over HTTP, one question at a time."""
    options: dict[str, Any] = {"response": {"text": "text"}}
    if header:
        options["headers"] = {"authorization": f"Bearer {header}"}
    return settings_of("http", url, concurrency=1, options=options, retries=0, **changes)


async def await_end(client: Client, settings: RunSpec, count: int = 1) -> Run:
    """Return a run when it has ended."""
    cases = [Case(f"c{number}", (Turn(f"q{number}", references=("yes",)),)) for number in range(count)]
    return await run_cases(client, settings, cases)


async def test_a_host_needs_a_destination_of_the_team(tmp_path: Path, settings_of: SettingsOf) -> None:
    """A free URL is refused before anything is asked, naming who can allow it; so is another team's destination."""
    async with agent() as served, installation(tmp_path) as (shared, team_admin, runner):
        beta = await shared.member("beta", Role.TEAM_ADMIN)
        await admin.create_destination(beta, "bot", f"127.0.0.1:{served.port}")
        with pytest.raises(InvalidInputError, match="assay admin destinations create") as refusal:
            await await_end(runner, asking(settings_of, served.url))
        assert [problem.field for problem in refusal.value.problems] == ["agent.target"]
        assert served.heads == []
        made = await admin.create_destination(team_admin, "bot", f"127.0.0.1:{served.port}")
        assert (made.team, made.secrets) == ("alpha", ())
        assert (await await_end(runner, asking(settings_of, served.url))).state is RunState.COMPLETED
        assert len(served.heads) == 1
        await admin.delete_destination(team_admin, "bot")
        with pytest.raises(InvalidInputError, match="destinations create"):
            await await_end(runner, asking(settings_of, served.url))
        assert len(served.heads) == 1


@pytest.mark.parametrize("change", ["deleted", "moved", "without its secret"])
async def test_a_run_in_progress_fails_where_its_destination_is_gone(
    change: str, tmp_path: Path, settings_of: SettingsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks no more, names the destination and what is missing, and continues once the destination is there again."""
    defaults = DestinationWatch.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "check_s", 0.02)
    async with agent() as served, installation(tmp_path) as (shared, team_admin, runner):
        address, asked = f"127.0.0.1:{served.port}", asyncio.Event()
        await admin.create_destination(team_admin, "bot", address, secrets=["alpha-key"])
        await admin.create_destination(team_admin, "other", "other.example.org")
        served.on_request = asked.set
        cases = [Case(f"c{number}", (Turn(f"q{number}", references=("yes",)),)) for number in range(2_000)]
        dataset = await runner.upload_dataset(cases, name="d")
        settings = asking(settings_of, served.url, "secret://alpha-key")
        run = await runner.create_run(settings, dataset.dataset_id)
        await asked.wait()
        await admin.delete_destination(team_admin, "other")  # which the run does not call

        def make_change(connection: sa.Connection) -> None:  # in one moment, so that no look is between two
            destinations.delete_destination(connection, "alpha", "bot")
            if change == "moved":
                destinations.create_destination(
                    connection, DestinationRecord("alpha", "bot", "elsewhere.test", ("alpha-key",))
                )
            elif change == "without its secret":
                destinations.create_destination(connection, DestinationRecord("alpha", "bot", address, ()))

        await shared.database.write(make_change)
        async for _event in runner.watch_run(run.run_id):
            pass
        failed = await runner.get_run(run.run_id)
        assert failed.state is RunState.FAILED
        assert "its destination 'bot' was deleted or changed while the run was in progress" in failed.state_message
        missing = "lists the secret 'alpha-key'" if change == "without its secret" else "may not call '127.0.0.1'"
        assert missing in failed.state_message
        count = len(served.heads)
        assert count < len(cases)
        with pytest.raises(InvalidInputError):
            await runner.retry_run(run.run_id)
        assert len(served.heads) == count
        if change != "deleted":
            await admin.delete_destination(team_admin, "bot")
        await admin.create_destination(team_admin, "bot", address, secrets=["alpha-key"])
        await runner.retry_run(run.run_id)
        served.on_request = lambda: None
        await until(lambda: len(served.heads), lambda seen: seen > count)
        await runner.cancel_run(run.run_id)


async def test_a_run_is_not_resumed_where_its_destination_is_gone(tmp_path: Path, settings_of: SettingsOf) -> None:
    """It stays paused, and continues once the destination is there again."""
    async with agent() as served, installation(tmp_path) as (_, team_admin, runner):
        address = f"127.0.0.1:{served.port}"
        await admin.create_destination(team_admin, "bot", address)
        cases = [Case(f"c{number}", (Turn(f"q{number}", references=("yes",)),)) for number in range(500)]
        dataset = await runner.upload_dataset(cases, name="d")
        run = await runner.create_run(asking(settings_of, served.url), dataset.dataset_id)
        paused = await runner.pause_run(run.run_id)
        async for _event in runner.watch_run(run.run_id):
            paused = await runner.get_run(run.run_id)
            if paused.state is RunState.PAUSED:
                break
        await admin.delete_destination(team_admin, "bot")
        with pytest.raises(InvalidInputError, match="destinations create"):
            await runner.resume_run(run.run_id)
        assert (await runner.get_run(run.run_id)).state is RunState.PAUSED
        await admin.create_destination(team_admin, "bot", address)
        await runner.resume_run(run.run_id)
        async for _event in runner.watch_run(run.run_id):
            pass
        assert (await runner.get_run(run.run_id)).state is RunState.COMPLETED


async def test_who_may_register_what(tmp_path: Path) -> None:
    """Team admins for their team, operators for every one, runners only look; what is no address is refused."""
    async with installation(tmp_path) as (shared, team_admin, runner):
        operator = await shared.member("operators", Role.OPERATOR)
        with pytest.raises(PermissionDeniedError):
            await admin.create_destination(runner, "bot", "example.org")
        with pytest.raises(PermissionDeniedError):
            await admin.create_destination(team_admin, "bot", "example.org", team="beta")
        await admin.create_destination(
            operator, "bot", "https://bot.example.org", secrets=["b", "a", "a"], team="alpha"
        )
        (found,) = await admin.list_destinations(runner)
        assert (found.name, found.address, found.secrets) == ("bot", "https://bot.example.org", ("a", "b"))
        with pytest.raises(ConflictError, match="already"):
            await admin.create_destination(team_admin, "bot", "example.org")
        with pytest.raises(InvalidInputError) as refusal:
            await admin.create_destination(team_admin, "", "*", secrets=["../x"])
        assert {problem.field for problem in refusal.value.problems} == {"name", "address", "secrets"}
        with pytest.raises(NotFoundError, match="no destination"):
            await admin.delete_destination(team_admin, "other")
        with pytest.raises(NotFoundError, match="no team"):
            await admin.create_destination(operator, "bot", "example.org", team="gamma")


async def test_a_secret_goes_to_destinations_that_list_it(tmp_path: Path, settings_of: SettingsOf) -> None:
    """Without one it is refused; another team's secret and a missing one are one answer, and nothing is asked."""
    async with agent() as served, installation(tmp_path) as (_, team_admin, runner):
        address = f"127.0.0.1:{served.port}"
        await admin.create_destination(team_admin, "plain", address)
        with pytest.raises(InvalidInputError, match=r"no destination of the team there \(plain\) lists"):
            await await_end(runner, asking(settings_of, served.url, "secret://alpha-key"))
        await admin.create_destination(team_admin, "bot", address, secrets=["alpha-key", "beta-key", "none"])
        said = []
        for reference in ("secret://beta/beta-key", "secret://beta/none", "secret://none"):
            with pytest.raises(InvalidInputError) as refusal:
                await await_end(runner, asking(settings_of, served.url, reference))
            (problem,) = refusal.value.problems
            assert problem.field == "agent.headers.authorization"
            said.append(problem.message.replace(reference, "REFERENCE"))
        assert len(set(said)) == 1
        assert "--secrets" in said[0]
        assert served.heads == []
        for reference in ("secret://alpha-key", "secret://alpha/alpha-key", "${secret://alpha-key}"):
            assert (await await_end(runner, asking(settings_of, served.url, reference))).state is RunState.COMPLETED
            assert f"authorization: Bearer {KEY}\r\n" in served.heads[-1]
        with pytest.raises(InvalidInputError, match="destinations create"):
            await await_end(
                runner, asking(settings_of, served.url.replace("127.0.0.1", "127.0.0.2"), "secret://alpha-key")
            )


async def test_variables_go_to_the_hosts_that_the_operator_binds_them_to(
    tmp_path: Path, settings_of: SettingsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable for one host that all teams may call is not sent to another one."""
    monkeypatch.setenv("ALPHA_KEY", KEY)
    hosts = ("127.0.0.1", "127.0.0.2")
    async with (
        agent() as served,
        installation(tmp_path, http_hosts=hosts, agent_env=("ALPHA_*@127.0.0.1",)) as (_, _admin, runner),
    ):
        assert (await await_end(runner, asking(settings_of, served.url, "${ALPHA_KEY}"))).state is RunState.COMPLETED
        elsewhere = served.url.replace("127.0.0.1", "127.0.0.2")
        with pytest.raises(InvalidInputError, match=r"may not be sent to 127\.0\.0\.2"):
            await await_end(runner, asking(settings_of, elsewhere, "${ALPHA_KEY}"))
        assert len(served.heads) == 1


async def test_a_rotated_secret_needs_no_restart(
    tmp_path: Path, settings_of: SettingsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run in progress sends the new value; once it is gone, rows have an error that names setting and operator."""
    monkeypatch.setattr(secrets_module, "REREAD_S", 0.0)
    async with agent() as served, installation(tmp_path) as (_, team_admin, runner):
        path = tmp_path / "secrets" / "alpha" / "alpha-key"
        await admin.create_destination(team_admin, "bot", f"127.0.0.1:{served.port}", secrets=["alpha-key"])

        def rotate() -> None:
            if len(served.heads) == 2:
                path.write_text("rotated-0123456789")
            if len(served.heads) == 4:
                path.unlink()

        served.on_request = rotate
        run = await await_end(runner, asking(settings_of, served.url, "secret://alpha-key"), 6)
        sent = [head.split("authorization: Bearer ")[1].split("\r\n")[0] for head in served.heads]
        assert sent == [KEY, KEY, "rotated-0123456789", "rotated-0123456789"]
        results = [result async for result in runner.list_rows(run.run_id)]
        responses = [result.response for result in results if result.response is not None]
        errors = [response.error for response in responses if response.error is not None]
        assert [error.type for error in errors] == ["SecretMissing"] * 2
        assert all("secret://alpha-key" in error.message and "--secrets" in error.message for error in errors)


async def test_a_worker_knows_teams_from_the_database(tmp_path: Path) -> None:
    """It has no --auth: with teams, a run has the destinations of its own team."""
    async with installation(tmp_path) as (shared, team_admin, _):
        await admin.create_destination(team_admin, "bot", "bot.example.org", secrets=["k"])
        settings = Settings(database=tmp_path / "none.db", database_url="postgresql://db.test/x", role="worker")
        access = TeamAccess(shared.database, settings)
        own = await access.of("alpha")
        assert (own.team, own.destinations) == ("alpha", (Destination("bot", "bot.example.org", ("k",)),))
    empty = open_database(Settings(database=tmp_path / "empty.db"))
    try:
        alone = await TeamAccess(empty, settings).of("anything")
        assert (alone.team, alone.destinations) == ("local", None)
    finally:
        empty.close()


@pytest.mark.parametrize(
    ("pattern", "url", "is_covered"),
    [
        ("example.org", "http://example.org/", True),
        ("example.org", "https://example.org:8443/x", True),
        ("example.org", "https://www.example.org/", False),
        ("example.org", "https://example.org.evil.test/", False),
        ("example.org", "https://EXAMPLE.org/", True),
        ("example.org", "https://example.org./", False),
        ("https://example.org", "https://example.org/", True),
        ("https://example.org", "https://example.org:443/", True),
        ("https://example.org", "https://example.org:8443/", False),
        ("https://example.org", "http://example.org/", False),
        ("example.org:8443", "https://example.org:8443/", True),
        ("example.org:8443", "https://example.org/", False),
        ("*.example.org", "https://a.b.example.org/", True),
        ("*.example.org", "https://example.org/", False),
        ("*.example.org", "https://evilexample.org/", False),
        ("[2001:db8::1]:80", "http://[2001:db8::1]/", True),
        ("example.org", "https://${HOST}/", False),
        ("example.org", "https://example.org${PORT}/", False),
        ("example.org", "https://example.org@evil.test/", False),
        ("example.org", "https://evil.test#@example.org/", False),
    ],
)
def test_addresses_of_destinations(pattern: str, url: str, is_covered: bool) -> None:
    """A pattern is a whole host or the end of one, with the port and the scheme that it names."""
    assert pattern_problem(pattern) == ""
    assert covers(pattern, url_address(url)) is is_covered


@pytest.mark.parametrize(
    "pattern", ["", "*", "*.org", "*.", "a*.example.org", "https://*", "ftp://example.org", "example.org/path",
                "user@example.org", "Example.org", "example.org:0", "example.org:65536", "example.org:", "a b", "é.org",
                "example..org", "https://example.org/", "${HOST}"],
)  # fmt: skip
def test_what_is_no_address_of_a_destination(pattern: str) -> None:
    """A pattern that all hosts have, a path, which is no bound, and what two readers read in two ways."""
    assert pattern_problem(pattern)
    assert not covers(pattern, Address("https", "example.org", 443))


def test_the_key_of_a_judge_goes_to_a_destination() -> None:
    """As those of agents; the judge service gets the team with the call, as it does not know the run's."""
    jury = JudgeSpec(members=(
        JudgeModel("openai", "m", key_variable="secret://openai"),
        JudgeModel("anthropic", "m", key_variable="secret://beta/key"), JudgeModel("openai", "m2"),
    ))  # fmt: skip
    access = AgentAccess(
        (), (), team="alpha", destinations=[Destination("models", "https://api.openai.com", ("openai",))]
    )
    assert [problem.field for problem in judge_key_problems([jury], access)] == ["judges[0].members[1].key_variable"]
    [problem] = judge_key_problems([jury], access)
    assert "a file TEAM/NAME below --secrets of the judge service, or a variable" in problem.message
    run = RunSpec("r", AgentSpec("replay"), (), judges=(jury,))
    assert [member.key_variable for member in with_team(run, "alpha").judges[0].members] == [
        "secret://alpha/openai", "secret://beta/key", ""
    ]  # fmt: skip
    nowhere = AgentAccess((), (), team="alpha", destinations=())
    assert [problem.field for problem in judge_key_problems([jury], nowhere)] == [
        "judges[0].members[0].key_variable", "judges[0].members[1].key_variable"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (AgentSpec("http", "https://A.example/x?y"), Address("https", "a.example", 443)),
        (AgentSpec("grpc", "a.example:50051"), Address("http", "a.example", 50051)),
        (AgentSpec("grpc", "[::1]:443", options={"tls": True}), Address("https", "::1", 443)),
        (AgentSpec("openai", "m"), Address("https", "api.openai.com", 443)),
        (AgentSpec("anthropic", "m", options={"base_url": "http://m:1"}), Address("http", "m", 1)),
    ],
)
def test_where_agents_are_called(settings: AgentSpec, expected: Address) -> None:
    """Every adapter that calls something has one address."""
    from assay_orchestrator.agents.destinations import agent_address

    assert agent_address(settings) == expected
