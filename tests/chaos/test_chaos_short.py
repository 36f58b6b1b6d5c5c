"""Kills at the moments that matter most; `make chaos` has all of them, and all other disturbances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.chaos.drills import Plan, drilling
from tests.chaos.topologies import Cluster, OneOrchestrator

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KILLS = {
    "sqlite": ("run.after_commit", "answer.after_commit", "result.before_commit", "summary.before_commit"),
    "postgres": ("agent.after_answer", "result.after_commit", "shard.leave_before_commit"),
}


async def test_nothing_is_lost_repeated_or_paid_for_twice(
    folder: Path, database_url: str, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """Killed before and after each commit that counts, a run ends as if nothing had happened."""
    plan = Plan()
    kills = KILLS["postgres" if database_url else "sqlite"]
    async with drilling(plan, folder, OneOrchestrator, database_url) as drill:
        drill.topology.slots["orchestrator"].armed += [f"{name}=kill" for name in kills]
        drill.topology.start()
        await drill.watch_to_the_end(await drill.submit())
        (verdict,) = await drill.conclude()
        assert [name for name, action in drill.topology.passed() if action == "kill"] == list(kills)
    assert not verdict.problems
    assert (verdict.lost, verdict.duplicated, verdict.repaid, verdict.unexplained) == (0, 0, 0, 0)
    assert verdict.summary == undisturbed(plan)


async def test_a_worker_that_is_killed_is_replaced(
    folder: Path, postgres_url: str, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """kill -9 of whichever worker has the run: another one ends it, as if nothing had happened."""
    plan = Plan()
    async with drilling(plan, folder, Cluster, postgres_url, dead_after_s=2.0) as drill:
        for worker in ("worker0", "worker1"):
            drill.topology.slots[worker].armed.append("result.after_commit=kill@2")
        drill.topology.start()
        await drill.watch_to_the_end(await drill.submit())
        (verdict,) = await drill.conclude()
        assert ("result.after_commit", "kill") in drill.topology.passed()
    assert not verdict.problems
    assert (verdict.lost, verdict.duplicated, verdict.repaid, verdict.unexplained) == (0, 0, 0, 0)
    assert verdict.summary == undisturbed(plan)
