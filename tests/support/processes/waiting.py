"""Waiting for what another task, thread or process brings about: never for ever, and with what was seen last.

A condition holds from then on, as "at least three" does: one that passes by, as "just three" may, is waited for in vain
on a machine that others use.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

Seen = TypeVar("Seen")

# Far more than anything takes on a busy machine, and less than the time limit of a test.
WITHIN_S = 200.0
_PAUSE_S = 0.01


async def until(look: Callable[[], Any], reached: Callable[[Any], object] = bool, *, within_s: float = WITHIN_S) -> Any:
    """Return what is seen once it is enough; fail with what was seen last.

    Args:
        look: Returns what there is to see, or an awaitable of it.
        reached: Whether that is enough.
        within_s: Seconds after which the test fails.
    """
    give_up_at = time.monotonic() + within_s
    while True:
        seen = look()
        if inspect.isawaitable(seen):
            seen = await seen
        if reached(seen):
            return seen
        if time.monotonic() > give_up_at:
            pytest.fail(f"not reached within {within_s:g} s; seen last: {seen!r}")
        await asyncio.sleep(_PAUSE_S)


def wait_until(
    look: Callable[[], Seen],
    reached: Callable[[Seen], object] = bool,
    *,
    within_s: float = WITHIN_S,
    ended: Callable[[], str | None] = lambda: None,
) -> Seen:
    """Return what is seen once it is enough, outside an event loop; fail with what was seen last.

    Args:
        look: Returns what there is to see.
        reached: Whether that is enough.
        within_s: Seconds after which the test fails.
        ended: Returns why it can be reached no more; None while it can.
    """
    give_up_at = time.monotonic() + within_s
    while not reached(seen := look()):
        if (reason := ended()) is not None:
            pytest.fail(f"{reason}; seen last: {seen!r}")
        if time.monotonic() > give_up_at:
            pytest.fail(f"not reached within {within_s:g} s; seen last: {seen!r}")
        time.sleep(_PAUSE_S)
    return seen
