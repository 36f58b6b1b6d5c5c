"""Several processes over one PostgreSQL: workers die, stand still and come back as if nothing had been."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.chaos.drills import Plan, drilling
from tests.chaos.topologies import Cluster

from assay_orchestrator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.chaos.drills import Drill

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif("role" not in Settings.__slots__, reason="an orchestrator works alone on its database"),
]

PLAN = Plan(case_count=2400, repeats=1, concurrency=64, embeds=False)  # three shards
FENCED_STATUS = 70


@asynccontextmanager
async def in_a_cluster(folder: Path, url: str, undisturbed: Callable[[Plan], dict[str, Any]]) -> AsyncIterator[Drill]:
    """Yield a drill of a run that goes on; afterwards it has ended and every promise must have been kept."""
    async with drilling(PLAN, folder, Cluster, url) as drill:
        drill.agent.delay_s = 0.03
        drill.topology.start()
        await drill.topology.ready()
        watching = asyncio.ensure_future(drill.watch_to_the_end(await drill.submit()))
        await drill.agent.until_asked(100)
        yield drill
        await watching
        (verdict,) = await drill.conclude()
    assert not verdict.problems
    assert (verdict.lost, verdict.duplicated, verdict.repaid, verdict.unexplained) == (0, 0, 0, 0)
    assert verdict.summary == undisturbed(PLAN)


async def test_nothing_happens(folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]]) -> None:
    """Several workers share a run, and its summary is that of one process, to the last bit."""
    async with in_a_cluster(folder, postgres_url, undisturbed):
        pass


async def test_a_worker_dies_for_good(
    folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """kill -9 of a worker that nobody starts again: the others end what it had."""
    async with in_a_cluster(folder, postgres_url, undisturbed) as drill:
        await drill.topology.lose("worker0")


@pytest.mark.parametrize("victim", ["worker0", "api"])
async def test_a_process_dies_and_is_started_again(
    folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]], victim: str
) -> None:
    """kill -9 of any process, three times."""
    async with in_a_cluster(folder, postgres_url, undisturbed) as drill:
        for time in range(1, 4):
            drill.topology.send(victim, signal.SIGKILL)
            await drill.topology.until_ended(victim, time)
            await drill.agent.until_asked(100 + 400 * time)


async def test_a_worker_stands_still_until_it_counts_as_dead(
    folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """SIGSTOP for twice the time after which others have its work: it takes nothing back from them, and exits."""
    async with drilling(PLAN, folder, Cluster, postgres_url) as drill:
        topology = drill.topology
        assert isinstance(topology, Cluster)
        topology.slots["worker0"].armed.append("agent.after_answer=stop@50")
        topology.start()
        watching = asyncio.ensure_future(drill.watch_to_the_end(await drill.submit()))
        await topology.until_stopped("worker0")
        await asyncio.sleep(2 * topology.dead_after_s)  # it is the disturbance, nothing is waited for
        topology.send("worker0", signal.SIGCONT)
        async with asyncio.timeout(20):
            await topology.until_ended("worker0")
        assert topology.slots["worker0"].statuses == [FENCED_STATUS]
        await watching
        (verdict,) = await drill.conclude()
    assert not verdict.problems
    assert (verdict.lost, verdict.duplicated, verdict.repaid, verdict.unexplained) == (0, 0, 0, 0)
    assert verdict.summary == undisturbed(PLAN)


async def test_every_process_at_once(
    folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """kill -9 of all: what is left is the database, and that is enough."""
    async with in_a_cluster(folder, postgres_url, undisturbed) as drill:
        for name in drill.topology.slots:
            drill.topology.send(name, signal.SIGKILL)


@pytest.mark.parametrize(
    "name", ["shard.start_after_commit", "result.after_commit", "shard.leave_before_commit", "shard.leave_after_commit"]
)
async def test_a_worker_dies_at_a_failpoint(
    folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]], name: str
) -> None:
    """Between taking a shard and giving it up, the other workers go on."""
    async with drilling(PLAN, folder, Cluster, postgres_url) as drill:
        drill.agent.delay_s = 0.01
        for worker in ("worker0", "worker1"):
            drill.topology.slots[worker].armed.append(f"{name}=kill")
        drill.topology.start()
        await drill.topology.ready()
        await drill.watch_to_the_end(await drill.submit())
        (verdict,) = await drill.conclude()
        assert (name, "kill") in drill.topology.passed()
    assert not verdict.problems
    assert (verdict.lost, verdict.duplicated, verdict.repaid, verdict.unexplained) == (0, 0, 0, 0)
    assert verdict.summary == undisturbed(PLAN)
