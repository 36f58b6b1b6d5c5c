"""Whose run it is and how much it has, from the client to the order in which shards are served."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from assay.errors import SpecError
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay_orchestrator.store import schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import RunSettings


async def test_a_run_keeps_its_team_and_weight(
    serve: Callable[..., AbstractAsyncContextManager[Client]],
    settings_of: Callable[..., RunSettings],
    engine: sa.Engine,
) -> None:
    """They come back with the run, and stand where the shards of all runs are put in order; wrong ones are refused."""
    async with serve() as client:
        case = Case("c", (Turn("q", references=("a",)),), recorded=AgentResponse(text="a"))
        dataset = await client.upload_dataset([case], name="d")
        settings = dataclasses.replace(settings_of(), team="search", weight=2.5)
        run = await client.create_run(settings, dataset.dataset_id)
        assert (run.settings.team, run.settings.weight) == ("search", 2.5)
        wrong = dataclasses.replace(settings, team="x" * 65, weight=0.0)
        with pytest.raises(SpecError) as caught:
            await client.create_run(wrong, dataset.dataset_id)
    assert [problem.field for problem in caught.value.problems] == ["team", "weight"]
    with engine.connect() as connection:
        row = connection.execute(sa.select(schema.runs.c.fair_share, schema.runs.c.weight)).one()
    assert tuple(row) == ("search", 2.5)
