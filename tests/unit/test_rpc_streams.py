from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from assay.errors import UnavailableError
from assay.rpc.streams import answered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Desk:
    """A stream of numbered requests whose answers are let go one by one."""

    def __init__(self, count: int, *, endless: bool = False) -> None:
        self.stopping = asyncio.Event()
        self.read = 0
        self.most_working = self.working = 0
        self.cancelled: list[int] = []
        self.let_go = [asyncio.Event() for _ in range(count)]
        self._endless = endless

    async def requests(self) -> AsyncIterator[int]:
        for number in range(len(self.let_go)):
            self.read += 1
            yield number
        if self._endless:
            await asyncio.Event().wait()

    async def answer(self, number: int) -> str:
        self.working += 1
        self.most_working = max(self.most_working, self.working)
        try:
            await self.let_go[number].wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        finally:
            self.working -= 1
        return f"answer {number}"

    def answers(self, in_flight: int = 10) -> AsyncIterator[str]:
        return answered(self.requests(), self.answer, in_flight=in_flight, stopping=self.stopping)


async def turns(count: int) -> None:
    """Let every task go as far as it can by itself."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_answers_come_as_they_are_ready() -> None:
    """A slow request does not hold up the others."""
    desk = Desk(3)
    answers = desk.answers()
    desk.let_go[2].set()
    assert await anext(answers) == "answer 2"
    desk.let_go[0].set()
    assert await anext(answers) == "answer 0"
    desk.let_go[1].set()
    assert [answer async for answer in answers] == ["answer 1"]


async def test_requests_at_once_are_bounded() -> None:
    """A client that sends faster than answers come is read no further."""
    desk = Desk(50)
    for event in desk.let_go[3:]:
        event.set()
    answers = desk.answers(in_flight=3)
    first = asyncio.ensure_future(anext(answers))
    await turns(50)
    assert desk.working == 3
    assert desk.read <= 4
    for event in desk.let_go:
        event.set()
    assert len({await first} | {answer async for answer in answers}) == 50
    assert desk.most_working == 3


async def test_stopping_ends_the_stream_after_the_answers_under_way() -> None:
    """A client that keeps its stream open learns that the server stops, and loses no answer."""
    desk = Desk(2, endless=True)
    answers = desk.answers()
    desk.let_go[0].set()
    assert await anext(answers) == "answer 0"
    desk.stopping.set()
    desk.let_go[1].set()
    assert await anext(answers) == "answer 1"
    with pytest.raises(UnavailableError) as caught:
        await anext(answers)
    assert caught.value.reason == "STOPPING"


async def test_leaving_client_cancels_the_work() -> None:
    """Closing the stream cancels what nobody waits for any more."""
    desk = Desk(3)
    answers = desk.answers()
    waiting = asyncio.ensure_future(anext(answers))
    await turns(50)
    assert desk.working == 3
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert sorted(desk.cancelled) == [0, 1, 2]


async def test_failure_of_an_answer_ends_the_stream() -> None:
    """What `answer` does not turn into an answer is not lost."""

    async def failing(number: int) -> str:
        raise ValueError(number)

    desk = Desk(1)
    with pytest.raises(ValueError, match="0"):
        await anext(answered(desk.requests(), failing, in_flight=1, stopping=desk.stopping))
