"""Turns of rows on the event loop: they come in order, and without rows the loop rests."""

from __future__ import annotations

import asyncio

from assay.testing.virtual_time import run_in_virtual_time
from assay_orchestrator.engine.turns import Turns


def test_turns_come_in_order_and_the_loop_rests_afterwards() -> None:
    """A round that nothing follows is the last: an orchestrator without rows needs no processor."""
    taken: list[int] = []

    async def main() -> None:
        turns = Turns(2)

        async def row(number: int) -> None:
            await turns.take()
            taken.append(number)

        await asyncio.gather(*(row(number) for number in range(7)))
        await asyncio.sleep(3600)  # virtual time moves only where the loop has nothing to do

    run_in_virtual_time(main)
    assert taken == list(range(7))
