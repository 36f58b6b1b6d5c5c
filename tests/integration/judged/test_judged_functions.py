"""Metrics in Python code beside a judge: a row calls its functions once, when its verdicts are there."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from assay.agent_host.caller import AgentCaller
from assay.agent_host.metric_functions import load_metric_functions
from assay.metrics import complete_parameters
from assay.model.run import MetricSettings, PauseCause, Run, RunState

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.judged.conftest import Stage

    from assay.client.client import Client
    from assay.model.case import Case

    SetUp = Callable[..., Stage]
    CaseOf = Callable[..., Case]


async def test_no_function_is_called_for_a_row_that_awaits_its_verdict(set_up: SetUp, case_of: CaseOf) -> None:
    """A judge that cannot be reached pauses the run without a call; afterwards each row calls its function once."""
    called: list[str] = []

    def noted(case: Case) -> float:
        called.append(case.case_id)
        return 1.0

    async def follow(client: Client, run: Run) -> Run:
        metrics = load_metric_functions(run.settings.metrics, Path(), {"noted": noted})
        agent = AgentCaller(stage.agent)
        hosting = asyncio.ensure_future(client.host_agent(run.run_id, agent, concurrency=4, metrics=metrics))
        try:
            return await stage.until(client, run, RunState.SUCCEEDED, RunState.PAUSED)
        finally:
            hosting.cancel()
            await asyncio.gather(hosting, return_exceptions=True)

    stage = set_up()
    function = MetricSettings("noted", complete_parameters("python", {"function": "m:noted"}, where="m"), "python")
    settings = stage.settings()
    settings = dataclasses.replace(settings, metrics=(*settings.metrics, function))
    async with stage.orchestrator(patience_s=6) as client:
        run = await follow(client, await stage.create(client, settings, [case_of(n) for n in range(10)]))
        assert (run.pause_cause, called) == (PauseCause.JUDGE, [])
        async with stage.judge():
            done = await follow(client, await client.resume_run(run.run_id))
    assert (done.state, done.counts.passed) == (RunState.SUCCEEDED, 10)
    assert sorted(called) == sorted(f"c{n}" for n in range(10))
    assert len(stage.agent.asked) == 10
