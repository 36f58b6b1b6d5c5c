"""What the shards of a run share in one process: how many questions may be in flight."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from tests.support.processes.waiting import until
from tests.support.services.run_contexts import plain_context

from assay.errors import StorageError
from assay_orchestrator.pipeline.session import Session, Sessions
from assay_orchestrator.pipeline.storage_pauses import RunStore, StoragePauses
from assay_orchestrator.store.shards.shards import Shard

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay_orchestrator.pipeline.session import Slots

NOW = 0.0


class Looks:
    """A database in which every shard is this process's; counts the looks."""

    def __init__(self) -> None:
        self.count = 0

    async def read(self, query: Callable[[Any], Any]) -> Any:
        """Note a look."""
        self.count += 1

    async def write(self, change: Callable[[Any], Any]) -> Any:
        """Refuse: nothing is stored here."""
        raise AssertionError("no test of this file stores anything")


def store(database: Looks) -> RunStore:
    """Return a database as the run uses it."""
    return StoragePauses(database, lambda _: None, resumed).of("r")


def session(*, alone: bool = False) -> Session:
    """Return a session that stores nothing."""
    return Session(store(Looks()), plain_context("r", 10), alone=alone, on_results=lambda _: None)


def shard(index: int, slots: int) -> Shard:
    """Return a shard that may ask so many questions at once."""
    return Shard("r", index, 0, 5, epoch=1, slots=slots)


async def free(asking: Slots) -> int:
    """Return how many more questions may be asked now."""
    async with AsyncExitStack() as stack:
        for count in range(100):
            try:
                async with asyncio.timeout(0):
                    await stack.enter_async_context(asking)
            except TimeoutError:
                return count
    raise AssertionError("there is no end")


async def test_shards_bring_questions_along_and_take_them_away() -> None:
    """What one of them was granted since goes with it, and what was granted to a shard that has left is nobody's."""
    made, first, second = session(), shard(0, 3), shard(1, 2)
    async with made.share(first, NOW):
        assert await free(made.asking) == 3
        async with made.share(second, NOW):
            assert await free(made.asking) == 5
            made._hold(NOW, {first: 3, second: 4})
            assert await free(made.asking) == 7
            made._hold(NOW, {second: 4})
            assert await free(made.asking) == 7
        assert await free(made.asking) == 3
        made._hold(NOW, {first: 8, second: 9})
        assert await free(made.asking) == 8
        made._hold(NOW, {first: 2})  # of an earlier moment: nothing is taken from whoever asks already
        assert await free(made.asking) == 8
    assert await free(made.asking) == 0


async def test_a_shard_that_comes_again_brings_its_own() -> None:
    """Whoever had it first, and has not noticed yet, takes away no more than it has brought."""
    made, first_may_end = session(), asyncio.Event()
    first = shard(0, 3)

    async def work() -> None:
        async with made.share(first, NOW):
            await first_may_end.wait()

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    async with made.share(replace(first, epoch=2, slots=2), NOW):
        first_may_end.set()
        await working
        assert await free(made.asking) == 2
    assert await free(made.asking) == 0


async def test_a_shard_is_given_up_when_its_questions_are_free() -> None:
    """A shard is released only when none of its questions is in flight."""
    made, finished = session(), asyncio.Event()

    async def work() -> None:
        async with made.share(shard(0, 2), NOW):
            await finished.wait()

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    async with made.asking:
        finished.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not working.done()
    await working


async def test_whose_a_shard_is_is_looked_up_when_nothing_has_told_for_a_while() -> None:
    """Taking a shard and storing rows of it tell as much; a moment before a transaction began counts."""
    looks = Looks()
    own = Session(store(looks), plain_context("r", 10), alone=False, on_results=lambda _: None)
    first, second = shard(0, 3), shard(1, 3)
    async with own.share(first, monotonic()), own.share(second, monotonic() - 1.0):
        await own.require(first)
        assert looks.count == 0
        await own.require(second)
        assert looks.count == 1
        own._known[first] = -inf
        own._hold(monotonic() - 1.0, {first: 3})
        await own.require(first)
        assert looks.count == 2
        own._known[first] = -inf
        own._hold(monotonic(), {first: 3})
        own._hold(monotonic() - 1.0, {first: 3})
        await own.require(first)
        assert looks.count == 2


async def test_alone_all_questions_are_those_of_this_process() -> None:
    """A process that alone has shards of the run may use all questions."""
    made, only = session(alone=True), shard(0, 3)
    async with made.share(only, NOW):
        made._hold(NOW, {only: 8})
        assert await free(made.asking) == 8


async def test_a_row_that_is_cancelled_while_another_has_the_run_alone_frees_its_room() -> None:
    """As many rows as before may be worked on after a shard was cancelled while it waited."""
    own = session()
    room = own._rows._value
    async with own.alone():
        waiting = [asyncio.ensure_future(own.enter()) for _ in range(room)]
        await until(lambda: own._rows.locked(), bool)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(60):
        for _ in range(room):
            await own.enter()


async def test_a_run_is_paused_while_its_process_cannot_store_that_it_lives() -> None:
    """A failed heartbeat pauses the run, because its rows cannot be stored either."""
    seen: list[str] = []
    pauses = StoragePauses(Looks(), lambda run_id: seen.append(pauses.message(run_id)), resumed)
    refusals = [StorageError("its disk is full")]

    async def until_sure() -> None:
        if refusals:
            raise refusals.pop()

    own = Session(
        pauses.of("r"), plain_context("r", 10), alone=False, on_results=lambda _: None, known_s=inf,
        until_sure=until_sure,
    )  # fmt: skip
    async with own.share(shard(0, 1), monotonic()):
        requiring = asyncio.ensure_future(own.require(shard(0, 1)))
        await until(lambda: seen)
        pauses.retry("r")
        await requiring
    assert seen == ["its disk is full", ""]


async def resumed(run_id: str) -> None:
    """End a stored pause: there is none."""


async def test_a_session_that_ends_slowly_holds_up_no_other_run() -> None:
    """Another run is not delayed by a slow end; a job of the same run joins the next session."""
    closing, may_close = asyncio.Event(), asyncio.Event()

    class Slow(Session):
        async def aclose(self) -> None:
            closing.set()
            await may_close.wait()

    async def make(run_id: str) -> Session:
        kind = Slow if run_id == "slow" else Session
        return kind(store(Looks()), plain_context(run_id, 10), alone=True, on_results=lambda _: None)

    sessions = Sessions(make)

    async def take(run_id: str) -> Session:
        async with sessions.join(run_id) as joined:
            return joined

    leaving = asyncio.ensure_future(take("slow"))
    await closing.wait()
    assert (await take("other")).context.run_id == "other"
    again = asyncio.ensure_future(take("slow"))
    may_close.set()
    assert await again is not await leaving
    assert sessions.all() == []
