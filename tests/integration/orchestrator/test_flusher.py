"""Storing in batches: what was handed over is stored, whatever becomes of those who handed it over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from assay.errors import StorageError
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import DatasetRef, RowResult
from assay.model.scope import LOCAL
from assay.storage.failures import UnstorableValueError
from assay_orchestrator.pipeline.flusher import Flusher
from assay_orchestrator.pipeline.storage_pauses import Backoff, StoragePauses
from assay_orchestrator.store.rows import attempts, results
from assay_orchestrator.store.rows.results import AnswerRecord
from assay_orchestrator.store.runs import datasets, runs
from assay_orchestrator.store.runs.runs import RunRecord
from assay_orchestrator.store.shards import fairness, shards
from assay_orchestrator.store.shards.fairness import FairShares

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    import sqlalchemy as sa

    from assay.storage.database import Database
    from assay_orchestrator.store.shards.shards import Shard

_CASES = 3


class SlowWrites:
    """A database whose writes begin when they are let go on."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.read = database.read
        self.begun = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def write(self, change: Callable[[sa.Connection], Any]) -> Any:
        """Make a change, later."""
        self.begun.set()
        await self.may_go_on.wait()
        return await self._database.write(change)


class CountedWrites:
    """A database whose changes are counted."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.read = database.read
        self.count = 0

    async def write(self, change: Callable[[sa.Connection], Any]) -> Any:
        """Make a change."""
        self.count += 1
        return await self._database.write(change)


class StoredUnnoticed:
    """A database that stores each change and says at first that it could not."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.read = database.read
        self._told = set[object]()

    async def write(self, change: Callable[[sa.Connection], Any]) -> Any:
        """Make a change."""
        stored = await self._database.write(change)
        if change not in self._told:
            self._told.add(change)
            raise StorageError("the connection broke in the commit")
        return stored


@pytest_asyncio.fixture
async def store(open_store: Callable[[], Database]) -> AsyncIterator[Database]:
    """Return a database with a run of some cases, nothing of it done."""
    database = open_store()

    def fill(connection: sa.Connection) -> None:
        rows = [(f"c{i}", datasets.case_text(Case(f"c{i}", (Turn("q"),)))) for i in range(_CASES)]
        datasets.add_cases(connection, "u", 0, rows)
        datasets.finish_upload(connection, LOCAL, "u", DatasetRef("d", "d", _CASES))
        record = RunRecord(
            "r", "request", "hash", {"repeats": 1}, "d", _CASES, "0", "2026-01-01", "local", concurrency=4
        )
        runs.create_run(connection, record)
        shards.create_shards(connection, "r", _CASES, 1)
        fairness.top_up(connection, "r", FairShares({}, {}))

    try:
        await database.write(fill)
        yield database
    finally:
        database.close()


async def test_a_flush_is_not_cancelled_with_those_who_wait_for_it(store: Database) -> None:
    """Rows in the transaction under way, and rows that wait for the next, are stored though nobody waits any more."""
    shard = await store.write(lambda c: shards.start_shard(c, "r", 0, 1))
    assert shard is not None
    slow, told = SlowWrites(store), list[RowResult]()
    pauses = StoragePauses(slow, lambda _: None, _resumed)
    flusher = Flusher(pauses.of("r"), "r", told.extend, lambda since, slots: None)
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


@pytest.mark.parametrize("parts", ["answer", "result", "both"])
async def test_what_was_stored_unnoticed_is_not_stored_again(store: Database, parts: str) -> None:
    """A batch whose commit seemed to fail is stored once: its rows have one result and one number each."""
    shard = await store.write(lambda c: shards.start_shard(c, "r", 0, 1))
    assert shard is not None
    pauses = StoragePauses(StoredUnnoticed(store), lambda _: None, _resumed, backoff=Backoff(0.0, 0.0))
    flusher = Flusher(pauses.of("r"), "r", lambda _: None, lambda since, slots: None)
    await flusher.journal(shard, (0, 1, 0))
    answer, result = AnswerRecord(0, 1, 0, AgentResponse(text="a")), _row(0)
    await flusher.put(shard, answer if parts != "result" else None, result if parts != "answer" else None)
    await flusher.aclose()
    finished = await store.read(lambda c: results.read_in_order(c, "r", (-1, -1), 10))
    assert [row.sequence for row in finished] == ([1] if parts != "answer" else [])
    answered = await store.read(lambda c: results.stored_answers(c, "r", 0, _CASES))
    assert {key: len(turns) for key, turns in answered.items()} == ({(0, 1): 1} if parts != "result" else {})


async def test_an_attempt_that_came_to_its_result_is_over(store: Database) -> None:
    """Nothing is kept of it: closing ends the attempts alone that were broken off."""
    shard = await store.write(lambda c: shards.start_shard(c, "r", 0, 1))
    assert shard is not None
    counting = CountedWrites(store)
    pauses = StoragePauses(counting, lambda _: None, _resumed)
    whole, broken_off = (Flusher(pauses.of("r"), "r", lambda _: None, lambda since, slots: None) for _ in range(2))
    for index, flusher in enumerate((whole, broken_off)):
        await flusher.journal(shard, (index, 1, 1))  # its second attempt
    await _put(whole, shard, 0)
    before = counting.count
    await whole.aclose()
    assert counting.count == before
    await broken_off.aclose()
    assert counting.count == before + 1
    assert await store.read(lambda c: attempts.count_attempts(c, "r", 0, _CASES)) == {}


async def test_a_value_that_does_not_fit_fails_its_batch_and_is_no_fault_of_the_storage(store: Database) -> None:
    """Its rows get the error and the run is not paused: stored again, the value would not fit either."""
    shard = await store.write(lambda c: shards.start_shard(c, "r", 0, 1))
    assert shard is not None
    pauses = StoragePauses(store, lambda _: None, _resumed, backoff=Backoff(0.0, 0.0))
    flusher = Flusher(pauses.of("r"), "r", lambda _: None, lambda since, slots: None)
    with pytest.raises((OverflowError, UnstorableValueError)):
        await _put(flusher, shard, 2**63)
    assert pauses.message("r") == ""
    await _put(flusher, shard, 0)
    assert await store.read(lambda c: results.count_finished(c, "r")) == 1
    await flusher.aclose()


async def _resumed(run_id: str) -> None:
    """End a stored pause: there is none."""


def _row(index: int) -> RowResult:
    return RowResult(f"c{index}", index, 1, "", AgentStatus.SUCCESS, True, (), 1.0, "")


async def _put(flusher: Flusher, shard: Shard, index: int) -> None:
    await flusher.put(shard, AnswerRecord(index, 1, 0, AgentResponse(text="a")), _row(index))


async def _ends(tasks: Sequence[asyncio.Future[None]]) -> Sequence[BaseException | None]:
    return await asyncio.gather(*tasks, return_exceptions=True)
