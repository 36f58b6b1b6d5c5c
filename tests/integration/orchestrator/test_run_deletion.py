"""Deleting runs, through the real wire and a real database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from tests.support.processes.waiting import until

from assay.errors import NotFoundError, WrongStateError
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import Run, RunState
from assay.model.scope import LOCAL
from assay_orchestrator.runs.deletion import Deleter
from assay_orchestrator.store import history, schema
from assay_orchestrator.store.removal import deletions
from assay_orchestrator.store.rows.found_rows import RowQuery
from assay_orchestrator.store.runs import datasets

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import DatasetRef, RunSettings
    from assay.storage.database import Database
    from assay_orchestrator.store.removal.deletions import PendingDeletion

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSettings]

OWNED = (schema.runs, schema.score_values, schema.results, schema.answers, schema.run_events, schema.deletions)


def recorded(count: int) -> list[Case]:
    """Return cases with recorded answers."""
    return [
        Case(f"c{i}", (Turn(f"q{i}", references=(f"a{i}",)),), recorded=AgentResponse(text=f"a{i}"))
        for i in range(count)
    ]


async def finished(client: Client, settings: RunSettings, dataset: DatasetRef) -> Run:
    """Run over a dataset and return the run, ended."""
    run = await client.create_run(settings, dataset.dataset_id)
    async for _ in client.watch_run(run.run_id):
        pass
    return await client.get_run(run.run_id)


def count_rows(engine: sa.Engine, *tables: sa.Table) -> list[int]:
    """Count the rows of some tables."""
    with engine.connect() as connection:
        return [connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() for table in tables]


async def test_a_deleted_run_leaves_nothing_behind(serve: Serve, settings_of: SettingsOf, engine: sa.Engine) -> None:
    """Answers, results, events and the run go; the dataset goes with the last run that uses it."""
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(25), name="d")
        first, second = [await finished(client, settings_of(), dataset) for _ in range(2)]
        check = await client.delete_run(first.run_id, only_check=True)
        assert (check.row_count, check.dataset_removed) == (25, False)
        assert check.size_bytes > 25 * 100
        assert (await client.get_run(first.run_id)).state is RunState.SUCCEEDED
        assert await client.delete_run(first.run_id) == check
        with pytest.raises(NotFoundError, match="no run"):
            await client.get_run(first.run_id)
        assert [run.run_id for run in await client.list_runs()] == [second.run_id]
        assert len([row async for row in client.list_results(second.run_id)]) == 25
        assert count_rows(engine, schema.results, schema.answers, schema.dataset_cases) == [25, 25, 25]
        last = await client.delete_run(second.run_id)
        assert last.dataset_removed
        assert last.size_bytes > check.size_bytes
        assert count_rows(engine, *OWNED, schema.datasets, schema.dataset_cases) == [0] * 8
        again = await client.upload_dataset(recorded(25), name="d")
        assert (await finished(client, settings_of(), again)).counts.passed == 25


async def test_a_run_that_goes_on_is_not_deleted(serve: Serve, settings_of: SettingsOf) -> None:
    """Only ended and paused runs are deleted; the refusal says what to do."""
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(3), name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        for only_check in (True, False):
            with pytest.raises(WrongStateError, match="pause or cancel it"):
                await client.delete_run(run.run_id, only_check=only_check)
        await client.pause_run(run.run_id)
        assert (await client.delete_run(run.run_id)).row_count == 0
        with pytest.raises(NotFoundError):
            await client.resume_run(run.run_id)


async def test_watchers_of_a_deleted_run_are_told(serve: Serve, settings_of: SettingsOf) -> None:
    """Whoever watches a paused run that is deleted gets NOT_FOUND, not silence."""
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(3), name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        run = await client.pause_run(run.run_id)
        watching = asyncio.Event()

        async def watch() -> None:
            async for event in client.watch_run(run.run_id, after_sequence=run.last_sequence):
                assert isinstance(event, Run)
                watching.set()

        watcher = asyncio.ensure_future(watch())
        await watching.wait()
        await client.delete_run(run.run_id)
        with pytest.raises(NotFoundError, match=f"{run.run_id} was deleted"):
            await watcher


async def test_an_unknown_run_is_answered_without_the_name_of_another(serve: Serve, settings_of: SettingsOf) -> None:
    """A prefix or a mistyped id finds out nothing about runs that others have."""
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(1), name="d")
        run = await finished(client, settings_of(), dataset)
        for typed in (run.run_id[:-1] + "x", run.run_id[:12], run.run_id.upper()):
            with pytest.raises(NotFoundError, match="assay runs list") as refused:
                await client.delete_run(typed)
            assert run.run_id not in refused.value.message.replace(typed, "")


async def fill(database: Database, rows: int) -> PendingDeletion:
    """Store the rows of a deleted run."""

    def change(connection: sa.Connection) -> PendingDeletion:
        keys = [{"run_id": "r", "case_index": i // 2, "repeat_index": i % 2} for i in range(rows)]
        values = {"case_id": "c", "category": "", "status": "success", "reason": "", "scores_json": "[]"}
        connection.execute(
            schema.results.insert(),
            [{**key, **values, "sequence": i, "created_at": "t"} for i, key in enumerate(keys)],
        )
        connection.execute(schema.score_values.insert(), [{**key, "metric": "m", "value": 0.5} for key in keys])
        connection.execute(
            schema.answers.insert(),
            [{**key, "turn_index": 0, "response_json": "{}", "created_at": "t"} for key in keys],
        )
        cases = [(f"c{i}", "{}") for i in range(rows)]
        datasets.add_cases(connection, "u", 0, cases)
        connection.execute(schema.deletions.insert().values(run_id="r", upload_id="u", created_at="t"))
        return deletions.PendingDeletion("r", "u")

    return await database.write(change)


async def test_a_page_of_a_run_that_is_being_deleted_is_not_found(open_store: Callable[[], Database]) -> None:
    """A deletion that begins between the check of the run and the read of its rows, of which some are there still."""
    store = open_store()
    try:
        pending = await fill(store, 3)
        with pytest.raises(NotFoundError, match="was deleted"):
            await store.read(lambda c: history.read_page(c, LOCAL, pending.run_id, RowQuery(), None, 2))
    finally:
        store.close()


async def test_no_transaction_removes_many_rows(open_store: Callable[[], Database], engine: sa.Engine) -> None:
    """However large a run is, each transaction removes a bounded number of its rows, through an index."""
    database = open_store()
    try:
        pending = await fill(database, 1001)
        removed = []
        while gone := await database.write(lambda c: deletions.remove_some(c, pending, 100)):
            removed.append(gone)
    finally:
        database.close()
    assert removed == ([100] * 10 + [1]) * 4
    assert (
        count_rows(engine, schema.score_values, schema.results, schema.answers, schema.dataset_cases, schema.deletions)
        == [0] * 5
    )


async def test_others_write_between_two_batches(open_store: Callable[[], Database]) -> None:
    """A deletion leaves the store to others after each batch."""
    database = open_store()
    try:
        deleter = Deleter(database, batch_rows=50)
        deleting = asyncio.ensure_future(deleter.finish(await fill(database, 1000)))
        left = sa.select(sa.func.count()).select_from(schema.answers)
        seen = set()
        while not deleting.done():
            seen.add(await database.write(lambda c: c.execute(left).scalar_one()))
        await deleting
    finally:
        database.close()
    assert len(seen) > 2, "each of the writes waited for the whole deletion"


async def test_an_interrupted_deletion_goes_on_with_the_next_start(
    serve: Serve, open_store: Callable[[], Database], engine: sa.Engine
) -> None:
    """What a stop leaves of a deleted run goes when the orchestrator is there again."""
    database = open_store()
    try:
        pending = await fill(database, 300)
        await database.write(lambda c: deletions.remove_some(c, pending, 100))
    finally:
        database.close()
    async with serve():
        await until(lambda: count_rows(engine, schema.deletions), lambda counts: counts == [0])
    assert count_rows(engine, schema.results, schema.answers, schema.dataset_cases) == [0] * 3


async def test_a_dataset_that_a_new_run_uses_stays(serve: Serve, settings_of: SettingsOf) -> None:
    """A run that is created while the last other run of its dataset is deleted either runs or is told to upload."""
    async with serve() as client:
        for _ in range(5):
            dataset = await client.upload_dataset(recorded(5), name="d")
            old = await finished(client, settings_of(), dataset)
            made, gone = await asyncio.gather(
                client.create_run(settings_of(), dataset.dataset_id), client.delete_run(old.run_id),
                return_exceptions=True,
            )  # fmt: skip
            assert not isinstance(gone, BaseException)
            if isinstance(made, NotFoundError):
                assert made.reason == "DATASET_NOT_FOUND"
                continue
            assert not isinstance(made, BaseException)
            async for _event in client.watch_run(made.run_id):
                pass
            assert (await client.get_run(made.run_id)).counts.passed == 5
            await client.delete_run(made.run_id)
