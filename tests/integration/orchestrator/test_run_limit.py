"""How many runs may be active at once, through the real wire and a real database."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from assay.errors import OverloadedError
from assay.model.case import Case, Turn
from assay.model.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.client.client import Client
    from assay.model.run import RunSettings

    ServeAt = Callable[..., AbstractAsyncContextManager[Client]]

LIMIT = 3
CASES = [Case("c", (Turn("q", references=("a",)),))]


async def test_exactly_as_many_runs_as_the_limit_are_accepted(
    serve_at: ServeAt, tmp_path: Path, database_url: str, settings_of: Callable[..., RunSettings]
) -> None:
    """The next one is refused until one has ended or is paused; a repeated request for one that there is, is not."""
    async with serve_at(tmp_path, database_url=database_url, active_run_limit=LIMIT) as client:
        dataset = await client.upload_dataset(CASES, name="d")
        wanted = settings_of("python", "m:f")
        made = [await client.create_run(wanted, dataset.dataset_id, request_id=f"r{i}") for i in range(LIMIT)]
        with pytest.raises(OverloadedError, match="3 runs are active, which is the limit"):
            await client.create_run(wanted, dataset.dataset_id)
        assert (await client.create_run(wanted, dataset.dataset_id, request_id="r0")).run_id == made[0].run_id
        await client.pause_run(made[0].run_id)
        await client.create_run(wanted, dataset.dataset_id)
        with pytest.raises(OverloadedError):
            await client.create_run(wanted, dataset.dataset_id)


async def test_runs_that_are_created_at_once_keep_to_the_limit(
    serve_at: ServeAt, tmp_path: Path, database_url: str, settings_of: Callable[..., RunSettings]
) -> None:
    """Also where they come to several processes: what was counted is still so when a run is stored."""
    async with AsyncExitStack() as stack:
        clients = []
        for name in ("a", "b") if database_url else ("a",):
            (tmp_path / name).mkdir()
            serving = serve_at(tmp_path / name, database_url=database_url, active_run_limit=LIMIT)
            clients.append(await stack.enter_async_context(serving))
        dataset = await clients[0].upload_dataset(CASES, name="d")
        wanted = settings_of("python", "m:f")
        outcomes = await asyncio.gather(
            *(clients[i % len(clients)].create_run(wanted, dataset.dataset_id) for i in range(4 * LIMIT)),
            return_exceptions=True,
        )
        assert len(await clients[0].list_runs()) == LIMIT
    assert sum(isinstance(outcome, Run) for outcome in outcomes) == LIMIT
    assert sum(isinstance(outcome, OverloadedError) for outcome in outcomes) == 3 * LIMIT
