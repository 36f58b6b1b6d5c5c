"""What `assay runs show` reads of a run: no more than it prints, and what reading all of it would have printed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from tests.support.services.ended_runs import run_cases

from assay.client.client import Client
from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, error_response
from assay.model.case import Case, Turn
from assay.model.run import Run, RunSpec
from assay_cli.output.console import ConsoleSummary

Serve = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def database_url() -> str:
    """The command does not know which database there is: a file does."""
    return ""


def recorded(index: int) -> AgentResponse:
    """Every third answer is right, every third wrong, and for the others the agent failed."""
    if index % 3 == 2:
        return error_response(AgentErrorKind.HTTP_STATUS, f"limit {index % 2}")
    return AgentResponse(text=f"a{index}" if index % 3 else "wrong")


async def finished(client: Client, settings: RunSpec, count: int) -> Run:
    """Return a finished run over so many cases; every fifth has no reference."""
    cases = [
        Case(f"c{i}", (Turn(f"q{i}", references=(f"a{i}",) if i % 5 else ()),), recordings=((recorded(i),),))
        for i in range(count)
    ]
    return await run_cases(client, settings, cases)


async def shown(client: Client, run: Run, **options: Any) -> str:
    """Return the summary on the console."""
    console = ConsoleSummary(run)
    await console.read(client, **options)
    return console.render()


async def test_a_large_run_is_shown_as_a_small_one_is(serve: Serve, settings_of: Callable[..., RunSpec]) -> None:
    """Where the first rows are all of them, both ways to read print the same."""
    async with serve() as client:
        run = await finished(client, settings_of(), 60)
        whole = await shown(client, run)
        assert await shown(client, run, whole_rows=0) == whole
    assert "10 x" in whole


async def test_no_more_rows_are_read_than_are_printed(
    serve: Serve, settings_of: Callable[..., RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The summary names the counts of all rows, and says of how many its groups of errors are."""
    async with serve() as client:
        run = await finished(client, settings_of(), 3_600)
        read, page_of = [], client.row_page

        async def counting(*arguments: Any, **options: Any) -> Any:
            page = await page_of(*arguments, **options)
            read.append(len(page.results))
            return page

        monkeypatch.setattr(client, "row_page", counting)
        said = await shown(client, run)
    assert "errors are grouped among the first 1,000:" in said
    assert "(of the first 1,000 without a value)" in said
    assert len(read) == 4, "answers, errors, and the rows without a value of each of two metrics"
    assert max(read) <= 1_000
