"""Verdicts of a team with a quota of money or tokens: its runs pause before one that could pass it."""

from __future__ import annotations

import dataclasses
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support.services.shared_installation import SharedInstallation, shared_installation

from assay.client import admin
from assay.identity.quotas import Quota
from assay.judge.v1 import judge_pb2_grpc
from assay.model.run import PauseCause, RunState
from assay.rpc.channel import open_channel
from assay_orchestrator.runs.planner import Planner
from assay_orchestrator.store.teams import quotas

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.integration.judged.conftest import Stage

    from assay.client.client import Client
    from assay.model.case import Case
    from assay.model.run import Run

    SetUp = Callable[..., Stage]
    CaseOf = Callable[..., Case]

RUNS = 3
MONEY = 45_000_000
"""In billionths of a dollar: some fifteen verdicts of 0.00195 dollars, each of which might cost eight times as much."""
TOKENS = 36_000
"""Some ten verdicts of 1,350 tokens, each of which is asked for with room for two turns of 9,000."""


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a database without rows, empty for a file."""
    return str(request.getfixturevalue("postgres_url")) if request.param == "postgres" else ""


@asynccontextmanager
async def installations(stage: Stage, database_url: str) -> AsyncIterator[list[SharedInstallation]]:
    """Serve a judge, and one orchestrator, or two where the database is shared."""
    address = f"unix:{stage.folder}/j.sock"
    judge = {"database_url": database_url, "batch_base_urls": ("*",), "batch_wait_s": 0.1, "batch_poll_s": 0.05}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(stage.judge(**judge))
        channel = await stack.enter_async_context(open_channel(address))
        stub = judge_pb2_grpc.JudgeServiceStub(channel)
        served = [
            await stack.enter_async_context(
                shared_installation(
                    stage.folder,
                    listen=f"unix:{stage.folder}/{number}.sock",
                    planner=lambda settings: Planner(settings, None, stub),
                    database_url=database_url,
                    judge=address,
                )
            )
            for number in range(2 if database_url else 1)
        ]
        yield served


async def limit(shared: SharedInstallation, quota: Quota, amount: int) -> None:
    """Set a quota of the team."""
    await shared.database.write(lambda c: quotas.set_quotas(c, "search", {quota: amount}))


async def spent(client: Client, quota: Quota) -> int:
    """Return what is stored as spent."""
    (usage,) = await admin.list_team_usage(client)
    return usage.used[quota]


@pytest.mark.parametrize(
    ("quota", "amount", "each", "rows"),
    [
        pytest.param(Quota.MONEY_PER_MONTH, MONEY, 1_950_000, 10, id="money"),
        pytest.param(Quota.MONEY_PER_MONTH, MONEY // 3, 975_000, 6, id="batch"),
        pytest.param(Quota.TOKENS_PER_DAY, TOKENS, 1_350, 10, id="tokens"),
    ],
)
async def test_verdicts_cost_no_more_than_the_quota(
    quota: Quota, amount: int, each: int, rows: int, database_url: str, set_up: SetUp, case_of: CaseOf
) -> None:
    """Three runs at two workers pause before the quota is passed; what the provider was paid is what is stored.

    With more in the quota all of them end, and nothing is held any more.
    """
    stage = set_up()
    settings = stage.settings(adapter="replay", judge=stage.who(canary_rate=0.0, batch=rows < 10))
    settings = dataclasses.replace(settings, agent=dataclasses.replace(settings.agent, concurrency=4))

    preflight = 9 if quota is Quota.TOKENS_PER_DAY else 13_000  # of 8 tokens read and 1 written

    def paid() -> int:
        verdicts = len(stage.provider.batches.paid) + len(stage.provider.requests)
        return verdicts * each + len(stage.provider.preflights) * preflight

    async with installations(stage, database_url) as served:
        await limit(served[0], quota, amount)
        token = await served[0].token("search")
        clients = [await one.client(token) for one in served]
        runs: list[Run] = []
        for number in range(RUNS):
            cases = [case_of(row, f"answer {number} {row}") for row in range(rows)]
            runs.append(await stage.create(clients[number % len(clients)], settings, cases))
        ended = [await stage.until(clients[0], run, RunState.PAUSED, RunState.COMPLETED) for run in runs]
        paused = [run for run in ended if run.state is RunState.PAUSED]
        assert {run.pause_cause for run in paused} == {PauseCause.QUOTA}
        assert f"too little left of its quota {quota.value} for the next call" in paused[0].state_message
        assert preflight < paid() <= amount  # how close they come depends on which of them hold reservations at once
        await limit(served[0], quota, 10**12)
        for run in paused:
            await clients[0].resume_run(run.run_id)
        for run in runs:
            done = await stage.until(clients[0], run, RunState.COMPLETED, RunState.FAILED)
            assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, rows)
        assert paid() == RUNS * rows * each + preflight
        assert await spent(clients[0], quota) == paid()
