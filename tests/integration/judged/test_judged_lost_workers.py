"""A worker that is killed while it holds a part of its team's quota: another one ends the run, within the quota."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from tests.support.processes import waiting
from tests.support.services.held_amounts import held_by
from tests.support.services.shared_installation import shared_installation

from assay.client import admin
from assay.identity.quotas import Quota
from assay.judge.v1 import judge_pb2_grpc
from assay.model.run import PauseCause, RunState
from assay.rpc.channel import open_channel
from assay.storage.times import now
from assay.testing.judges import says
from assay_orchestrator.runs.planner import Planner
from assay_orchestrator.store import schema
from assay_orchestrator.store.teams import allotments, quotas
from assay_orchestrator.store.teams.allotments import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.judged.conftest import Stage
    from tests.support.processes.fork_server import Process
    from tests.support.services.shared_installation import SharedInstallation

    from assay.client.client import Client
    from assay.model.case import Case
    from assay.testing.providers import ProviderRequest, Reply

    SetUp = Callable[..., Stage]
    CaseOf = Callable[..., Case]

ROWS = 8
ANSWERED = 3
EACH = 1_350
"""Tokens of a verdict, which is asked for with room for two turns of 9,000."""
TOKENS = 36_000
"""Enough for all rows, but not beside what a lost worker holds."""


class Held:
    """A judge's model that keeps one call waiting, and so the worker that asks."""

    def __init__(self) -> None:
        self.is_asked, self.go = threading.Event(), threading.Event()
        self._count = 0

    def __call__(self, request: ProviderRequest) -> Reply:
        """Answer, the one call when it may."""
        self._count += 1
        if self._count == ANSWERED + 1:
            self.is_asked.set()
            self.go.wait(30)
        return says({"reasoning": "It is right.", "score": 4})(request)


@contextmanager
def worker(stage: Stage, name: str, database_url: str) -> Iterator[Process]:
    """Run a worker process, which is killed at the end of the block at the latest."""
    options = {
        "role": "worker",
        "listen": f"unix:{stage.folder}/{name}.sock",
        "database-url": database_url,
        "judge": f"unix:{stage.folder}/j.sock",
        "dead-after-s": "2",
    }
    with ExitStack() as stack:
        log = stack.enter_context((stage.folder / f"{name}.log").open("ab"))
        arguments = [part for option, value in options.items() for part in (f"--{option}", value)]
        started = stage.forks.start(arguments, folder=stage.folder, streams=(0, log.fileno(), log.fileno()))
        try:
            yield started
        finally:
            started.kill()
            started.wait()


async def spent(client: Client) -> int:
    """Return how many tokens are stored as spent."""
    (usage,) = await admin.list_team_usage(client)
    return usage.used[Quota.TOKENS_PER_DAY]


async def held(shared: SharedInstallation) -> allotments.Amount:
    """Return what the team's allotments hold."""
    return await shared.database.read(held_by("search"))


async def test_what_a_killed_worker_held_is_free_after_its_lease(
    postgres_url: str, set_up: SetUp, case_of: CaseOf
) -> None:
    """Until the lease ends the run pauses rather than pass the quota; then another worker ends it, within the quota."""
    model = Held()
    stage = set_up(model)
    settings = stage.settings(adapter="replay")
    settings = dataclasses.replace(settings, agent=dataclasses.replace(settings.agent, concurrency=1))
    changes: dict[str, Any] = {"database_url": postgres_url, "role": "api", "judge": f"unix:{stage.folder}/j.sock"}
    async with stage.judge(database_url=postgres_url), open_channel(f"unix:{stage.folder}/j.sock") as channel:
        judge = judge_pb2_grpc.JudgeServiceStub(channel)
        installation = shared_installation(
            stage.folder, planner=lambda settings: Planner(settings, None, judge), **changes
        )
        async with installation as shared:
            await shared.database.write(lambda c: quotas.set_quotas(c, "search", {Quota.TOKENS_PER_DAY: TOKENS}))
            client = await shared.member("search")
            with worker(stage, "first", postgres_url) as first:
                run = await stage.create(client, settings, [case_of(row, f"answer {row}") for row in range(ROWS)])
                assert await asyncio.to_thread(model.is_asked.wait, 60)
                await waiting.until(lambda: spent(client), lambda tokens: tokens >= ANSWERED * EACH)
                first.kill()
                first.wait()
            model.go.set()
            lost = await held(shared)
            assert lost.tokens > EACH
            assert await spent(client) + lost.tokens <= TOKENS
            with worker(stage, "second", postgres_url):
                paused = await stage.until(client, run, RunState.PAUSED, RunState.COMPLETED)
                assert (paused.state, paused.pause_cause) == (RunState.PAUSED, PauseCause.QUOTA)
                assert paused.counts.finished_count < ROWS
                # A minute passes.
                await shared.database.write(lambda c: c.execute(schema.allotments.update().values(expires_at=now())))
                await client.resume_run(run.run_id)
                done = await stage.until(client, run, RunState.COMPLETED, RunState.PAUSED)
                assert (done.state, done.counts.passed_count) == (RunState.COMPLETED, ROWS)
                await waiting.until(lambda: held(shared), lambda amount: amount == NOTHING)
            # Calls in flight when the worker was killed may have been paid and are in no account: the lease held them.
            paid = len(stage.provider.requests) * EACH
            assert paid - lost.tokens <= await spent(client) <= paid <= TOKENS
