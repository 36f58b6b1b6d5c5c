"""Runs whose agents wait for a person: with recorded approvals, and with rows that stay interrupted."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

from tests.support.processes import waiting

from assay.agent_host.caller import AgentCaller
from assay.client.comparison.calls import compare_on_server
from assay.comparison.model import ComparisonSettings
from assay.filters.row_filter import RowOutcome
from assay.model.answers.agent_response import AgentResponse, AgentStatus, Interrupt, InterruptKind
from assay.model.answers.approvals import ScriptedApprovals, UnusedApproval, approvals_to_json, read_approvals
from assay.model.case import Case, Turn
from assay.model.run import DatasetReading, Run, RunState
from assay_orchestrator.store.rows import attempts

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.answers.agent_request import AgentRequest
    from assay.model.answers.approvals import Approval
    from assay.model.run import RunSpec

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import RunSpec
    from assay.storage.database import Database


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
            lambda: client.get_run(run.run_id), lambda seen: seen.state in (states or (RunState.COMPLETED,))
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
        plain, own = [row async for row in client.list_rows(run.run_id)]
    assert run.spec.approvals == settings.approvals
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
        (row,) = [row async for row in client.list_rows(run.run_id)]
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
    assert [note for note in run.summary.notes if "approvals" in note] == [
        f"approvals name pay, at which no row stopped: {why}",
        f"approvals of case c name refnd, at which it did not stop: {why}",
        f"approvals of case d and 1 more name refund, at which it did not stop: {why}",
    ]


REFUND = Interrupt("c1", InterruptKind.APPROVAL, "refund", '{"amount": 5}')


class Waiting:
    """Answers right, except cases at which it waits or raises; its drafts are right, too."""

    def __init__(self, waiting: set[str], failing: set[str]) -> None:
        self.waiting, self.failing = waiting, failing
        self.asked: list[str] = []

    async def __call__(self, request: AgentRequest) -> AgentResponse:
        """Answer a question."""
        self.asked.append(f"{request.case_id} {request.turn_index}")
        if request.case_id in self.failing:
            raise ValueError("no luck")
        status = AgentStatus.INTERRUPTED if request.case_id in self.waiting else AgentStatus.SUCCESS
        return AgentResponse(status, "yes", interrupts=(REFUND,) if status.is_failed else ())


async def host(client: Client, run_id: str, agent: Waiting) -> Run:
    await client.host_agent(run_id, AgentCaller(agent), concurrency=4)
    return await client.get_run(run_id)


async def hosted_to_the_end(client: Client, settings: RunSpec, agent: Waiting, *, turns: int = 1) -> Run:
    content = [Case(f"c{at}", tuple(Turn("q", references=("yes",)) for _ in range(turns))) for at in range(6)]
    dataset = await client.upload_dataset(content, name="d")
    run = await client.create_run(settings, dataset.dataset_id)
    return await host(client, run.run_id, agent)


async def test_a_run_counts_them_apart_and_finds_them(
    serve: Serve, settings_of: SettingsOf, open_store: Callable[[], Database]
) -> None:
    """Counts, verdict, filters and retries take them for agent errors; asked again, a row may wait no longer."""
    agent = Waiting({"c1", "c4"}, {"c2"})
    async with serve() as client:
        settings = settings_of("python", "m:f", retries=3)
        # Without the latency, of which an agent error has none: the status alone is to be found for the retry.
        settings = dataclasses.replace(settings, metrics=settings.metrics[:1], max_agent_errors=0.4)
        run = await hosted_to_the_end(client, settings, agent)
        assert sorted(agent.asked).count("c1 0") == 1, "asking again does not help"
        assert (run.counts.passed_count, run.counts.failed_count) == (3, 3)
        assert (run.counts.agent_error_count, run.counts.interrupted_count) == (3, 2)
        assert run.summary is not None
        assert (run.summary.agent_error_count, run.summary.interrupted_count, run.summary.pass_rate) == (3, 2, 0.5)
        assert run.summary.verdict == "INCOMPLETE"

        rows = [row async for row in client.list_rows(run.run_id, where="agent_error status:interrupted")]
        assert [(row.case_id, row.status, row.passed) for row in rows] == [
            ("c1", AgentStatus.INTERRUPTED, False), ("c4", AgentStatus.INTERRUPTED, False)
        ]  # fmt: skip
        assert rows[0].message == 'interrupted: waits for approval of refund({"amount": 5})'
        assert rows[0].response is not None
        assert (rows[0].response.interrupts, rows[0].response.error) == ((REFUND,), None)
        assert {score.reason for score in rows[0].scores if not score.passed} == {"agent_error"}
        page = await client.row_page(run.run_id, include_facets=True)
        assert page.facets is not None
        assert page.facets.outcomes == {RowOutcome.PASSED: 3, RowOutcome.AGENT_ERROR: 3}

        agent.waiting, agent.failing = {"c4"}, set()
        await client.retry_run(run.run_id)
        run = await host(client, run.run_id, agent)
        assert (run.state, run.counts.passed_count) == (RunState.COMPLETED, 5)
        assert (run.counts.agent_error_count, run.counts.interrupted_count) == (1, 1)
        earlier = await client.list_attempts(run.run_id, "c1")
        assert [one.result.status.value for one in earlier if one.result] == ["interrupted", "success"]
    store = open_store()
    try:
        assert await store.read(lambda connection: attempts.count_repeated(connection, run.run_id)) == (3, 0)
    finally:
        store.close()


async def test_a_comparison_takes_them_for_errors(serve: Serve, settings_of: SettingsOf) -> None:
    """They are errors of their run in every figure, and the variants say how many of the errors they are."""
    async with serve() as client:
        settings = settings_of("python", "m:f", retries=0)
        plain = await hosted_to_the_end(client, settings, Waiting(set(), set()))
        waiting = await hosted_to_the_end(client, settings, Waiting({"c1", "c4"}, {"c2"}))
        found, _ = await compare_on_server(client, [plain.run_id, waiting.run_id], ComparisonSettings())
    assert [(one.agent_error_count, one.interrupted_count) for one in found.variants] == [(0, 0), (3, 2)]
    errors = found.pair("A", "B").errors
    assert errors is not None
    assert (errors.a_case_count, errors.b_case_count) == (0, 3)
    assert found.pair("A", "B").metric("exact_match").difference == -0.5


async def test_a_conversation_ends_where_the_agent_waits(serve: Serve, settings_of: SettingsOf) -> None:
    """Its later turns are not asked, and the row waits for what the turn waited for."""
    agent = Waiting({"c0", "c1", "c2", "c3", "c4", "c5"}, set())
    async with serve() as client:
        run = await hosted_to_the_end(client, settings_of("python", "m:f"), agent, turns=3)
        assert sorted(agent.asked) == [f"c{at} 0" for at in range(6)]
        assert (run.counts.failed_count, run.counts.interrupted_count) == (6, 6)
        detail = await client.get_case(run.run_id, "c0")
    assert detail.results[0].message == 'interrupted: waits for approval of refund({"amount": 5})'
