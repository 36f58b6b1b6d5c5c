"""Processes with one role each: what a process does that does not work on runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from assay.agent_host.caller import AgentCaller
from assay.errors import InvalidInputError
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import RunState

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.model.answers.agent_response import AgentRequest


@pytest.fixture
def database_url(migrated_postgres_url: str) -> str:
    """Return the URL of a PostgreSQL database: roles are for processes that share one."""
    return migrated_postgres_url


async def test_a_hosted_run_ends_without_workers(serve: Callable[..., Any], settings_of: Callable[..., Any]) -> None:
    """An api process asks the agents that its clients host, and ends their runs, too."""

    async def answer(request: AgentRequest) -> str:
        return "a" + request.input[1:]

    cases = [
        Case(f"c{i}", (Turn(f"q{i}", references=(f"a{i}",)),), recordings=((AgentResponse(text=""),),))
        for i in range(20)
    ]
    async with serve(role="api") as client:
        dataset = await client.upload_dataset(cases, name="d")
        run = await client.create_run(settings_of("python", "m:f", concurrency=4), dataset.dataset_id)
        async with asyncio.timeout(60):
            await client.host_agent(run.run_id, AgentCaller(answer), concurrency=4)
        run = await client.get_run(run.run_id)
    assert (run.state, run.counts.passed_count) == (RunState.COMPLETED, 20)


async def test_a_variable_that_no_spec_may_name_is_refused_where_no_agent_is_called(
    serve: Callable[..., Any], settings_of: Callable[..., Any]
) -> None:
    """An api process does not have the variables; it knows from --agent-env which of them its workers may send."""
    async with serve(role="api", http_hosts=("127.0.0.1",), agent_env=("BOT_*@127.0.0.1",)) as client:
        dataset = await client.upload_dataset([Case("c", (Turn("q", references=("a",)),))], name="d")

        def asking(variable: str) -> Any:
            options = {"response": {"text": "text"}, "headers": {"authorization": f"Bearer ${{{variable}}}"}}
            return settings_of("http", "http://127.0.0.1:9/", options=options)

        with pytest.raises(InvalidInputError, match=r"\$\{PATH\} may not be used here: .* --agent-env"):
            await client.create_run(asking("PATH"), dataset.dataset_id)
        run = await client.create_run(asking("BOT_KEY"), dataset.dataset_id)
        await client.cancel_run(run.run_id)
