"""Operators at two processes at once, and an agent that breaks the rules of HTTP, while processes are killed."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from tests.chaos.drills import PATIENCE_S, Plan, drilling
from tests.chaos.outer_services import answer_text
from tests.chaos.topologies import Cluster, OneOrchestrator, open_engine

from assay.client.client import Client
from assay.errors import WrongStateError
from assay_orchestrator.store import schema

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.drills import Drill

pytestmark = pytest.mark.chaos

PLAN = Plan(case_count=1500, repeats=1, concurrency=16, embeds=False, error_every=9)
OPERATIONS_EACH = 25


async def operate(drill: Drill, run_id: str, address: str, dice: random.Random, done: Counter[str]) -> None:
    """Pause, resume and retry a run at one process, at moments that follow from the dice; count what was done."""
    async with Client(address, patience_s=PATIENCE_S) as client:
        await client.wait_for_ready(PATIENCE_S)
        for _ in range(OPERATIONS_EACH):
            await drill.agent.until_asked(min(len(drill.agent.calls) + dice.randrange(20), PLAN.case_count // 2))
            with suppress(WrongStateError):  # such as a retry while the run is running
                match dice.randrange(3):
                    case 0:
                        await client.pause_run(run_id)
                        done["pause"] += 1
                    case 1:
                        await client.resume_run(run_id)
                        done["resume"] += 1
                    case 2:
                        await client.retry_run(run_id)
                        done["retry"] += 1
            with suppress(WrongStateError):
                await client.resume_run(run_id)  # so that there is something to ask before the next operation


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_operators_race_at_two_processes_while_a_worker_and_an_api_die(
    folder: Path, postgres_url: str, seed: int
) -> None:
    """Counts are those of the rows, every row has one result, and the run can be brought to its end."""
    # The kills show at once, by locks that become free. With less, a machine under load declares workers dead that are
    # alive, and their questions in flight are asked again.
    async with drilling(PLAN, folder, Cluster, postgres_url, apis=2, dead_after_s=60.0) as drill:
        cluster = drill.topology
        assert isinstance(cluster, Cluster)
        drill.agent.delay_s = 0.01
        cluster.start()
        await cluster.ready()
        history = await drill.submit()
        history.replaced = True
        done = Counter[str]()
        async with asyncio.TaskGroup() as group:
            for index, address in enumerate(cluster.addresses * 2):
                group.create_task(operate(drill, history.run_id, address, random.Random(f"{seed}/{index}"), done))
            await drill.agent.until_asked(200)
            cluster.send("worker0", signal.SIGKILL)
            await drill.agent.until_asked(400)
            cluster.send("api0", signal.SIGKILL)
        await drill.insist(lambda client: _resume(client, history.run_id))
        run = await drill.watch_to_the_end(history)
        listed = await drill.insist(lambda client: client.list_runs())
        (verdict,) = await drill.conclude()
    assert min(done["pause"], done["resume"]) > 0, f"the operators did something: {done}"
    assert [one.run_id for one in listed] == [run.run_id], "the list of runs is whole"
    assert run.counts.total_count == run.counts.finished_count == PLAN.case_count
    assert not verdict.problems
    assert (verdict.lost, verdict.duplicated, verdict.repaid, verdict.unexplained) == (0, 0, 0, 0)


async def _resume(client: Client, run_id: str) -> None:
    with suppress(WrongStateError):
        await client.resume_run(run_id)


async def test_an_agent_that_answers_twice_gives_no_row_the_text_of_another(folder: Path, database_url: str) -> None:
    """Surplus replies stand in the connections of the pool, also after a kill and a restart."""
    plan = Plan(case_count=600, repeats=1, embeds=False)
    async with drilling(plan, folder, OneOrchestrator, database_url) as drill:
        drill.agent.doubles_every = 2
        drill.topology.start()
        history = await drill.submit()
        watching = asyncio.ensure_future(drill.watch_to_the_end(history))
        await drill.agent.until_asked(200)
        drill.topology.send("orchestrator", signal.SIGKILL)
        run = await watching
        (verdict,) = await drill.conclude()
        engine = open_engine(drill.topology)
        try:
            with engine.connect() as connection:
                rows = connection.execute(sa.select(schema.answers.c.case_index, schema.answers.c.answer_text)).all()
        finally:
            engine.dispose()
    texts = {index: text for index, text in rows if text}
    questions = [case.turns[0].input for case in plan.cases()]
    assert {index: text for index, text in texts.items() if text != answer_text(questions[index])} == {}
    assert len(texts) == run.counts.total_count - run.counts.agent_error_count
    assert len(texts) > plan.case_count // 2, "only replies that may belong to another request are refused"
    assert (verdict.lost, verdict.duplicated, verdict.repaid) == (0, 0, 0), verdict.problems
