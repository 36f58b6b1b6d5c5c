"""Rows whose agent waits for a person, on both databases: agent errors by every rule, with a count of their own."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from assay.agent_host.caller import AgentCaller
from assay.client.comparison.calls import compare_on_server
from assay.comparison.model import ComparisonSettings
from assay.filters.row_filter import DATASET_ORDER, EVERY_ROW, RowOutcome
from assay.model.answers.agent_response import AgentResponse, AgentStatus, Interrupt, InterruptKind
from assay.model.case import Case, Turn
from assay.model.run import Run, RunState
from assay_orchestrator.store.rows import attempts

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import RunSettings
    from assay.storage.database import Database

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSettings]

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


async def finished(client: Client, settings: RunSettings, agent: Waiting, *, turns: int = 1) -> Run:
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
        run = await finished(client, settings, agent)
        assert sorted(agent.asked).count("c1 0") == 1, "asking again does not help"
        assert (run.counts.passed, run.counts.failed) == (3, 3)
        assert (run.counts.agent_errors, run.counts.interrupted) == (3, 2)
        assert run.summary is not None
        assert (run.summary.agent_errors, run.summary.interrupted, run.summary.pass_rate) == (3, 2, 0.5)
        assert run.summary.overall_status == "INCOMPLETE"

        rows = [row async for row in client.list_results(run.run_id, where="agent_error status:interrupted")]
        assert [(row.case_id, row.status, row.passed) for row in rows] == [
            ("c1", AgentStatus.INTERRUPTED, False), ("c4", AgentStatus.INTERRUPTED, False)
        ]  # fmt: skip
        assert rows[0].reason == 'interrupted: waits for approval of refund({"amount": 5})'
        assert rows[0].response is not None
        assert (rows[0].response.interrupts, rows[0].response.error) == ((REFUND,), None)
        assert {score.reason for score in rows[0].scores if not score.passed} == {"agent_error"}
        page = await client.result_page(run.run_id, EVERY_ROW, DATASET_ORDER, include_facets=True)
        assert page.facets is not None
        assert page.facets.outcomes == {RowOutcome.PASSED: 3, RowOutcome.AGENT_ERROR: 3}

        agent.waiting, agent.failing = {"c4"}, set()
        await client.resume_run(run.run_id, retry_errors=True)
        run = await host(client, run.run_id, agent)
        assert (run.state, run.counts.passed) == (RunState.SUCCEEDED, 5)
        assert (run.counts.agent_errors, run.counts.interrupted) == (1, 1)
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
        plain = await finished(client, settings, Waiting(set(), set()))
        waiting = await finished(client, settings, Waiting({"c1", "c4"}, {"c2"}))
        found = await compare_on_server(client, [plain.run_id, waiting.run_id], ComparisonSettings())
    assert [(one.agent_errors, one.interrupted) for one in found.variants] == [(0, 0), (3, 2)]
    errors = found.pair("A", "B").errors
    assert errors is not None
    assert (errors.a_cases, errors.b_cases) == (0, 3)
    assert found.pair("A", "B").metric("exact_match").difference == -0.5


async def test_a_conversation_ends_where_the_agent_waits(serve: Serve, settings_of: SettingsOf) -> None:
    """Its later turns are not asked, and the row waits for what the turn waited for."""
    agent = Waiting({"c0", "c1", "c2", "c3", "c4", "c5"}, set())
    async with serve() as client:
        run = await finished(client, settings_of("python", "m:f"), agent, turns=3)
        assert sorted(agent.asked) == [f"c{at} 0" for at in range(6)]
        assert (run.counts.failed, run.counts.interrupted) == (6, 6)
        detail = await client.get_case(run.run_id, "c0")
    assert detail.results[0].reason == 'interrupted: waits for approval of refund({"amount": 5})'
