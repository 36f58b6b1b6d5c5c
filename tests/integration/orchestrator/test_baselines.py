"""Baselines over the wire, on both databases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from assay.client.baselines import delete_baseline, find_baseline, list_baselines, set_baseline
from assay.client.comparison.join import read_reports
from assay.client.run_references import find_run_id
from assay.errors import InvalidInputError, NotFoundError, WrongStateError
from assay.model.answers.agent_response import AgentResponse
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


async def test_the_run_of_a_baseline_is_deleted_on_request_alone(serve: Serve, settings_of: SettingsOf) -> None:
    """Otherwise it is kept; afterwards the list says so, and the error names the command that sets another run."""
    async with serve() as client:
        run_id = await finished_run(client, settings_of())
        await set_baseline(client, "main", run_id)
        assert (await client.delete_run(run_id, only_check=True)).baselines == ("main",)
        with pytest.raises(WrongStateError, match="is baseline 'main': it is kept") as refusal:
            await client.delete_run(run_id)
        assert refusal.value.reason == "RUN_IS_BASELINE"
        assert (await client.get_run(run_id)).run_id == run_id
        await client.delete_run(run_id, with_baselines=True)
        assert [each.exists for each in await list_baselines(client)] == [False]
        with pytest.raises(NotFoundError, match="name another run with `assay baseline set RUN --name main`"):
            await find_run_id(client, "main")


async def test_baseline_means_that_of_the_spec(serve: Serve, settings_of: SettingsOf) -> None:
    """A run finds the baseline of its own spec, whatever the run is called, and never that of another one."""
    async with serve() as client:
        first = await finished_run(client, replace(settings_of(), name="one"))
        second = await finished_run(client, replace(settings_of(), name="nightly 7", spec_name="two"))
        with pytest.raises(NotFoundError, match="there is no baseline: name a run of it with `assay baseline set RUN`"):
            await find_run_id(client, "baseline")
        for run_id in (first, second):
            await set_baseline(client, (await client.get_run(run_id)).settings.baseline_name, run_id)
        assert await find_run_id(client, "baseline", baseline_name="one") == first
        assert await find_run_id(client, "baseline", baseline_name="two") == second
        with pytest.raises(NotFoundError, match=r"no baseline of the spec 'three' \(there is one, two\)"):
            await find_run_id(client, "baseline", baseline_name="three")
        with pytest.raises(InvalidInputError, match="may mean several baselines: name one of one, two"):
            await find_run_id(client, "baseline")
        async with read_reports(["baseline", second], client) as (found, _):
            assert found.run_id == second


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
