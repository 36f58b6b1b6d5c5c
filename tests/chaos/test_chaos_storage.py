"""Databases that answer and cannot store, that come back to one process before another, and machines that sleep."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.chaos.black_holes import Proxy
from tests.chaos.test_chaos_cluster import in_a_cluster
from tests.support.processes.waiting import until
from tests.support.services.refusals import refuse

from assay.model.run import PauseCause, RunState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.chaos.test_chaos_cluster import InCluster

pytestmark = pytest.mark.chaos


def assert_undisturbed(run: InCluster) -> None:
    """Fail if a question was asked twice or a process ended before it was told to."""
    assert run.verdict.repeated == 0
    assert {name: slot.statuses for name, slot in run.cluster.slots.items()} == {
        name: [0] for name in run.cluster.slots
    }


async def until_shown_paused(run: InCluster) -> None:
    """Wait until the api process shows that the run waits for storage."""

    async def look() -> tuple[RunState, PauseCause | None]:
        async with run.drill.client() as client:
            shown = await client.get_run(run.drill.histories[0].run_id, partial=False)
            return shown.state, shown.pause_cause

    await until(look, lambda seen: seen == (RunState.PAUSED, PauseCause.STORAGE))


@pytest.mark.parametrize("state", ["53100", "53200", "25006", "42501", "55P03", "57014"])
async def test_rows_cannot_be_stored_for_a_while(
    folder: Path, postgres_url: str, undisturbed: Callable[[Any], dict[str, Any]], state: str
) -> None:
    """A full disk, a timeout, a missing right: the api shows it, and the run resumes by itself without a repetition."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        async with in_a_cluster(folder, postgres_url, undisturbed) as run:
            refusal = await refuse(admin, state, "answers", "results")
            await until_shown_paused(run)
            asked = len(run.drill.agent.calls)
            await refusal.until_met(8)
            assert len(run.drill.agent.calls) <= asked + run.drill.plan.concurrency
            await refusal.lift()
    assert_undisturbed(run)


async def test_the_queue_refuses_jobs_for_a_while(
    folder: Path, postgres_url: str, undisturbed: Callable[[Any], dict[str, Any]]
) -> None:
    """The statement that enqueues what follows on a shard fails no run."""
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        async with in_a_cluster(folder, postgres_url, undisturbed) as run:
            refusal = await refuse(admin, "57014", "procrastinate_jobs", change="INSERT")
            await until_shown_paused(run)
            await refusal.lift()
    assert_undisturbed(run)


async def test_one_worker_comes_back_later_than_the_others(
    folder: Path, killable_postgres: Any, undisturbed: Callable[[Any], dict[str, Any]]
) -> None:
    """After a restart of the database a worker that reaches it seconds after the others is not taken for dead."""
    async with Proxy(killable_postgres.port) as proxy:
        later = killable_postgres.url.replace(f":{killable_postgres.port}/", f":{proxy.port}/")
        async with in_a_cluster(folder, killable_postgres.url, undisturbed, urls={"worker1": later}) as run:
            run.cluster.disturbed("database")
            killable_postgres.kill()
            proxy.swallow()
            await proxy.drop()
            await asyncio.to_thread(killable_postgres.start)
            await asyncio.sleep(0.5 * run.cluster.dead_after_s)  # it is the disturbance, nothing is waited for
            proxy.pass_on()
    assert_undisturbed(run)


async def test_all_workers_are_suspended_while_an_api_lives(
    folder: Path, postgres_url: str, undisturbed: Callable[[Any], dict[str, Any]]
) -> None:
    """A machine that sleeps: the api gives their work to others, none takes it, and they continue when they wake up."""
    async with in_a_cluster(folder, postgres_url, undisturbed) as run:
        workers = [name for name in run.cluster.slots if name.startswith("worker")]
        for name in workers:
            run.cluster.send(name, signal.SIGSTOP)
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as admin:

            async def given_back() -> int:
                query = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo' AND attempts > 0"
                row = await (await admin.execute(query)).fetchone()
                return int(row[0]) if row is not None else 0

            await until(given_back, lambda count: count >= len(workers))
        for name in workers:
            run.cluster.send(name, signal.SIGCONT)
    assert {name: run.cluster.slots[name].statuses for name in workers} == {name: [0] for name in workers}
    assert max(Counter(call.key for call in run.drill.agent.calls).values()) <= 2
