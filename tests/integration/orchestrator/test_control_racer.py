"""Operators who press everything at once: two orchestrators over one PostgreSQL, real wire, seeded."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from typing import TYPE_CHECKING

import psycopg
import pytest
import sqlalchemy as sa
from tests.support.processes.waiting import until

from assay.errors import NotFoundError, WrongStateError
from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, error_response
from assay.model.case import Case, Turn
from assay.model.run import Run, RunState
from assay_orchestrator.store import schema
from assay_orchestrator.store.rows import results
from assay_orchestrator.store.runs import runs
from assay_orchestrator.store.shards import shards

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.client.client import Client
    from assay.model.run import RunSettings

ROUNDS = 12
CASES = 60


def operations(client: Client) -> list[Callable[[str], Awaitable[object]]]:
    """Return what operators do most, and what ends a run, which they do less often."""
    retry = functools.partial(client.resume_run, retry_errors=True)
    often: list[Callable[[str], Awaitable[object]]] = [client.pause_run, client.resume_run, retry]
    return [*often, *often, *often, client.cancel_run, client.delete_run]


async def attempt(operation: Awaitable[object]) -> bool:
    """Carry out an operation that may come too late; return whether it did not."""
    try:
        await operation
    except (WrongStateError, NotFoundError):
        return False
    return True


def assert_whole(connection: sa.Connection, run_id: str, *, is_done: bool) -> None:
    """Check that a run's counts are those of its rows, and that no attempt is missing or there twice."""
    run = runs.load_run(connection, run_id)
    assert run is not None
    table, history = schema.results, schema.row_history
    rows = connection.execute(sa.select(table.c.status, table.c.passed).where(table.c.run_id == run_id)).all()
    counted = (run.finished_count, run.passed_count, run.failed_count, run.agent_error_count)
    assert counted == (
        len(rows),
        sum(row.passed is True for row in rows),
        sum(row.passed is False for row in rows),
        sum(row.status == "error" for row in rows),
    )
    assert run == results.recounted(connection, run)
    found: dict[tuple[int, int], list[int]] = {}
    for row in connection.execute(
        sa.select(history).where(history.c.run_id == run_id).order_by(history.c.attempt_index)
    ):
        assert row.outcome == "retried"
        found.setdefault((row.case_index, row.repeat_index), []).append(row.attempt_index)
    assert all(indexes == list(range(len(indexes))) for indexes in found.values())
    if is_done:
        assert len(rows) == run.total_count
        states = schema.shards.c.state
        assert set(connection.execute(sa.select(states).where(schema.shards.c.run_id == run_id)).scalars()) == {"done"}


async def at_rest(client: Client, run_id: str) -> Run | None:
    """Return a run once it is paused or has ended; None where it was deleted."""

    async def look() -> Run:
        with contextlib.suppress(WrongStateError):
            await client.pause_run(run_id)
        return await client.get_run(run_id)

    try:
        run: Run = await until(look, lambda run: run.finished or run.state is RunState.PAUSED)
    except NotFoundError:
        return None
    return run


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_operators_at_two_processes_corrupt_nothing(
    seed: int,
    tmp_path: Path,
    migrated_postgres_url: str,
    serve_at: Callable[..., AbstractAsyncContextManager[Client]],
    settings_of: Callable[..., RunSettings],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After each round of operations at both, counts, attempts and states are right, and every run still ends."""
    monkeypatch.setattr(shards, "create_shards", functools.partial(shards.create_shards, rows=8))
    chance = random.Random(seed)
    failed = error_response(AgentErrorKind.RAISED, "recorded", retryable=False)
    content = [
        Case(f"c{i}", (Turn(f"q{i}", references=("a",)),), recorded=failed if i % 3 == 0 else AgentResponse(text="a"))
        for i in range(CASES)
    ]
    engine = sa.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(migrated_postgres_url), poolclass=sa.NullPool
    )
    options = {"database_url": migrated_postgres_url, "row_try_limit": 1000}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    async with (
        serve_at(tmp_path / "a", **options) as first,
        serve_at(tmp_path / "b", **options) as second,
    ):
        dataset = await first.upload_dataset(content, name="d")
        run_id, done_count = "", 0
        for _ in range(ROUNDS):
            if not run_id:
                run_id = (await first.create_run(settings_of(), dataset.dataset_id)).run_id
                keeper = await second.create_run(settings_of(), dataset.dataset_id)  # so that the dataset stays
            moves = [chance.choice(operations(chance.choice((first, second))))(run_id) for _ in range(6)]
            done_count += sum(await asyncio.gather(*map(attempt, moves)))
            run = await at_rest(second, run_id)
            if run is None:
                run_id = ""
                continue
            with engine.connect() as connection:
                assert_whole(connection, run_id, is_done=run.state is RunState.SUCCEEDED)
            if run.state is RunState.CANCELLED:
                run_id = ""
            for client in (first, second):
                assert await client.list_runs()
        assert (await first.get_run(keeper.run_id)).run_id == keeper.run_id
        for each in filter(None, (run_id, keeper.run_id)):
            with contextlib.suppress(WrongStateError):
                await first.resume_run(each)
            async for _ in second.watch_run(each):
                pass
            assert (await first.get_run(each)).state is RunState.SUCCEEDED
            with engine.connect() as connection:
                assert_whole(connection, each, is_done=True)
    assert done_count >= ROUNDS, "operators did something in the rounds"
