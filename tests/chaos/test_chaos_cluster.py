"""Several processes over one PostgreSQL: workers die, stand still and come back as if nothing had been."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
import pytest
from tests.chaos.drills import Plan, drilling
from tests.chaos.histories import Verdict
from tests.chaos.topologies import Cluster

from assay_orchestrator.engine.dispatcher import FENCED_STATUS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from tests.chaos.drills import Drill

pytestmark = pytest.mark.chaos

PLAN = Plan(case_count=2400, repeats=1, concurrency=16, embeds=False)  # three shards


@dataclass(slots=True)
class InCluster:
    """A run that goes on in a cluster.

    Args:
        drill: The run and its processes.
        cluster: The processes.
        hosting: The clients that answer its questions, where clients do.
        verdict: What became of it, once it has ended.
    """

    drill: Drill
    cluster: Cluster
    hosting: list[asyncio.Task[None]]
    verdict: Verdict = field(default_factory=Verdict)


@asynccontextmanager
async def in_a_cluster(
    folder: Path,
    url: str,
    undisturbed: Callable[[Plan], dict[str, Any]],
    hosts: Sequence[slice] = (),
    **of_cluster: Any,
) -> AsyncIterator[InCluster]:
    """Yield a run that goes on; afterwards it has ended and every promise must have been kept.

    Args:
        folder: An empty one.
        url: Of an empty database.
        undisturbed: Gives the summary that must come out.
        hosts: Which of the processes that take runs each client that hosts the agent knows; none for an http agent.
        of_cluster: Arguments of Cluster.
    """
    async with drilling(PLAN, folder, Cluster, url, **of_cluster) as drill:
        cluster = drill.topology
        assert isinstance(cluster, Cluster)
        drill.agent.delay_s = 0.03
        cluster.start()
        await cluster.ready()
        history = await drill.submit(hosted=bool(hosts))
        addresses = [cluster.addresses[known] for known in hosts]
        hosting = [asyncio.create_task(drill.host(history, "ipv4:" + ",".join(known))) for known in addresses]
        watching = asyncio.create_task(drill.watch_to_the_end(history))
        await drill.agent.until_asked(100)
        run = InCluster(drill, cluster, hosting)
        yield run
        await watching
        await asyncio.gather(*hosting)
        (run.verdict,) = await drill.conclude()
    verdict = run.verdict
    assert not verdict.problems
    assert (verdict.lost, verdict.duplicated, verdict.repaid, verdict.unexplained) == (0, 0, 0, 0)
    assert verdict.summary == undisturbed(PLAN)


async def tell_to_stop(cluster: Cluster, name: str) -> None:
    """Send a process SIGTERM, and wait until it has ended in good order; nobody takes its place."""
    cluster.slots[name].restarts = False
    cluster.send(name, signal.SIGTERM)
    async with asyncio.timeout(20):
        await cluster.until_ended(name)
    assert cluster.slots[name].statuses == [0]


async def test_nothing_happens(folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]]) -> None:
    """Several workers share a run, and its summary is that of one process, to the last bit."""
    async with in_a_cluster(folder, postgres_url, undisturbed):
        pass


async def test_a_worker_dies_for_good(
    folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """kill -9 of a worker that nobody starts again: the others end what it had."""
    async with in_a_cluster(folder, postgres_url, undisturbed) as run:
        await run.cluster.lose("worker0")


@pytest.mark.parametrize("victim", ["worker0", "api"])
async def test_a_process_dies_and_is_started_again(
    folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]], victim: str
) -> None:
    """kill -9 of any process, three times."""
    async with in_a_cluster(folder, postgres_url, undisturbed) as run:
        for time in range(1, 4):
            run.cluster.send(victim, signal.SIGKILL)
            await run.cluster.until_ended(victim, time)
            await run.drill.agent.until_asked(100 + 400 * time)


async def test_a_worker_stands_still_until_it_counts_as_dead(
    folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """SIGSTOP until others have long had its work: it asks and stores nothing more, and exits."""
    async with drilling(PLAN, folder, Cluster, postgres_url) as drill:
        topology = drill.topology
        assert isinstance(topology, Cluster)
        topology.slots["worker0"].armed.append("agent.after_answer=stop@50")
        topology.start()
        history = await drill.submit()
        watching = asyncio.ensure_future(drill.watch_to_the_end(history))
        await topology.until_stopped("worker0")
        await until_others_have_a_shard(postgres_url)
        drill.agent.delay_s = 1.0  # its rows take a minute now: it wakes up while they are in other hands
        await asyncio.sleep(topology.dead_after_s)  # it is the disturbance, nothing is waited for
        asked = ("agent.before_call", "-")
        begun = topology.passed().count(asked)
        topology.send("worker0", signal.SIGCONT)
        async with asyncio.timeout(60):
            await topology.until_ended("worker0")
        drill.agent.delay_s = 0.0
        assert topology.slots["worker0"].statuses == [FENCED_STATUS]
        assert topology.passed().count(asked) == begun
        history.woken.append(topology.last_moments("worker0"))
        await watching
        (verdict,) = await drill.conclude()
    assert not verdict.problems
    assert (verdict.lost, verdict.duplicated, verdict.repaid, verdict.unexplained) == (0, 0, 0, 0)
    assert verdict.summary == undisturbed(PLAN)


async def test_a_worker_stands_still_in_its_first_transaction(
    folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """However young it is, others end its sessions: what it was storing stays locked for nobody."""
    async with drilling(PLAN, folder, Cluster, postgres_url) as drill:
        topology = drill.topology
        assert isinstance(topology, Cluster)
        topology.slots["worker0"].armed.append("shard.start_before_commit=stop@1")
        topology.start()
        history = await drill.submit()
        watching = asyncio.ensure_future(drill.watch_to_the_end(history))
        await topology.until_stopped("worker0")
        await watching
        assert any("ended database sessions of dead workers" in topology.log_of(name) for name in topology.slots)
        topology.send("worker0", signal.SIGCONT)
        history.woken.append(topology.last_moments("worker0"))
        (verdict,) = await drill.conclude()
    assert not verdict.problems
    assert (verdict.lost, verdict.duplicated, verdict.repaid, verdict.unexplained) == (0, 0, 0, 0)
    assert verdict.summary == undisturbed(PLAN)


async def until_others_have_a_shard(url: str) -> None:
    """Wait until a shard has been taken from the process that had it."""
    async with asyncio.timeout(60), await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while True:
            if (await connection.execute("SELECT 1 FROM shards WHERE epoch > 1")).rowcount:
                return
            await asyncio.sleep(0.1)


async def test_every_process_at_once(
    folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """kill -9 of all: what is left is the database, and that is enough."""
    async with in_a_cluster(folder, postgres_url, undisturbed) as run:
        for name in run.cluster.slots:
            run.cluster.send(name, signal.SIGKILL)


@pytest.mark.parametrize(("delay_s", "repeats"), [(0.03, False), (8.0, True)], ids=["finished", "handed over"])
async def test_a_worker_is_told_to_stop(
    folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]], delay_s: float, repeats: bool
) -> None:
    """Questions in flight are answered, or given up within the grace period; another one goes on at once."""
    never = ("--reconcile-s", "1000", "--grace-s", "2")  # the run would last too long if anybody had to be thought dead
    async with in_a_cluster(folder, postgres_url, undisturbed, dead_after_s=1000.0, more=never) as run:
        run.drill.agent.delay_s = delay_s
        await run.drill.agent.until_asked(len(run.drill.agent.calls) + PLAN.concurrency)
        await tell_to_stop(run.cluster, "worker0")
        run.drill.agent.delay_s = 0.03
    assert bool(run.verdict.repeated) == repeats


async def test_the_process_that_a_host_is_attached_to_dies(
    folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """kill -9 for good: the client attaches to another one, and answers what was in flight without its agent."""
    either = [slice(0, 2)]
    async with in_a_cluster(folder, postgres_url, undisturbed, either, apis=2, workers=1) as run:
        await run.cluster.lose("api0")
    assert run.verdict.repeated == 0


async def test_the_process_that_a_host_is_attached_to_is_told_to_stop(
    folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """SIGTERM: the client answers what it was asked, then attaches to another one, and is asked nothing twice."""
    either = [slice(0, 2)]
    async with in_a_cluster(folder, postgres_url, undisturbed, either, apis=2, workers=1) as run:
        run.drill.agent.delay_s = 0.3
        await run.drill.agent.until_asked(len(run.drill.agent.calls) + PLAN.concurrency)
        await tell_to_stop(run.cluster, "api0")
        run.drill.agent.delay_s = 0.01
    assert run.verdict.repeated == 0


async def test_two_hosts_at_two_processes(
    folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """Both answer questions of one run, and none is asked twice."""
    each = [slice(0, 1), slice(1, 2)]
    async with in_a_cluster(folder, postgres_url, undisturbed, each, apis=2, workers=1) as run:
        pass
    assert run.verdict.repeated == 0
    assert len(run.drill.asked_through) == 2
    assert run.drill.asked_through.total() == PLAN.case_count


@pytest.mark.parametrize(("status", "workers"), [("todo", 1), ("doing", 3)])
@pytest.mark.parametrize(
    "change",
    ["DELETE FROM procrastinate_jobs", "UPDATE procrastinate_jobs SET status = 'succeeded'"],
    ids=["deleted", "succeeded"],
)
async def test_somebody_changes_the_queue(
    folder: Path,
    postgres_url: str,
    undisturbed: Callable[[Plan], dict[str, Any]],
    change: LiteralString,
    status: LiteralString,
    workers: int,
) -> None:
    """A job is only a hint: without it, or when it claims to be done, every row still gets its one result."""
    often = ("--reconcile-s", "1")
    async with in_a_cluster(folder, postgres_url, undisturbed, workers=workers, more=often) as run:
        run.drill.histories[0].late_s = 5.0  # whoever had the shard goes on until another one has it
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
            run.cluster.disturbed("queue")
            changed = await connection.execute(change + " WHERE status = %s::procrastinate_job_status", (status,))
            assert changed.rowcount >= 1


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
