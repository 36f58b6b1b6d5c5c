"""Identical requests that are under way at once share one call, as long as one of them waits for it."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from tests.support.processes.virtual_time import in_virtual_time

from assay.testing.virtual_time import run_in_virtual_time
from assay_judge.grading.single_flight import SingleFlight


class Calls:
    """Calls that take time, and what became of them."""

    def __init__(self, takes_s: float = 10.0, ends_s: float = 0.0) -> None:
        self._takes_s = takes_s
        self._ends_s = ends_s
        self.began = 0
        self.events: list[str] = []

    async def one(self) -> str:
        """Return which call it is, after a while."""
        self.began += 1
        name = f"call {self.began}"
        try:
            await asyncio.sleep(self._takes_s)
        except asyncio.CancelledError:
            await asyncio.sleep(self._ends_s)
            self.events.append(f"{name} ended")
            raise
        return name


@in_virtual_time
async def test_requests_at_once_share_a_call_and_later_ones_have_their_own() -> None:
    """Concurrent identical requests share a call; a later request makes a new one."""
    work, calls = SingleFlight[str](), Calls()
    assert not work.is_in_flight("k")
    together = asyncio.gather(*(work.do("k", calls.one, 60) for _ in range(3)))
    await asyncio.sleep(1)
    assert work.is_in_flight("k")
    assert not work.is_in_flight("other")
    assert await work.do("other", calls.one, 60) == "call 2"
    assert await together == ["call 1"] * 3
    assert not work.is_in_flight("k")
    assert await work.do("k", calls.one, 60) == "call 3"


@in_virtual_time
async def test_the_last_one_to_leave_ends_the_call() -> None:
    """The call is cancelled, and its end awaited, once the last waiting request has left."""
    work, calls = SingleFlight[str](), Calls(ends_s=2.0)
    waiting = [asyncio.ensure_future(work.do("k", calls.one, timeout_s)) for timeout_s in (1, 2, 5)]
    for timeout_s, task in zip((1, 2, 7), waiting, strict=True):
        assert calls.events == []
        with pytest.raises(TimeoutError):
            await task
        assert asyncio.get_running_loop().time() == pytest.approx(timeout_s)
    assert calls.events == ["call 1 ended"]
    assert calls.began == 1
    assert not work.is_in_flight("k")


@in_virtual_time
async def test_a_call_that_is_ending_is_not_joined() -> None:
    """A request during the cleanup of a cancelled call makes its own call."""
    work, calls = SingleFlight[str](), Calls(ends_s=3.0)
    leaving = asyncio.ensure_future(work.do("k", calls.one, 1))
    await asyncio.sleep(2)
    assert not work.is_in_flight("k")
    staying = asyncio.ensure_future(work.do("k", calls.one, 60))
    with pytest.raises(TimeoutError):
        await leaving
    assert work.is_in_flight("k")
    assert await work.do("k", calls.one, 60) == await staying == "call 2"


@in_virtual_time
async def test_closing_ends_all_calls() -> None:
    """Closing ends every call and cancels the requests that wait for them."""
    work, calls = SingleFlight[str](), Calls(ends_s=2.0)
    waiting = [asyncio.ensure_future(work.do(key, calls.one, 60)) for key in "abc"]
    await asyncio.sleep(1)
    await work.aclose()
    assert sorted(calls.events) == ["call 1 ended", "call 2 ended", "call 3 ended"]
    for task in waiting:
        with pytest.raises(asyncio.CancelledError):
            await task


def test_a_call_that_fails_as_it_ends_is_no_unhandled_error() -> None:
    """All who asked are gone: asyncio has nothing to report when the call is collected."""
    reported: list[dict[str, Any]] = []

    async def fails() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            raise OSError("the disk is full")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        with pytest.raises(TimeoutError):
            await SingleFlight[None]().do("k", fails, 1)
        gc.collect()

    run_in_virtual_time(main)
    assert reported == []
