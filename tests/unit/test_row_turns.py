"""Turns of rows on the event loop: they come in order, and without rows the loop rests."""

from __future__ import annotations

import asyncio

from assay_orchestrator.pipeline.turns import Turns


def test_turns_come_in_order_and_the_loop_rests_afterwards() -> None:
    """A round that nothing follows is the last: an orchestrator without rows needs no processor."""
    taken: list[int] = []

    async def main() -> None:
        turns = Turns(2)

        async def row(number: int) -> None:
            await turns.take()
            taken.append(number)

        await asyncio.gather(*(row(number) for number in range(7)))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not turns._is_scheduled

    asyncio.run(main())
    assert taken == list(range(7))
