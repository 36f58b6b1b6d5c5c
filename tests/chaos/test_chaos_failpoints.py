"""A kill at every failpoint of the orchestrator, on either database: each test fails if its failpoint was never met."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from tests.chaos.drills import Plan, drilling
from tests.chaos.topologies import OneOrchestrator, open_engine

from assay.errors import NotFoundError, WrongStateError
from assay.process.failpoints import FAILPOINTS
from assay_orchestrator.store import schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.chaos.drills import Drill
    from tests.chaos.histories import Verdict

pytestmark = pytest.mark.chaos

OFTEN = ("agent", "answer", "evidence", "result", "watch")
CLIENTS = ("client", "host", "report")
SPECIAL = ("recovery", "retry", "deletion", "team", "stop", "early_stop", "judge")  # some have suites of their own
ON_THE_WAY = sorted(name for name in FAILPOINTS if name.split(".")[0] not in (*CLIENTS, *SPECIAL))
STORING = sorted(name for name in ON_THE_WAY if name.endswith("before_commit") and not name.startswith("schema"))


def kills(drill: Drill) -> list[str]:
    """Return the failpoints at which a process was ended."""
    return [name for name, action in drill.topology.passed() if action != "-"]


def assert_kept(verdict: Verdict) -> None:
    """Fail unless every promise was kept."""
    assert not verdict.problems
    assert (verdict.lost, verdict.duplicated, verdict.repaid, verdict.unexplained) == (0, 0, 0, 0)


@pytest.mark.parametrize("name", ON_THE_WAY)
async def test_a_kill_anywhere_changes_nothing(
    folder: Path, database_url: str, undisturbed: Callable[[Plan], dict[str, Any]], name: str
) -> None:
    """From the making of the tables to the last event: the run ends as one that was left alone."""
    plan = Plan()
    async with drilling(plan, folder, OneOrchestrator, database_url) as drill:
        time = 3 if name.startswith(OFTEN) else 1
        drill.topology.slots["orchestrator"].armed.append(f"{name}=kill@{time}")
        drill.topology.start()
        await drill.watch_to_the_end(await drill.submit())
        (verdict,) = await drill.conclude()
        assert kills(drill) == [name]
    assert_kept(verdict)
    assert verdict.summary == undisturbed(plan)


@pytest.mark.parametrize("name", ["answer.after_commit", "agent.before_call", "evidence.after", "result.before_commit"])
async def test_a_kill_within_a_conversation(
    folder: Path, undisturbed: Callable[[Plan], dict[str, Any]], name: str
) -> None:
    """A conversation goes on with its next turn: no turn that is stored is asked for again."""
    plan = Plan(case_count=30, turn_count=3)
    async with drilling(plan, folder, OneOrchestrator) as drill:
        first, second = (2, 1) if name.startswith("result") else (6, 4)  # results are stored by the dozen
        drill.topology.slots["orchestrator"].armed += [f"{name}=kill@{first}", f"{name}=kill@{second}"]
        drill.topology.start()
        await drill.watch_to_the_end(await drill.submit())
        (verdict,) = await drill.conclude()
        assert kills(drill) == [name, name]
    assert_kept(verdict)
    assert verdict.summary == undisturbed(plan)


@pytest.mark.parametrize("action", ["error", "nospace"])
@pytest.mark.parametrize("name", [name for name in STORING if not name.startswith(("run", "dataset"))])
async def test_a_store_that_fails_for_a_while(
    folder: Path, undisturbed: Callable[[Plan], dict[str, Any]], name: str, action: str
) -> None:
    """The run pauses, says why, and when it is resumed goes on as if nothing had happened."""
    plan = Plan()
    async with drilling(plan, folder, OneOrchestrator) as drill:
        drill.topology.slots["orchestrator"].armed.append(f"{name}={action}@1")
        drill.topology.start()
        await drill.watch_to_the_end(await drill.submit())
        (verdict,) = await drill.conclude()
        assert kills(drill) == [name]
    assert_kept(verdict)
    assert verdict.summary == undisturbed(plan)


async def test_a_kill_while_runs_are_taken_up_again(
    folder: Path, database_url: str, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """A process that is killed while it takes up what another has left is followed by a third."""
    plan = Plan()
    taking_up = ["recovery.job_given_back"] if database_url else ["recovery.run_continued"] * 2
    names = ["result.after_commit", *taking_up]
    async with drilling(plan, folder, OneOrchestrator, database_url) as drill:
        drill.topology.slots["orchestrator"].armed += [f"{names[0]}=kill@3", *(f"{name}=kill" for name in taking_up)]
        drill.topology.start()
        await drill.watch_to_the_end(await drill.submit())
        (verdict,) = await drill.conclude()
        assert kills(drill) == names
    assert_kept(verdict)
    assert verdict.summary == undisturbed(plan)


async def test_a_kill_while_work_in_flight_ends(
    folder: Path, database_url: str, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """Killed after SIGTERM, before it has drained: the same as any other kill."""
    plan = Plan()
    async with drilling(plan, folder, OneOrchestrator, database_url) as drill:
        drill.topology.slots["orchestrator"].armed.append("stop.draining=kill")
        drill.topology.start()
        history = await drill.submit()
        watching = asyncio.ensure_future(drill.watch_to_the_end(history))
        await drill.agent.until_asked(30)
        drill.topology.send("orchestrator", signal.SIGTERM)
        await watching
        (verdict,) = await drill.conclude()
        assert kills(drill) == ["stop.draining"]
    assert_kept(verdict)
    assert verdict.summary == undisturbed(plan)


async def _retry_until_done(drill: Drill, run_id: str) -> None:
    """Try errors again until there are none; a call that was lost with its process is made again."""
    history = drill.histories[0]
    while True:
        try:
            await drill.insist(lambda client: client.retry_run(run_id))
        except WrongStateError as problem:
            if problem.reason != "RUN_ACTIVE":
                raise
        run = await drill.watch_to_the_end(history)
        if not run.counts.agent_error_count:
            return


@pytest.mark.parametrize("name", ["retry.before_commit", "retry.after_commit"])
async def test_a_kill_while_errors_are_set_aside(folder: Path, database_url: str, name: str) -> None:
    """No attempt is lost: rows with errors are tried again, the others are not touched, the old attempts are there."""
    plan = Plan(case_count=40, error_every=4, embeds=False)
    summaries = []
    for armed in ([], [f"{name}=kill"]):
        (folder / str(len(armed))).mkdir()
        # On PostgreSQL both runs are in one database, and the processes follow on one another.
        async with drilling(plan, folder / str(len(armed)), OneOrchestrator, database_url) as drill:
            drill.topology.slots["orchestrator"].armed += armed
            drill.topology.start()
            history = await drill.submit()
            history.replaced = True
            await drill.watch_to_the_end(history)
            await _retry_until_done(drill, history.run_id)
            (verdict,) = await drill.conclude()
            engine = open_engine(drill.topology)
            with engine.begin() as connection:
                table = schema.row_history
                kept = connection.execute(
                    sa.select(sa.func.count()).where(table.c.run_id == history.run_id, table.c.outcome == "retried")
                ).scalar_one()
            engine.dispose()
            assert len(kills(drill)) == len(armed)
        assert_kept(verdict)
        assert kept == 20
        summaries.append(verdict.summary)
    assert summaries[0] == summaries[1]


@pytest.mark.parametrize("name", ["deletion.begun", "deletion.batch_removed"])
async def test_a_kill_while_a_run_is_deleted(folder: Path, database_url: str, name: str) -> None:
    """The run is gone at once, and the next start removes what is left of its rows, without touching another run."""
    plan = Plan(embeds=False)
    async with drilling(plan, folder, OneOrchestrator, database_url) as drill:
        drill.topology.slots["orchestrator"].armed.append(f"{name}=kill")
        drill.topology.start()
        kept, doomed = await drill.submit(), await drill.submit()
        for history in (kept, doomed):
            await drill.watch_to_the_end(history)
        with contextlib.suppress(NotFoundError):  # a call that was lost had done it
            await drill.insist(lambda client: client.delete_run(doomed.run_id))
        drill.histories.remove(doomed)
        await drill.topology.until_ended("orchestrator")
        await drill.topology.ready()
        await _until_removed(drill)
        (verdict,) = await drill.conclude()
        assert kills(drill) == [name]
        engine = open_engine(drill.topology)
        with engine.begin() as connection:
            for table in (schema.score_values, schema.results, schema.answers, schema.run_events, schema.shards):
                owners = set(connection.execute(sa.select(table.c.run_id).distinct()).scalars())
                assert owners == {kept.run_id}
        engine.dispose()
    assert_kept(verdict)


async def _until_removed(drill: Drill) -> None:
    topology = drill.topology
    engine = (
        open_engine(topology)
        if topology.database_url
        else sa.create_engine(f"sqlite:///{topology.folder}/data/assay.db")
    )
    async with asyncio.timeout(30):
        while True:
            with engine.begin() as connection:
                if not connection.execute(sa.select(sa.func.count()).select_from(schema.deletions)).scalar_one():
                    break
            await asyncio.sleep(0.05)
    engine.dispose()
