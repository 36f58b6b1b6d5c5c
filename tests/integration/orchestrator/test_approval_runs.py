"""Runs with approvals: what each question brings along, what outlasts a pause, and what is said of approvals unused."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

from tests.support.processes import waiting

from assay.agent_host.caller import AgentCaller
from assay.model.answers.agent_response import AgentStatus, Interrupt, InterruptKind
from assay.model.answers.approvals import ScriptedApprovals, UnusedApproval, approvals_to_json, read_approvals
from assay.model.case import Case, Turn
from assay.model.run import DatasetReading, Run, RunState
from assay.reports.words.row_notes import row_notes

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.answers.agent_request import AgentRequest
    from assay.model.answers.approvals import Approval
    from assay.model.run import RunSettings

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSettings]

APPROVE = {"tool": "refund", "approve": True}


def listed(*items: dict[str, Any], times: int | None = 1) -> tuple[Approval, ...]:
    approvals, problems = read_approvals(list(items), times=times)
    assert not problems
    return approvals


class Clerk:
    """An agent that stops at `refund` as often as it is asked for refunds, and keeps what it was given."""

    def __init__(self) -> None:
        self.given: dict[str, list[Any]] = {}
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, request: AgentRequest) -> dict[str, Any]:
        self.given[f"{request.case_id}/{request.turn_index}"] = approvals_to_json(request.approvals)
        self.asked.set()
        await self.may_answer.wait()
        script = ScriptedApprovals(request.approvals)
        for number in range(request.input.count("refund")):
            stop = Interrupt(str(number), InterruptKind.APPROVAL, "refund", '{"amount": 5}')
            if script.decide(stop) is None:
                break
        stops = [dataclasses.asdict(stop) for stop in script.interrupts]
        status = "interrupted" if script.is_waiting else "success"
        return {"status": status, "text": f"{len(stops)} stops", "interrupts": stops}


async def finished(client: Client, run: Run, agent: Clerk, *states: RunState) -> Run:
    """Answer a run's questions until it is in one of some states, and return it."""
    task = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=2))
    try:
        seen = await waiting.until(
            lambda: client.get_run(run.run_id), lambda seen: seen.state in (states or (RunState.SUCCEEDED,))
        )
        assert isinstance(seen, Run)
        return seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_case_with_approvals_has_those_alone(serve: Serve, settings_of: SettingsOf) -> None:
    """Those of the spec are for all other cases; a stop without a decision is a row that is interrupted."""
    cases = [
        Case("plain", (Turn("refund refund"),)),
        Case("own", (Turn("refund refund"),), approvals=listed({"tool": "refund", "deny": "no"})),
    ]
    agent = Clerk()
    settings = dataclasses.replace(settings_of("python", "m:f"), approvals=listed(APPROVE, times=None))
    async with serve() as client:
        dataset = await client.upload_dataset(cases, name="d")
        run = await finished(client, await client.create_run(settings, dataset.dataset_id), agent)
        plain, own = [row async for row in client.list_results(run.run_id)]
    assert run.settings.approvals == settings.approvals
    assert agent.given == {
        "plain/0": [{**APPROVE, "times": "unlimited"}],
        "own/0": [{"tool": "refund", "deny": "no", "times": 1}],
    }
    assert plain.response is not None
    assert [stop.decision for stop in plain.response.interrupts] == ["approve", "approve"]
    assert (plain.status, own.status) == (AgentStatus.SUCCESS, AgentStatus.INTERRUPTED)
    assert own.response is not None
    assert [stop.decision for stop in own.response.interrupts] == ["deny", ""]


async def test_turns_share_the_approvals_of_a_conversation_through_a_pause(
    serve: Serve, settings_of: SettingsOf
) -> None:
    """A turn brings along what the turns before it left, although those were answered before a restart."""
    deny = {"tool": "refund", "deny": "enough"}
    turns = (Turn("refund"), Turn("hello"), Turn("refund refund"))
    case = Case("talk", turns, approvals=listed({**APPROVE, "times": 2}, deny))
    agent = Clerk()
    agent.may_answer.clear()
    async with serve() as client:
        dataset = await client.upload_dataset([case], name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        hosting = asyncio.ensure_future(finished(client, run, agent, RunState.PAUSED))
        await agent.asked.wait()
        pausing = asyncio.ensure_future(client.pause_run(run.run_id))
        await waiting.until(lambda: client.get_run(run.run_id), lambda seen: seen.pause_cause is not None)
        agent.may_answer.set()
        await pausing
        await hosting
    assert list(agent.given) == ["talk/0"]
    async with serve() as client:
        await finished(client, await client.resume_run(run.run_id), agent)
        (row,) = [row async for row in client.list_results(run.run_id)]
    left = [{**APPROVE, "times": 1}, {**deny, "times": 1}]
    assert agent.given == {"talk/0": [{**APPROVE, "times": 2}, {**deny, "times": 1}], "talk/1": left, "talk/2": left}
    answers = [turn.response for turn in row.turns if turn.response is not None]
    assert [[stop.decision for stop in answer.interrupts] for answer in answers] == [
        ["approve"], [], ["approve", "deny"]
    ]  # fmt: skip


async def test_tools_at_which_no_row_stopped_are_named(serve: Serve, settings_of: SettingsOf) -> None:
    """By the spec where no row stopped, by a case where that case did not."""
    cases = [
        Case("a", (Turn("refund"),)),
        Case("b", (Turn("hello"),)),
        Case("c", (Turn("refund"),), approvals=listed(APPROVE, {"tool": "refnd", "approve": True})),
        Case("d", (Turn("hello"),), approvals=listed(APPROVE)),
        Case("e", (Turn("hello"),), approvals=listed(APPROVE)),
    ]
    approvals = listed(APPROVE, {"tool": "pay", "approve": True}, {"answer": 1}, times=None)
    reading = DatasetReading("d.jsonl", "plain/jsonl", "", approvals_count=3)
    settings = dataclasses.replace(settings_of("python", "m:f"), approvals=approvals, dataset=reading)
    async with serve() as client:
        dataset = await client.upload_dataset(cases, name="d")
        run = await finished(client, await client.create_run(settings, dataset.dataset_id), Clerk())
        run = await client.get_run(run.run_id)
    assert run.summary is not None
    assert run.summary.unused_approvals == (
        UnusedApproval("pay"), UnusedApproval("refnd", 1, "c"), UnusedApproval("refund", 2, "d")
    )  # fmt: skip
    why = "the name is misspelled, or the agent did not call the tool"
    assert [note for note in row_notes(run) if "approvals" in note] == [
        f"approvals name pay, at which no row stopped: {why}",
        f"approvals of case c name refnd, at which it did not stop: {why}",
        f"approvals of case d and 1 more name refund, at which it did not stop: {why}",
    ]
