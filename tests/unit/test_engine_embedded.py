"""What a dispatcher promises: the one within a process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest_asyncio

from assay_orchestrator.engine.dispatcher import TryAgainError
from assay_orchestrator.engine.embedded import EmbeddedDispatcher
from assay_orchestrator.store.shards import ShardJob

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Work:
    """Does jobs by noting them, and what else a test wants."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []
        self.moved = asyncio.Event()
        self.before: Callable[[tuple[str, int]], Any] = lambda _: None

    async def __call__(self, run_id: str, shard_index: int, ticket: int) -> None:
        waited = self.before((run_id, shard_index))
        if waited is not None:
            await waited
        self.done.append((run_id, shard_index))
        self.moved.set()

    async def until(self, count: int) -> None:
        """Wait until so many jobs were done."""
        while len(self.done) < count:
            self.moved.clear()
            await self.moved.wait()


@pytest_asyncio.fixture
async def dispatcher() -> AsyncIterator[EmbeddedDispatcher]:
    """Return a dispatcher that does one job at a time, not opened yet."""
    made = EmbeddedDispatcher(1)
    yield made
    await made.aclose()


async def test_the_highest_priority_is_served_first(dispatcher: EmbeddedDispatcher) -> None:
    """Jobs that wait are taken in the order of their priority, those of a later transaction too."""
    dispatcher.committed([ShardJob("r", 0, -30), ShardJob("r", 1, -10)])
    dispatcher.committed([ShardJob("s", 0, -20)])
    work = Work()
    dispatcher.open(work)
    await work.until(3)
    assert work.done == [("r", 1), ("s", 0), ("r", 0)]


async def test_a_job_that_asks_for_it_comes_again(dispatcher: EmbeddedDispatcher) -> None:
    """TryAgainError is no end, and neither is a defect: the job comes until it returns."""
    work, problems = Work(), [TryAgainError(), ValueError("a defect")]

    def fail(_: tuple[str, int]) -> None:
        if problems:
            raise problems.pop(0)

    work.before = fail
    dispatcher.open(work)
    dispatcher.committed([ShardJob("r", 0, 0)])
    await work.until(1)
    assert (work.done, problems) == ([("r", 0)], [])


async def test_closing_waits_for_what_was_taken(dispatcher: EmbeddedDispatcher) -> None:
    """A job under way ends before the dispatcher does, and nothing new is begun."""
    work, taken, go_on = Work(), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        taken.set()
        await go_on.wait()

    work.before = lambda _: wait()
    dispatcher.open(work)
    dispatcher.committed([ShardJob("r", 0, 0), ShardJob("r", 1, -1)])
    await taken.wait()
    closing = asyncio.ensure_future(dispatcher.aclose())
    await asyncio.sleep(0)
    assert not closing.done()
    go_on.set()
    await closing
    assert work.done == [("r", 0)]


async def test_lost_jobs_are_found(dispatcher: EmbeddedDispatcher) -> None:
    """A job that waits or is under way is not lost; one that was never enqueued is."""
    work, taken, go_on = Work(), asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        taken.set()
        await go_on.wait()

    work.before = lambda _: wait()
    dispatcher.open(work)
    jobs = [ShardJob("r", 0, 0), ShardJob("r", 1, -1), ShardJob("r", 2, -2)]
    dispatcher.committed(jobs[:2])
    await taken.wait()
    assert await dispatcher.lost(jobs) == jobs[2:]
    go_on.set()
    await work.until(2)
