"""Baselines over the wire, on both databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.client.baselines import delete_baseline, find_baseline, list_baselines, set_baseline
from assay.client.run_references import find_run_id
from assay.errors import InvalidInputError, NotFoundError
from assay.model.agent_response import AgentResponse
from assay.model.case import Case, Turn

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import RunSettings

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSettings]


async def finished_run(client: Client, settings: RunSettings) -> str:
    """Return the id of a run over one case that has ended."""
    cases = [Case("c0", (Turn("q", references=("yes",)),), recorded=AgentResponse(text="yes"))]
    dataset = await client.upload_dataset(cases, name="d")
    run_id = (await client.create_run(settings, dataset.dataset_id)).run_id
    async for _ in client.watch_run(run_id):
        pass
    return run_id


async def test_a_baseline_is_a_name_that_moves(serve: Serve, settings_of: SettingsOf) -> None:
    """It is set, found in place of an id, given to another run, and forgotten; its run stays."""
    async with serve() as client:
        first, second = [await finished_run(client, settings_of()) for _ in range(2)]
        assert await list_baselines(client) == []
        assert (await set_baseline(client, "main", first)).run_id == first
        assert await find_run_id(client, "main") == first
        await set_baseline(client, "main", second)
        await set_baseline(client, "release 1", first)
        assert [(each.name, each.run_id) for each in await list_baselines(client)] == [
            ("main", second),
            ("release 1", first),
        ]
        await delete_baseline(client, "main")
        assert await find_baseline(client, "main") is None
        assert (await client.get_run(second)).run_id == second


async def test_the_run_of_a_baseline_may_be_deleted(serve: Serve, settings_of: SettingsOf) -> None:
    """The list says so, and the error names the command that sets another run."""
    async with serve() as client:
        run_id = await finished_run(client, settings_of())
        await set_baseline(client, "main", run_id)
        await client.delete_run(run_id)
        assert [each.exists for each in await list_baselines(client)] == [False]
        with pytest.raises(NotFoundError, match="name another run with `assay baseline set RUN --name main`"):
            await find_run_id(client, "main")


async def test_what_is_refused(serve: Serve, settings_of: SettingsOf) -> None:
    """A name that cannot be written, a run that is not there, a baseline that is not there."""
    async with serve() as client:
        run_id = await finished_run(client, settings_of())
        for name in ("", "a" * 101, "a\nb"):
            with pytest.raises(InvalidInputError, match="name"):
                await set_baseline(client, name, run_id)
        with pytest.raises(NotFoundError):
            await set_baseline(client, "main", "missing")
        with pytest.raises(NotFoundError, match="there is no baseline 'main'"):
            await delete_baseline(client, "main")
