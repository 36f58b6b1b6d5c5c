"""Settlements that cannot be written at once, and writes whose caller is cancelled."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.processes.waiting import until

from assay.errors import StorageError
from assay.model.scope import Scope
from assay_judge.batches.settlements import Settlement, Settlements, run_to_end
from assay_judge.clock import SYSTEM_CLOCK
from assay_judge.model import RunKey


class Account:
    """The account of a team's run, and how its writes fare."""

    def __init__(self, team: str = "a", failures: int = 0) -> None:
        self.failures = failures
        self.writes = 0
        self.is_open = True
        self.settlement = Settlement(RunKey(team, "r"), self.write, self.close)

    async def write(self) -> None:
        """Fail a few times."""
        assert self.is_open
        self.writes += 1
        if self.writes <= self.failures:
            raise StorageError("the disk is full")

    def close(self) -> None:
        """Close it."""
        self.is_open = False


async def test_what_fails_is_written_later_and_closes_its_account_then(caplog: pytest.LogCaptureFixture) -> None:
    """A failed settlement is repeated alone and delays no other one."""
    settlements = Settlements(SYSTEM_CLOCK, 0.001)
    good, bad = Account(), Account(failures=3)
    await settlements.write([bad.settlement, good.settlement])
    assert (good.is_open, bad.is_open) == (False, True)
    repeating = asyncio.ensure_future(settlements.run())
    await until(lambda: not bad.is_open)
    repeating.cancel()
    await asyncio.wait([repeating])
    assert (good.writes, bad.writes) == (1, 4)
    assert caplog.text.count("cannot settle reservations, they stay set aside: count=1: the disk is full") == 3


async def test_nothing_is_written_of_a_deleted_team() -> None:
    """A deleted team's settlements are dropped and its accounts closed; those of other teams stay."""
    settlements = Settlements(SYSTEM_CLOCK, 0.0)
    deleted, other = Account("a", failures=1), Account("b", failures=1)
    await settlements.write([deleted.settlement, other.settlement])
    settlements.forget(Scope("a"))
    assert (deleted.is_open, other.is_open) == (False, True)
    await settlements.retry()
    assert (deleted.writes, other.writes) == (1, 2)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancellation_waits_for_writes_that_belong_together(fails: bool) -> None:
    """Writes that belong together end, even by a failure, before their caller is cancelled."""
    begun, may_end = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def work() -> None:
        begun.set()
        await may_end.wait()
        done.append("written")
        if fails:
            raise StorageError("the disk is full")

    caller = asyncio.ensure_future(run_to_end(work()))
    await begun.wait()
    for _ in range(2):
        caller.cancel()
        await asyncio.wait([caller], timeout=0)
    assert not caller.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == ["written"]


async def test_work_that_nobody_cancels_gives_its_result() -> None:
    """Or its failure."""

    async def work(failure: Exception | None) -> int:
        if failure is not None:
            raise failure
        return 7

    assert await run_to_end(work(None)) == 7
    with pytest.raises(StorageError):
        await run_to_end(work(StorageError("the disk is full")))
