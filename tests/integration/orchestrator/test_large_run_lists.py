"""Lists of runs whose settings are large: every page fits in a message, and nothing is left out."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from assay.errors import InvalidInputError
from assay.model.case import Case, Turn
from assay.model.run import DatasetReading, DatasetRef, MetricSpec, Run, RunSpec, RunState
from assay.model.scope import LOCAL
from assay.model.views import RunView
from assay_orchestrator.store.runs import datasets, runs
from assay_orchestrator.store.runs.runs import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    import sqlalchemy as sa

    from assay.client.client import Client
    from assay.storage.database import Database

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]

SETTINGS_BYTES = 480_000


def large_settings(settings: RunSpec) -> RunSpec:
    """Return settings of 480 KB: the reading of a dataset with warnings, and a schema."""
    schema = {"enum": ["x" * 9_800]}
    reading = DatasetReading("d.json", "plain/json", "0" * 64, {}, warnings=("w" * (SETTINGS_BYTES - 10_000),))
    metrics = (*settings.metrics, MetricSpec("json_schema", {"schema": schema}))
    return dataclasses.replace(settings, name="js", dataset=reading, metrics=metrics)


async def store_runs(database: Database, settings: RunSpec, count: int) -> None:
    """Store completed runs with these settings, one a second, directly in the database."""
    spec = dataclasses.asdict(settings)
    assert len(json.dumps(spec)) >= SETTINGS_BYTES

    def store(connection: sa.Connection) -> None:
        datasets.add_cases(connection, "u", 0, [("c", datasets.case_text(Case("c", (Turn("q"),))))])
        datasets.finish_upload(connection, LOCAL, "u", DatasetRef("d", "d", 1))
        for index in range(count):
            moment = f"2026-05-01T{index // 3600:02}:{index // 60 % 60:02}:{index % 60:02}.000Z"
            name = f"js-20260501-000000-{index:06x}"
            record = RunRecord(name, f"q{index}", "h", spec, "d", 1, "0.1.0", moment, "local", RunState.COMPLETED)
            runs.create_run(connection, dataclasses.replace(record, ended_at=moment))

    await database.write(store)


async def assay(client: Client, *words: str) -> dict[str, Any]:
    """Run the command against a client's orchestrator, and return what it prints as JSON."""
    command = [sys.executable, "-m", "assay_cli", *words, "--json", "--server", client.address]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert process.returncode == 0
    document: dict[str, Any] = json.loads(printed)
    return document


@pytest.mark.parametrize(
    ("database_url", "count"),
    [("sqlite", 60), ("postgres", 60), pytest.param("sqlite", 2_000, marks=pytest.mark.nightly)],
    indirect=["database_url"],
)
async def test_runs_with_large_settings_are_listed_and_pruned(
    open_store: Callable[[], Database], serve: Serve, settings_of: SettingsOf, count: int
) -> None:
    """Runs of 480 KB each can be listed, with and without a filter, and pruned with the command."""
    database = open_store()
    try:
        await store_runs(database, large_settings(settings_of()), count)
    finally:
        database.close()
    async with serve() as client:
        for condition in ([], ["--name", "js"]):
            listed = await assay(client, "runs", "list", "--limit", "500", *condition)
            assert len({run["run_id"] for run in listed["runs"]}) == min(count, 500)
        pruned = await assay(client, "runs", "prune", "--keep", "3", "--dry-run")
        assert len(pruned["runs"]) == count - 3


async def test_a_page_ends_before_it_exceeds_a_message(
    open_store: Callable[[], Database], serve: Serve, settings_of: SettingsOf
) -> None:
    """Whole runs come in pages of 3 MiB, in any order, each run once and complete."""
    settings = large_settings(settings_of())
    database = open_store()
    try:
        await store_runs(database, settings, 20)
    finally:
        database.close()
    async with serve() as client:
        for order in ("", "created"):
            seen: list[Run] = []
            sizes: list[int] = []
            token = ""
            while token or not seen:
                page = await client.run_page(order_by=order, page_token=token, view=RunView.FULL)
                seen += page.runs
                sizes.append(len(page.runs))
                token = page.next_page_token
            assert sizes == [6, 6, 6, 2]
            assert len({run.run_id for run in seen}) == 20
            assert all(run.spec.dataset == settings.dataset for run in seen)
        (basic,) = await client.list_runs(1)
        assert basic.spec.dataset == dataclasses.replace(settings.dataset or DatasetReading("", "", ""), warnings=())
        assert [metric.parameters for metric in basic.spec.metrics] == [{}] * len(settings.metrics)


async def test_the_client_halves_a_page_that_is_too_large(serve: Serve) -> None:
    """A server without the bound is asked for smaller pages, down to one entry."""
    asked = []

    async def fetch(size: int) -> int:
        asked.append(size)
        if size > 62:
            raise InvalidInputError("A message is too large", reason="MESSAGE_TOO_LARGE")
        return size

    async def fail(size: int) -> int:
        raise InvalidInputError("A message is too large", reason="MESSAGE_TOO_LARGE")

    async with serve() as client:
        assert await client._page(fetch, 500) == 62
        assert asked == [500, 250, 125, 62]
        with pytest.raises(InvalidInputError):
            await client._page(fail, 4)
