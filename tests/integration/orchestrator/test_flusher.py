"""Storing in batches: what was handed over is stored, whatever becomes of those who handed it over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest_asyncio

from assay.answers import AgentResponse, AgentStatus
from assay.cases import Case, Turn
from assay.results import CaseResult, DatasetRef
from assay_orchestrator.flusher import Flusher
from assay_orchestrator.store import datasets, results, runs, shards
from assay_orchestrator.store.results import AnswerRecord
from assay_orchestrator.store.runs import RunRecord
from assay_orchestrator.store.shards import FairShares

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    import sqlalchemy as sa

    from assay.storage.database import Database
    from assay_orchestrator.store.shards import Shard

_CASES = 3


class SlowWrites:
    """A database whose writes begin when they are let go on."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.begun = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def write(self, change: Callable[[sa.Connection], Any]) -> Any:
        """Make a change, later."""
        self.begun.set()
        await self.may_go_on.wait()
        return await self._database.write(change)


@pytest_asyncio.fixture
async def store(open_store: Callable[[], Database]) -> AsyncIterator[Database]:
    """Return a database with a run of some cases, nothing of it done."""
    database = open_store()

    def fill(connection: sa.Connection) -> None:
        rows = [(f"c{i}", datasets.case_text(Case(f"c{i}", (Turn("q"),)))) for i in range(_CASES)]
        datasets.add_cases(connection, "u", 0, rows)
        datasets.finish(connection, "u", DatasetRef("d", "d", "jsonl", _CASES))
        record = RunRecord("r", "request", "hash", {"repeats": 1}, "d", _CASES, "0", "2026-01-01", concurrency=4)
        runs.create(connection, record)
        shards.create(connection, "r", _CASES, 1)
        shards.top_up(connection, "r", FairShares({}, {}))

    try:
        await database.write(fill)
        yield database
    finally:
        database.close()


async def test_a_flush_is_not_cancelled_with_those_who_wait_for_it(store: Database) -> None:
    """Rows in the transaction under way, and rows that wait for the next, are stored though nobody waits any more."""
    shard = await store.write(lambda c: shards.start(c, "r", 0, 1))
    assert shard is not None
    slow, told = SlowWrites(store), list[CaseResult]()
    flusher = Flusher(slow, "r", told.extend, lambda since, slots: None)  # type: ignore[arg-type]  # it only writes
    first = [asyncio.ensure_future(_put(flusher, shard, 0))]
    await slow.begun.wait()
    later = [asyncio.ensure_future(_put(flusher, shard, index)) for index in range(1, _CASES)]
    await asyncio.sleep(0)  # they hand their rows over
    for waiting in first + later:
        waiting.cancel()
    assert all(isinstance(end, asyncio.CancelledError) for end in await _ends(first + later))
    slow.may_go_on.set()
    await flusher.aclose()
    assert [row.case_id for row in told] == ["c0", "c1", "c2"]
    assert [row.sequence for row in told] == [1, 2, 3]
    assert await store.read(lambda c: results.count_finished(c, "r")) == _CASES
    assert len(await store.read(lambda c: results.stored_answers(c, "r", 0, _CASES))) == _CASES


async def _put(flusher: Flusher, shard: Shard, index: int) -> None:
    result = CaseResult(f"c{index}", index, 0, "", AgentStatus.SUCCESS, True, (), 1.0, "")
    await flusher.put(shard, AnswerRecord(index, 0, 0, AgentResponse(text="a")), result)


async def _ends(tasks: Sequence[asyncio.Future[None]]) -> Sequence[BaseException | None]:
    return await asyncio.gather(*tasks, return_exceptions=True)
