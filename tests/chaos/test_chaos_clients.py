"""Commands that host an agent are killed: the run goes on with the next one, and reports are complete or absent."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.chaos.commands import Command
from tests.chaos.drills import Plan, drilling
from tests.chaos.topologies import OneOrchestrator

from assay.process.failpoints import FAILPOINTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

pytestmark = pytest.mark.chaos

PLAN = Plan(case_count=60, repeats=1)
OF_CLIENTS = sorted(name for name in FAILPOINTS if name.startswith(("client", "host", "report")))


@asynccontextmanager
async def commanding(folder: Path, undisturbed: Callable[[Plan], dict[str, Any]]) -> AsyncIterator[Command]:
    """Yield a command beside an orchestrator; afterwards every promise must have been kept."""
    async with drilling(PLAN, folder, OneOrchestrator) as drill:
        command = Command(drill)
        try:
            yield command
            (verdict,) = await drill.conclude()
        finally:
            command.close()
        rows = json.loads(command.report.read_text())["rows"]
    assert not verdict.problems, command
    if len(command.statuses) == 1:
        assert verdict.repeated == 0, "the command keeps answers, and continues calls, that the orchestrator has lost"
    assert (verdict.lost, verdict.duplicated, verdict.repaid, verdict.unexplained) == (0, 0, 0, 0)
    assert verdict.summary == undisturbed(PLAN)
    assert sorted(row["case_id"] for row in rows) == sorted(case.case_id for case in PLAN.cases())


@pytest.mark.parametrize("name", OF_CLIENTS)
async def test_a_command_that_is_killed(folder: Path, undisturbed: Callable[[Plan], dict[str, Any]], name: str) -> None:
    """Wherever it is, from the uploaded dataset to the written report, the next command ends the run."""
    async with commanding(folder, undisturbed) as command:
        command.armed.append(f"{name}=kill@{5 if name.startswith('host') else 1}")
        command.drill.topology.start()
        await command.insist()
        assert command.statuses[0] == -signal.SIGKILL
        assert len(command.statuses) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_command_that_is_told_to_stop(
    folder: Path, undisturbed: Callable[[Plan], dict[str, Any]], number: signal.Signals
) -> None:
    """It says how to go on and ends; the run waits for the next command."""
    async with commanding(folder, undisturbed) as command:
        command.drill.agent.delay_s = 0.05
        command.drill.topology.start()
        insisting = asyncio.ensure_future(command.insist())
        await command.drill.agent.until_asked(20)
        command.send(number)
        await insisting
        assert len(command.statuses) == 2
        assert command.statuses[0] == 130


async def test_the_orchestrator_is_killed_under_a_command(
    folder: Path, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """The command attaches again and hosts its agent for the next process; nobody has to do anything."""
    async with commanding(folder, undisturbed) as command:
        command.drill.agent.delay_s = 0.1  # else all questions may be asked before the third write of results
        kills = (
            "result.after_commit=kill@3",
            "agent.before_call=kill@9",
            "agent.after_answer=kill@2",
            "answer.before_commit=kill@2",
            "shard.leave_after_commit=kill",
        )
        command.drill.topology.slots["orchestrator"].armed += kills
        command.drill.topology.start()
        await command.insist()
        assert len(command.statuses) == 1
        assert command.drill.topology.slots["orchestrator"].statuses == [-signal.SIGKILL] * len(kills)


async def test_both_are_killed(folder: Path, undisturbed: Callable[[Plan], dict[str, Any]]) -> None:
    """Command and orchestrator at different moments of the same run."""
    async with commanding(folder, undisturbed) as command:
        command.drill.topology.slots["orchestrator"].armed += ["answer.before_commit=kill@4", "watch.page_read=kill@2"]
        command.armed += ["host.answer_ready=kill@7", "host.question_received=kill@7"]
        command.drill.topology.start()
        await command.insist()
        assert command.statuses[:2] == [-signal.SIGKILL] * 2


async def test_the_orchestrator_is_killed_before_the_report_is_read(
    folder: Path, undisturbed: Callable[[Plan], dict[str, Any]]
) -> None:
    """The command reconnects and writes the report of the finished run, at its first start."""
    async with commanding(folder, undisturbed) as command:
        command.armed.append("client.run_followed=stop")
        command.drill.topology.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(command.insist())
            await command.until_stopped()
            command.drill.topology.send("orchestrator", signal.SIGKILL)
            await command.drill.topology.until_ended("orchestrator")
            command.send(signal.SIGCONT)
        assert len(command.statuses) == 1, command.said()


async def test_a_frozen_host_begins_no_question_that_is_over(folder: Path) -> None:
    """It stands still until its questions have timed out and another host has answered the rest."""
    plan = Plan(case_count=300, repeats=1, timeout_s=1.0)
    async with drilling(plan, folder, OneOrchestrator) as drill:
        drill.agent.delay_s = 0.1
        drill.topology.start()
        history = await drill.submit(hosted=True)
        command = Command(drill, ["host.before_call=kill@1000000"])  # for the log of its passings
        try:
            command.start(history.run_id)
            await drill.agent.until_asked(20)
            command.send(signal.SIGSTOP)
            async with asyncio.TaskGroup() as group:
                group.create_task(drill.host(history, drill.topology.address))
                run = await drill.watch_to_the_end(history)
            begun = drill.topology.passed().count(("host.before_call", "-"))
            assert begun >= 20, "the host began questions before it stood still"
            command.send(signal.SIGCONT)
            assert command.process is not None
            await asyncio.to_thread(command.process.wait)
        finally:
            command.close()
        (verdict,) = await drill.conclude()
    assert run.counts.agent_error_count > plan.concurrency, "questions were given to the host while it stood still"
    assert drill.topology.passed().count(("host.before_call", "-")) == begun
    assert (verdict.lost, verdict.duplicated) == (0, 0), verdict.problems
