"""Kills around the decision that stops two runs early: it depends on the rows alone, not on who stores it."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import uuid
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.chaos.drills import Plan, drilling
from tests.chaos.outer_services import CountingAgent, answer_text
from tests.chaos.topologies import Cluster, OneOrchestrator, open_engine

from assay.client.encoded_cases import EncodedCases
from assay.comparison.stopping import first_stop, shuffled
from assay.comparison.stopping_settings import plan_of
from assay.model.run import RunState
from assay.model.stopping import StoppingSettings
from assay_orchestrator.store.rows import results, stops

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.chaos.drills import Drill

    from assay.client.client import Client
    from assay.comparison.stopping import Stop
    from assay.model.run import Run

pytestmark = pytest.mark.chaos

CASES = 200
PLAN = Plan(case_count=CASES, repeats=1, embeds=False)
STOPPING = StoppingSettings("always-valid", "exact_match", ("old", "new"), CASES, seed=3, low=0.0, high=1.0)
KILLS = ("early_stop.before_commit", "early_stop.after_commit")


def worse(question: str) -> str:
    """Return the answer of an agent that does not know every second question."""
    return answer_text(question) if hashlib.sha256(question.encode()).digest()[-1] % 2 else "no"


def decided() -> Stop | None:
    """Return the decision from the answers of both agents to all cases."""
    cases = PLAN.cases()
    order = shuffled([case.case_id for case in cases], STOPPING.seed)
    asked = [cases[place] for place in order]
    pairs = [(float(worse(case.input) in case.references), float(answer_text(case.input) in case.references))
             for case in asked]  # fmt: skip
    return first_stop(plan_of(STOPPING, 1), list(pairs))


async def submit(drill: Drill, urls: dict[str, str]) -> list[str]:
    """Create both runs and return their ids."""
    found = []
    for variant, url in urls.items():
        settings = dataclasses.replace(
            PLAN.settings({"adapter": "http", "target": url}),
            group_id="g",
            labels={"variant": variant},
            stopping=STOPPING,
        )
        request_id = str(uuid.uuid4())

        async def once(client: Client, settings=settings, request_id=request_id) -> Run:  # type: ignore[no-untyped-def]
            with EncodedCases() as cases:
                for case in PLAN.cases():
                    cases.add(case)
                with cases.shuffled(STOPPING.seed) as ordered:
                    dataset = await ordered.upload(client, name="chaos")
            return await client.create_run(settings, dataset.dataset_id, request_id=request_id)

        found.append((await drill.insist(once)).run_id)
    return found


@pytest.mark.parametrize("kills", [(name,) for name in KILLS] + [KILLS], ids=["before", "after", "both"])
async def test_a_kill_moves_no_decision(folder: Path, database_url: str, kills: tuple[str, ...]) -> None:
    """Killed before or after the stop is stored, the runs end with the stop that their rows have in any case."""
    async with CountingAgent(reply=worse) as old, drilling(PLAN, folder, OneOrchestrator, database_url) as drill:
        drill.topology.slots["orchestrator"].armed += [f"{name}=kill" for name in kills]
        drill.topology.start()
        run_ids = await submit(drill, {"old": old.url, "new": drill.agent.url})
        ended = [await drill.watch_to_the_end(drill.follow(run_id)) for run_id in run_ids]
        assert not await drill.topology.stop()
        assert [name for name, action in drill.topology.passed() if action == "kill"] == list(kills)
    check_stopped(drill, old, run_ids, ended, kill_count=len(kills))


@pytest.mark.parametrize("name", KILLS)
async def test_the_worker_that_decides_is_killed(folder: Path, postgres_url: str, name: str) -> None:
    """Two workers finish rows of both runs at once, and the one that finds the stop is killed: the stop is the same."""
    async with (
        CountingAgent(reply=worse) as old,
        drilling(PLAN, folder, Cluster, postgres_url, dead_after_s=2.0) as drill,
    ):
        for worker in ("worker0", "worker1"):
            drill.topology.slots[worker].armed.append(f"{name}=kill")
        drill.topology.start()
        run_ids = await submit(drill, {"old": old.url, "new": drill.agent.url})
        ended = [await drill.watch_to_the_end(drill.follow(run_id)) for run_id in run_ids]
        assert not await drill.topology.stop()
        assert (name, "kill") in drill.topology.passed()
    check_stopped(drill, old, run_ids, ended, kill_count=2)


def check_stopped(
    drill: Drill, old: CountingAgent, run_ids: Sequence[str], ended: Sequence[Run], *, kill_count: int
) -> None:
    """Fail unless both runs have stopped by the decision of their rows, with these rows and no repeated question."""
    expected = decided()
    assert expected is not None
    assert [run.state for run in ended] == [RunState.COMPLETED] * 2
    engine = open_engine(drill.topology)
    with engine.begin() as connection:
        assert [stops.read_stop(connection, run_id) for run_id in run_ids] == [expected] * 2
        stored = [list(results.read_all(connection, run_id)) for run_id in run_ids]
    engine.dispose()
    for run, rows, agent in zip(ended, stored, (old, drill.agent), strict=True):
        assert len(rows) == run.counts.total_count == run.counts.finished_count < CASES
        assert {row.case_index for row in rows} >= set(range(expected.cases))
        asked = Counter(re.sub(r"#.*", "", call.key) for call in agent.calls)
        assert max(asked.values()) <= 1 + kill_count, "a kill alone repeats a question"
        assert len(asked) < CASES
