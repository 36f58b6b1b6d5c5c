"""Storage pauses in virtual time: when what could not be stored is stored again."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.support.processes.virtual_time import in_virtual_time

from assay.errors import StorageError
from assay.storage.outages import Outages
from assay_orchestrator.pipeline.storage_pauses import StoragePauses

if TYPE_CHECKING:
    from collections.abc import Callable


def now() -> float:
    """Return the time of the running loop."""
    return asyncio.get_running_loop().time()


class Store:
    """A database that stores nothing until a time, and what its runs were told."""

    def __init__(self, full_until_s: float = 1e9) -> None:
        self.full_until_s = full_until_s
        self.times: list[float] = []
        self.changed: list[str] = []
        self.resumed: list[str] = []
        self.pauses = StoragePauses(self, self.changed.append, self._resume)

    async def read(self, query: Callable[[Any], Any]) -> Any:
        """Refuse: no test of this file reads."""
        raise AssertionError("no test of this file reads anything")

    async def write(self, change: Callable[[Any], Any]) -> Any:
        """Refuse also to store that a run is paused."""
        raise StorageError("the disk is full")

    async def _resume(self, run_id: str) -> None:
        self.resumed.append(run_id)

    async def attempt(self) -> str:
        """Store a row."""
        self.times.append(now())
        if now() < self.full_until_s:
            raise StorageError(f"the disk is full at {now():g} s")
        return "stored"


@in_virtual_time
async def test_the_backoff_doubles_from_half_a_second_to_fifteen() -> None:
    """As docs/database.md says; the run is resumed when its rows are stored."""
    store = Store(full_until_s=50)
    assert await store.pauses.outlast("r", store.attempt) == "stored"
    assert store.times == [0, 0.5, 1.5, 3.5, 7.5, 15.5, 30.5, 45.5, 60.5]
    assert store.resumed == ["r"]
    assert store.changed == ["r", "r"]  # when it was paused, and when it was resumed
    assert store.pauses.message("r") == ""


@in_virtual_time
async def test_the_reason_is_that_of_the_last_attempt() -> None:
    """Other runs have none."""
    store = Store()
    waiting = asyncio.ensure_future(store.pauses.outlast("r", store.attempt))
    await asyncio.sleep(0.1)
    assert store.pauses.message("r") == "the disk is full at 0 s"
    await asyncio.sleep(2)
    assert store.pauses.message("r") == "the disk is full at 1.5 s"
    assert store.pauses.message("other") == ""
    store.pauses.give_up("r")
    with pytest.raises(StorageError):
        await waiting


@in_virtual_time
async def test_a_resumed_run_is_stored_again_at_once() -> None:
    """Its owner need not wait for the backoff; a run that is not paused is asked in vain."""
    store = Store(full_until_s=20)
    for change in (store.pauses.retry, store.pauses.give_up):
        change("r")
    waiting = asyncio.ensure_future(store.pauses.outlast("r", store.attempt))
    await asyncio.sleep(20)
    store.pauses.retry("other")
    store.pauses.retry("r")
    await waiting
    assert store.times[-1] == now() == 20


@in_virtual_time
async def test_a_run_that_can_be_stored_again_takes_the_others_along() -> None:
    """They share a disk; a run that was given up says nothing about it."""
    store, other = Store(full_until_s=20), Store()
    waiting = asyncio.ensure_future(store.pauses.outlast("r", store.attempt))
    await asyncio.sleep(1)
    longer = asyncio.ensure_future(store.pauses.outlast("other", other.attempt))
    given_up = asyncio.ensure_future(store.pauses.outlast("given up", Store().attempt))
    await asyncio.sleep(9)
    before = list(other.times)
    store.pauses.give_up("given up")
    with pytest.raises(StorageError):
        await given_up
    await asyncio.sleep(0)
    assert other.times == before
    await asyncio.sleep(9.5)
    store.pauses.retry("r")
    await asyncio.sleep(0.5)
    store.pauses.retry("r")
    await waiting
    assert store.times[-1] == 20
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert other.times[-1] == 20
    assert store.resumed == ["r"]
    store.pauses.close()
    with pytest.raises(StorageError):
        await longer


@in_virtual_time
async def test_the_last_of_several_waiting_rows_resumes_the_run() -> None:
    """Once; until then nothing new is asked, unless the run is to be paused."""
    store, slow = Store(full_until_s=3), Store(full_until_s=10)
    both = [asyncio.ensure_future(store.pauses.outlast("r", each.attempt)) for each in (store, slow)]
    await asyncio.sleep(0.1)
    never, pausing = asyncio.Event(), asyncio.Event()
    storable = asyncio.ensure_future(store.pauses.until_storable("r", never))
    unless = asyncio.ensure_future(store.pauses.until_storable("r", pausing))
    await asyncio.sleep(4)
    assert store.resumed == []
    assert not storable.done()
    pausing.set()
    assert await unless is False
    assert [await each for each in both] == ["stored", "stored"]
    assert store.resumed == ["r"]
    assert await storable is True
    assert await store.pauses.until_storable("r", pausing) is True


@in_virtual_time
async def test_a_process_that_stops_stores_a_last_time_and_waits_no_longer() -> None:
    """What fails then, and what fails later, is dropped."""
    store, other = Store(), Store()
    waiting = asyncio.ensure_future(store.pauses.outlast("r", store.attempt))
    await asyncio.sleep(2)
    store.pauses.close()
    with pytest.raises(StorageError):
        await waiting
    assert store.times == [0, 0.5, 1.5, 2]
    with pytest.raises(StorageError):
        await store.pauses.outlast("other", other.attempt)
    assert other.times == [2]
    assert store.resumed == []


def failing(times: int) -> Callable[[], str]:
    """Return an attempt that finds the server away so many times."""
    left = [psycopg.errors.AdminShutdown("terminating connection due to administrator command")] * times

    def attempt() -> str:
        if left:
            raise left.pop()
        return "done"

    return attempt


def test_one_broken_connection_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    """Connections that end while they are idle are replaced without a word, with no patience at all."""
    assert Outages(0.0, str).outlast(failing(1), threading.Event()) == "done"
    assert caplog.records == []


def test_without_patience_a_second_failure_is_for_good(caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets the error, and the log says that the server is away."""
    with pytest.raises(psycopg.errors.AdminShutdown):
        Outages(0.0, str).outlast(failing(2), threading.Event())
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["retrying for 0 s"]
