from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes.waiting import until

from assay.judge.v1 import judge_pb2 as pb
from assay.judge.v1 import judge_pb2_grpc
from assay.rpc.channel import open_channel, wait_for_ready
from assay.testing.judges import says
from assay.testing.providers import Reply, ScriptedProvider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.processes.fork_server import ForkServer

GOOD = {"reasoning": "It is right.", "score": 4}
HALF_PRICE = 0.000975
LEAST_RESERVED = 0.004  # of one request: its reply may have 2,048 tokens
COUNT = 20
both_protocols = pytest.mark.parametrize("protocol", ["openai", "anthropic"])


@asynccontextmanager
async def judge_process(
    judges: ForkServer,
    folder: Path,
    provider: ScriptedProvider,
    protocol: str,
    failpoints: str = "",
    database_url: str = "",
) -> AsyncIterator[tuple[Any, Any]]:
    """A judge process with its state in a folder, and a client of it; it is killed in the end."""
    (folder / "prices.yaml").write_text("prices: [{model: '*', input: 1, output: 5}]")
    socket = folder / "judge.sock"
    url = provider.openai_url if protocol == "openai" else provider.url
    flags = {
        "listen": f"unix:{socket}", "provider": protocol, "model": "judge-1", "base-url": url,
        "batch-base-urls": "http://127.0.0.1:*", "state-dir": folder / "state", "prices": folder / "prices.yaml",
        "batch-wait-s": 5, "batch-requests": COUNT, "batch-poll-s": 0.1,
    }  # fmt: skip
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    variables = {"ASSAY_DATABASE_URL": database_url, "ASSAY_FAILPOINTS": failpoints}
    with (folder / "judge.log").open("ab") as log:
        streams = (0, log.fileno(), log.fileno())
        process = judges.start(arguments, folder=folder, environment={**os.environ, **variables}, streams=streams)
        try:
            async with open_channel(f"unix:{socket}") as channel:
                await wait_for_ready(
                    channel, "assay.judge.v1.JudgeService", 60
                )  # also after a connection to one killed before
                yield judge_pb2_grpc.JudgeServiceStub(channel), process
        finally:
            process.kill()
            process.wait()


async def ask_all(stub: Any, timeout_ms: int) -> list[pb.Verdict]:
    """Ask for all verdicts one after the other, each with so much patience."""
    verdicts = []
    for index in range(COUNT):
        request = pb.GradeRequest(rubric="quality", question="q", answer=f"answer {index}", run_id="r", batch=True,
                                  spend_cap_usd=1.0, timeout_ms=timeout_ms)  # fmt: skip
        verdicts.append((await stub.Grade(request, timeout=180, wait_for_ready=True)).verdict)
    return verdicts


async def spent(stub: Any) -> tuple[float, float]:
    request = pb.GradeRequest(rubric="quality", question="q", answer="", run_id="r")
    spending = (await stub.Grade(request, timeout=180, wait_for_ready=True)).spending
    return spending.spent_usd, spending.reserved_usd


async def all_submitted(provider: ScriptedProvider, stub: Any, count: int = COUNT) -> None:
    """Wait until so many requests were submitted; one that is lost, or one too many, fails."""

    async def submitted() -> int:
        found = sum(map(len, provider.batches.submitted))
        reserved = (await spent(stub))[1]
        assert reserved >= (count - found) * LEAST_RESERVED, "an order was lost: its money is not set aside"
        return found

    assert await until(submitted, lambda found: found >= count) == count


async def looked(provider: ScriptedProvider) -> None:
    """Wait until the judge knows the number of its batch: it has looked at it."""
    await until(lambda: provider.batches.looked, lambda times: times >= 2)


async def order_all_and_be_killed(
    judges: ForkServer, folder: Path, provider: ScriptedProvider, protocol: str, database_url: str = ""
) -> None:
    """Order all verdicts from a process, which is killed while their batch is out."""
    provider.batches.is_held = True
    async with judge_process(judges, folder, provider, protocol, database_url=database_url) as (stub, process):
        assert {verdict.reason for verdict in await ask_all(stub, 1)} == {"batch_pending"}
        await all_submitted(provider, stub)
        await looked(provider)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


async def check_the_rest(
    judges: ForkServer, folder: Path, provider: ScriptedProvider, protocol: str, database_url: str = ""
) -> None:
    """Ask another process for all verdicts: each comes from what is out already, and is paid for once."""
    submitted = len(provider.batches.submitted)
    async with judge_process(judges, folder, provider, protocol, database_url=database_url) as (stub, _):
        _, reserved = await spent(stub)
        assert reserved > 0
        assert {verdict.reason for verdict in await ask_all(stub, 1)} == {"batch_pending"}
        provider.batches.is_held = False
        verdicts = await ask_all(stub, 30_000)
        assert all(dict(verdict.scores) == {"score": 4.0} for verdict in verdicts)
        assert all(verdict.usage.cost_usd == pytest.approx(HALF_PRICE, abs=1e-12) for verdict in verdicts)
        paid, reserved = await spent(stub)
        assert (round(paid, 9), reserved) == (round(COUNT * HALF_PRICE, 9), 0)
        assert all(verdict.cached for verdict in await ask_all(stub, 1))
    assert len(provider.batches.submitted) == submitted
    assert len(provider.batches.paid) == len(set(provider.batches.paid)) == COUNT


@pytest.mark.parametrize("shared", [False, True])
async def test_no_verdict_is_paid_twice_when_the_judge_is_killed(
    judges: ForkServer, tmp_path: Path, postgres_url: str, shared: bool
) -> None:
    """kill -9 while a batch is out: the next process looks after it, callers join it, the sums are right.

    Where replicas share their books, what the killed process had set aside is found there by the next one.
    """
    url = postgres_url if shared else ""
    with ScriptedProvider(says(GOOD)) as provider:
        await order_all_and_be_killed(judges, tmp_path, provider, "openai", url)
        await check_the_rest(judges, tmp_path, provider, "openai", url)


@both_protocols
async def test_a_kill_between_submission_and_its_record_pays_nothing_twice(
    judges: ForkServer, tmp_path: Path, protocol: str
) -> None:
    """The provider has the batch and the store does not know: it is found by its mark, or by its requests."""
    with ScriptedProvider(says(GOOD)) as provider:
        await order_all_and_be_killed(judges, tmp_path, provider, protocol)
        with sqlite3.connect(tmp_path / "state" / "judge.db") as database:
            assert database.execute("UPDATE judge_batches SET provider_id = ''").rowcount >= 1
        database.close()
        await check_the_rest(judges, tmp_path, provider, protocol)


async def test_a_kill_before_the_submission_loses_no_order(judges: ForkServer, tmp_path: Path) -> None:
    """An order is on disk before its caller hears that it waits; the next process submits it.

    The last order takes 2 s to be stored, its caller has 1 ms, and the process is killed when the caller has its
    answer.
    """
    with ScriptedProvider(says(GOOD)) as provider:
        provider.batches.refusals = [Reply("not now", status=503)] * 100_000
        slow = f"judge.order_before_commit=delay:2@{COUNT}"
        async with judge_process(judges, tmp_path, provider, "openai", slow) as (stub, process):
            assert {verdict.reason for verdict in await ask_all(stub, 1)} == {"batch_pending"}
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert provider.batches.submitted == []
        with closing(sqlite3.connect(tmp_path / "state" / "judge.db")) as database:
            assert database.execute("SELECT count(*) FROM judge_orders").fetchone() == (COUNT,)
        provider.batches.refusals = []
        provider.batches.is_held = True
        await check_the_rest_was_submitted(judges, tmp_path, provider)


async def check_the_rest_was_submitted(judges: ForkServer, folder: Path, provider: ScriptedProvider) -> None:
    async with judge_process(judges, folder, provider, "openai") as (stub, _):
        await all_submitted(provider, stub)
        provider.batches.is_held = False
        verdicts = await ask_all(stub, 30_000)
    assert all(dict(verdict.scores) == {"score": 4.0} for verdict in verdicts)
    assert len(provider.batches.paid) == COUNT


async def test_results_that_came_while_nobody_ran_are_fetched(judges: ForkServer, tmp_path: Path) -> None:
    """The batch ends while the judge is away; an outcome that is no verdict waits on disk for whoever ordered it."""

    def script(request: Any) -> Reply:
        return Reply("no", status=400) if "answer 7\n" in request.question else says(GOOD)(request)

    with ScriptedProvider(script) as provider:
        await order_all_and_be_killed(judges, tmp_path, provider, "openai")
        provider.batches.is_held = False
        async with judge_process(judges, tmp_path, provider, "openai") as (stub, process):
            await until(lambda: spent(stub), lambda seen: not seen[1])
            assert len(provider.batches.paid) == COUNT - 1
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        async with judge_process(judges, tmp_path, provider, "openai") as (stub, _):
            verdicts = await ask_all(stub, 5_000)
        assert [verdict.reason for verdict in verdicts if verdict.reason] == ["judge_refuses_request"]
        assert all(verdict.usage.HasField("cost_usd") for verdict in verdicts)
    assert len(provider.batches.paid) == COUNT - 1
    assert json.dumps(GOOD) not in (tmp_path / "judge.log").read_text()
