"""Quotas of teams: what is over one is refused or pauses, whatever is asked at once, and nothing of other teams."""

from __future__ import annotations

import asyncio
import functools
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.integration.orchestrator.test_run_pause import hosting, until
from tests.support.processes import waiting
from tests.support.services.calls_in_memory import calls_in_memory, without_collection
from tests.support.services.shared_installation import SharedInstallation, shared_installation

from assay.client import admin
from assay.errors import InvalidInputError, NotFoundError, OverloadedError, PermissionDeniedError
from assay.identity.quotas import Quota
from assay.identity.rights import Role
from assay.model.answers.agent_response import AgentResponse, AgentStatus, Usage
from assay.model.case import Case, Turn
from assay.model.run import PauseCause, RunState
from assay.rpc.channel import open_channel
from assay.rpc.options import ChannelOptions
from assay_orchestrator.identity.team_requests import KEEP_S, TeamRequests
from assay_orchestrator.runs.budget_watch import BudgetWatch
from assay_orchestrator.store.teams import quotas

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from assay.client.client import Client
    from assay.model.run import Run, RunSpec

    SettingsOf = Callable[..., RunSpec]

CASES = [Case(f"c{number}", (Turn("?", references=("yes",)),)) for number in range(8)]
RECORDED = [
    Case(
        case.case_id,
        case.turns,
        recordings=((AgentResponse(AgentStatus.SUCCESS, text="yes", usage=Usage(total_tokens=9)),),),
    )
    for case in CASES
]
WAITING = ("python", "m:f")  # a run that waits for a client to host its agent


async def limit(shared: SharedInstallation, team: str, **amounts: int) -> None:
    """Set quotas of a team, by their names."""
    given = {Quota[name]: amount for name, amount in amounts.items()}
    await shared.database.write(lambda c: quotas.set_quotas(c, team, given))


async def refusal(call: Any) -> OverloadedError:
    """Return the error of a call that a quota refuses."""
    with pytest.raises(OverloadedError) as caught:
        await call
    assert caught.value.reason == "QUOTA_REACHED"
    assert "ask the operator" in caught.value.message
    return caught.value


async def used(client: Client, quota: Quota) -> int:
    """Return what the team of a client uses."""
    (usage,) = await admin.list_team_usage(client)
    return usage.used[quota]


class Spending:
    """An agent whose answers cost something; after some it waits.

    Args:
        free: How many questions it answers at once.
    """

    def __init__(self, free: int = 1_000) -> None:
        self._free = free
        self.may_answer = asyncio.Event()

    async def __call__(self, request: Any) -> AgentResponse:
        """Answer a question."""
        self._free -= 1
        if self._free < 0:
            await self.may_answer.wait()
        return AgentResponse(AgentStatus.SUCCESS, text="yes", usage=Usage(60, 40, cost_usd=0.25))


async def test_quotas_are_set_by_operators_and_seen_by_the_team(tmp_path: Path, database_url: str) -> None:
    """An operator sets, removes and reads those of every team; a member sees its own, and no other team's."""
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        operator = await shared.member("operators", Role.OPERATOR)
        member, other = await shared.member("search", Role.VIEWER), await shared.member("ads", Role.TEAM_ADMIN)
        await admin.update_default_quotas(operator, {Quota.ACTIVE_RUNS: 3, Quota.MONEY_PER_MONTH: 10**11})
        await admin.update_quotas(operator, "search", {Quota.ACTIVE_RUNS: 1, Quota.TOKENS_PER_DAY: 0})
        quotas_of_team = await admin.get_quotas(member)
        default = {Quota.ACTIVE_RUNS: 3, Quota.REQUESTS_PER_MINUTE: 6_000, Quota.MONEY_PER_MONTH: 10**11}
        assert quotas_of_team.own == {Quota.ACTIVE_RUNS: 1, Quota.TOKENS_PER_DAY: 0}
        assert quotas_of_team.in_force == default | {Quota.ACTIVE_RUNS: 1, Quota.TOKENS_PER_DAY: 0}
        await admin.update_quotas(operator, "search", {}, [Quota.ACTIVE_RUNS])
        assert (await admin.get_quotas(operator, "search")).in_force[Quota.ACTIVE_RUNS] == 3
        assert (await admin.get_quotas(operator)).own == {}
        assert await admin.get_default_quotas(operator) == default
        assert [usage.team for usage in await admin.list_team_usage(operator)] == ["ads", "operators", "search"]
        (usage,) = await admin.list_team_usage(member)
        assert (usage.team, set(usage.used), usage.quotas[Quota.TOKENS_PER_DAY]) == ("search", set(Quota), 0)
        for call in (
            admin.update_quotas(other, "ads", {Quota.ACTIVE_RUNS: 9}),
            admin.get_quotas(other, "search"),
            admin.list_team_usage(other, "search"),
            admin.get_default_quotas(other),
        ):
            with pytest.raises(PermissionDeniedError):
                await call
        with pytest.raises(NotFoundError):
            await admin.update_quotas(operator, "nothing", {Quota.ACTIVE_RUNS: 9})
        with pytest.raises(InvalidInputError, match="name the fields to change"):
            await admin.update_quotas(operator, "search", {})
        with pytest.raises(InvalidInputError, match="at most 9,007,199,254,740,991") as caught:
            await admin.update_quotas(operator, "search", {Quota.STORED_BYTES: 2**53})
        assert caught.value.problems[0].field == "quotas.stored_bytes"


async def test_no_more_runs_than_the_quota_are_active(
    tmp_path: Path, database_url: str, settings_of: SettingsOf
) -> None:
    """However many are asked for at once, at several processes: of 12 runs 3 are accepted, those of others too."""
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(shared_installation(tmp_path, database_url=database_url))
        await limit(first, "search", ACTIVE_RUNS=3)
        token = await first.token("search")
        clients = [await first.client(token)]
        if database_url:
            second = await stack.enter_async_context(
                shared_installation(tmp_path, listen=f"unix:{tmp_path}/second.sock", database_url=database_url)
            )
            clients.append(await second.client(token))
        dataset = await clients[0].upload_dataset(CASES, name="d")
        asked = (
            clients[number % len(clients)].create_run(settings_of(*WAITING), dataset.dataset_id) for number in range(12)
        )
        found = await asyncio.gather(*asked, return_exceptions=True)
        runs = [each for each in found if not isinstance(each, BaseException)]
        assert len(runs) == 3
        assert {getattr(each, "reason", "") for each in found if isinstance(each, BaseException)} == {"QUOTA_REACHED"}
        assert await used(clients[0], Quota.ACTIVE_RUNS) == 3
        other = await first.member("ads")
        await other.create_run(settings_of(*WAITING), (await other.upload_dataset(CASES, name="d")).dataset_id)
        await clients[0].pause_run(runs[0].run_id)
        await clients[0].create_run(settings_of(*WAITING), dataset.dataset_id)
        error = await refusal(clients[0].resume_run(runs[0].run_id))
        assert "active-runs: 3 of 3" in error.message
        assert error.retry_after_s == 10


async def test_a_run_pauses_where_the_tokens_of_its_team_are_used_up(
    tmp_path: Path, database_url: str, settings_of: SettingsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in flight ends, the cause is the quota, a resume waits for room in it, and no other team is affected."""
    defaults = BudgetWatch.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "check_s", 0.02)
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        client, other = await shared.member("search"), await shared.member("ads")
        await limit(shared, "search", TOKENS_PER_DAY=150)

        async def begun(one: Client) -> Run:
            dataset = await one.upload_dataset(CASES, name="d")
            return await one.create_run(settings_of(*WAITING, concurrency=2), dataset.dataset_id)

        run, free = await begun(client), await begun(other)
        async with hosting(other, free, Spending()):
            assert (await until(other, free.run_id, RunState.COMPLETED)).state is RunState.COMPLETED
        agent = Spending(free=2)
        async with hosting(client, run, agent):
            await waiting.until(lambda: client.get_run(run.run_id), lambda seen: seen.pause_cause is PauseCause.QUOTA)
            agent.may_answer.set()
            paused = await until(client, run.run_id, RunState.PAUSED)
        assert paused.counts.finished_count == 4
        assert await used(client, Quota.MONEY_PER_MONTH) == 4 * 250_000_000
        assert await used(client, Quota.TOKENS_PER_DAY) == 400
        assert (paused.pause_cause, "tokens-per-day" in paused.state_message) == (PauseCause.QUOTA, True)
        await refusal(begun(client))
        error = await refusal(client.resume_run(run.run_id))
        assert 0 < error.retry_after_s <= 86_400
        await limit(shared, "search", TOKENS_PER_DAY=10_000)
        await client.resume_run(run.run_id)
        async with hosting(client, run, Spending()):
            ended = await until(client, run.run_id, RunState.COMPLETED)
        assert ended.counts.finished_count == len(CASES)


@pytest.mark.parametrize(
    "usage",
    [
        {"cost_usd": 1e300},
        {"cost_usd": 1e10},
        {"cost_usd": -100.0},
        {"total_tokens": 2**62},
        {"input_tokens": 2**62, "output_tokens": 2**62},
    ],
)
async def test_usage_that_cannot_be_ends_no_run_and_gives_no_quota(
    usage: dict[str, float], tmp_path: Path, database_url: str, settings_of: SettingsOf
) -> None:
    """Rows with it are stored like all others and are in no quota, and the team's use can be read."""
    possible = {"input_tokens": 60, "output_tokens": 40, "cost_usd": 0.25}

    async def answer(request: Any) -> dict[str, Any]:
        return {"text": "yes", "usage": usage if request.case_id != "c0" else possible}

    async with shared_installation(tmp_path, database_url=database_url) as shared:
        client = await shared.member("search")
        dataset = await client.upload_dataset(CASES, name="d")
        run = await client.create_run(settings_of(*WAITING, concurrency=4), dataset.dataset_id)
        async with hosting(client, run, answer):
            ended = await until(client, run.run_id, RunState.COMPLETED, RunState.FAILED, RunState.PAUSED)
        assert (ended.state, ended.counts.finished_count) == (RunState.COMPLETED, len(CASES))
        assert await used(client, Quota.TOKENS_PER_DAY) == 100
        assert await used(client, Quota.MONEY_PER_MONTH) == 250_000_000


async def test_stored_bytes_are_counted_and_given_back(
    tmp_path: Path, database_url: str, settings_of: SettingsOf
) -> None:
    """Datasets and rows count, of two uploads at once one is over the quota, and deletions make room."""
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        client = await shared.member("search")
        dataset = await client.upload_dataset(RECORDED, name="d")
        size = await used(client, Quota.STORED_BYTES)
        assert size > 500
        run = await client.create_run(settings_of(), dataset.dataset_id)
        await until(client, run.run_id, RunState.COMPLETED)
        assert await used(client, Quota.STORED_BYTES) > size + 200
        assert await used(client, Quota.TOKENS_PER_DAY) == 0  # recorded answers were paid for before
        await client.delete_run(run.run_id)
        assert await used(client, Quota.STORED_BYTES) == size
        await client.delete_dataset(dataset.dataset_id)
        assert await used(client, Quota.STORED_BYTES) == 0
        await limit(shared, "search", STORED_BYTES=size * 3 // 2)
        first, second, third = ([*RECORDED[:-1], replace(RECORDED[-1], case_id=name)] for name in ("x1", "x2", "x3"))
        both = (client.upload_dataset(cases, name="d") for cases in (first, second))
        found = await asyncio.gather(*both, return_exceptions=True)
        assert [isinstance(each, OverloadedError) for each in found].count(True) == 1
        assert await used(client, Quota.STORED_BYTES) == size
        error = await refusal(client.upload_dataset(third, name="d"))
        assert "delete runs or datasets" in error.message


async def test_what_deleted_runs_have_spent_counts(tmp_path: Path, database_url: str, settings_of: SettingsOf) -> None:
    """Deleting a run gives no tokens back, and its name is forgotten."""
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        client = await shared.member("search")
        dataset = await client.upload_dataset(CASES, name="d")
        for _ in range(2):
            run = await client.create_run(settings_of(*WAITING), dataset.dataset_id)
            async with hosting(client, run, Spending()):
                await until(client, run.run_id, RunState.COMPLETED)
        spent = await used(client, Quota.TOKENS_PER_DAY)
        assert spent == 1600
        for each in await client.list_runs():
            await client.delete_run(each.run_id)
        assert await used(client, Quota.TOKENS_PER_DAY) == spent


async def test_questions_in_flight_of_all_runs_stay_within_the_quota(
    tmp_path: Path, database_url: str, settings_of: SettingsOf
) -> None:
    """Three runs of four questions each ask five in all; when the quota is raised, more are asked."""
    async with shared_installation(tmp_path, database_url=database_url) as shared:
        operator, client = await shared.member("operators", Role.OPERATOR), await shared.member("search")
        await limit(shared, "search", CONCURRENT_QUESTIONS=5)
        dataset = await client.upload_dataset(CASES * 1, name="d")
        await asyncio.gather(
            *(client.create_run(settings_of(*WAITING, concurrency=4), dataset.dataset_id) for _ in range(3))
        )
        assert await used(client, Quota.CONCURRENT_QUESTIONS) == 5
        await admin.update_quotas(operator, "search", {Quota.CONCURRENT_QUESTIONS: 50})
        assert await used(client, Quota.CONCURRENT_QUESTIONS) == 4 * 3


async def test_requests_are_admitted_up_to_the_quota_of_all_processes(tmp_path: Path, database_url: str) -> None:
    """Of 60 calls in one minute, at two processes where there are two, 40 are admitted; health is exempt."""
    made: list[TeamRequests] = []

    def admission(database: Any) -> TeamRequests:
        made.append(TeamRequests(database, clock_s=lambda: 1e9))
        return made[-1]

    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(
            shared_installation(tmp_path, database_url=database_url, team_admission=admission)
        )
        await limit(first, "search", REQUESTS_PER_MINUTE=40)
        token = await first.token("search")
        clients = [await first.client(token)]
        if database_url:
            second = await stack.enter_async_context(
                shared_installation(
                    tmp_path,
                    listen=f"unix:{tmp_path}/second.sock",
                    database_url=database_url,
                    team_admission=admission,
                )
            )
            clients.append(await second.client(token))
        found = await asyncio.gather(
            *(clients[number % len(clients)].list_runs() for number in range(60)), return_exceptions=True
        )
        refused = [each for each in found if isinstance(each, OverloadedError)]
        assert {each.reason for each in refused} == {"QUOTA_REACHED"}
        assert all(each.retry_after_s > 0 for each in refused)
        # Each process admits 20 at once, and further ones at the pace of the quota.
        assert 60 - len(refused) in range(20 * len(clients), 41)
        other = await first.member("ads")
        assert await other.list_runs() == []


@pytest.mark.parametrize(
    ("quota", "refused_count", "paced"),
    [
        pytest.param(6_000, 50, [number / 100 for number in range(1, 91)], id="default"),
        pytest.param(60, 130, [1.0], id="one-a-second"),
        pytest.param(5, 145, [], id="few"),
    ],
)
async def test_a_burst_is_paced_and_what_is_beyond_it_refused(
    tmp_path: Path, quota: int, refused_count: int, paced: list[float]
) -> None:
    """Of 150 calls at once some are worked on as they come, a second's worth waits for the pace, others are refused."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with shared_installation(tmp_path) as shared:
        await limit(shared, "search", REQUESTS_PER_MINUTE=quota)
        requests = TeamRequests(shared.database, monotonic_s=lambda: 0.0, clock_s=lambda: 1e9, sleep=sleep)
        found = await asyncio.gather(*(requests.admit("search") for _ in range(150)), return_exceptions=True)
        refused = [each for each in found if isinstance(each, OverloadedError)]
        assert len(refused) == refused_count
        assert all(each.retry_after_s > 0 for each in refused)
        for each in refused:
            assert f"come faster than its quota requests-per-minute allows: {quota:,} a minute" in each.message
            assert f"{quota:,} of" not in each.message
        assert sorted(waits) == pytest.approx(paced)


async def test_a_minute_that_is_used_up_is_said_without_a_count_of_calls(tmp_path: Path) -> None:
    """What processes have taken for a minute is not what they have admitted: the sentence says no other thing."""
    seconds = [0.0]
    async with shared_installation(tmp_path) as shared:
        await limit(shared, "search", REQUESTS_PER_MINUTE=40)
        requests = TeamRequests(shared.database, monotonic_s=lambda: seconds[0], clock_s=lambda: 1e9)
        for _ in range(40):
            await requests.admit("search")
            seconds[0] += 1.5
        said = (await refusal(requests.admit("search"))).message
        assert "its quota requests-per-minute: the 40 of this minute are assigned to the processes" in said


async def test_a_lowered_quota_holds_from_its_own_pace(tmp_path: Path) -> None:
    """What waited for the pace of a higher quota is no debt at that of a lower one, a call in ten seconds here."""
    seconds = [0.0]

    async def sleep(wait_s: float) -> None:
        pass

    async with shared_installation(tmp_path) as shared:
        await limit(shared, "search", REQUESTS_PER_MINUTE=6_000)
        requests = TeamRequests(shared.database, monotonic_s=lambda: seconds[0], clock_s=lambda: 1e9, sleep=sleep)
        await requests.admit("search")
        seconds[0] = KEEP_S - 0.01
        await asyncio.gather(*(requests.admit("search") for _ in range(150)), return_exceptions=True)
        await limit(shared, "search", REQUESTS_PER_MINUTE=6)
        seconds[0] = KEEP_S
        assert (await refusal(requests.admit("search"))).retry_after_s <= 10
        seconds[0] += 10
        await requests.admit("search")


async def test_further_calls_with_a_refused_token_are_refused_before_they_are_looked_at(
    tmp_path: Path,
) -> None:
    """With the same reason and RetryInfo, even one that its role may not make; health and other tokens are served."""
    admission = functools.partial(TeamRequests, monotonic_s=lambda: 0.0, clock_s=lambda: 1e9)
    async with shared_installation(tmp_path, team_admission=admission, refused_s=1_000.0) as shared:
        await limit(shared, "search", REQUESTS_PER_MINUTE=1)
        token = await shared.token("search")
        client, second, other = await shared.client(token), await shared.member("search"), await shared.member("ads")
        assert await client.list_runs() == []
        with pytest.raises(PermissionDeniedError):
            await admin.create_team(client, "mine")
        await refusal(client.list_runs())
        with without_collection():
            refused = await asyncio.gather(
                refusal(admin.create_team(client, "mine")),
                *(refusal(client.get_case("r", "c")) for _ in range(9)),
                *(refusal(anext(aiter(client.watch_run("r")))) for _ in range(9)),
            )
            for _ in range(9):
                with pytest.raises(NotFoundError):
                    await anext(aiter(other.watch_run("r")))
            await waiting.until(calls_in_memory, lambda count: count < 5)
        assert all(0 < each.retry_after_s <= 60 for each in refused)
        async with open_channel(shared.address, ChannelOptions()) as channel:
            health: Any = health_pb2_grpc.HealthStub(channel)
            for _ in range(2):
                assert await health.Check(
                    health_pb2.HealthCheckRequest(), metadata=(("authorization", f"Bearer {token}"),)
                )
        with pytest.raises(PermissionDeniedError):
            await admin.create_team(second, "mine")
