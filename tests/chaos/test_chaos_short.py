"""Kills at the moments that matter most; `make chaos` has all of them, and all other disturbances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.chaos.drills import Plan, drilling
from tests.chaos.topologies import OneOrchestrator

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
