"""Waits for another task, thread or process, with a time limit and the last observation in the failure.

Wait for conditions that stay true, such as "at least three". A condition that holds only for a moment, such as "exactly
three", may be missed on a busy machine.
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

# Far more than any step takes on a busy machine, and less than the time limit of a test.
WITHIN_S = 200.0
_PAUSE_S = 0.01


async def until(look: Callable[[], Any], reached: Callable[[Any], object] = bool, *, within_s: float = WITHIN_S) -> Any:
    """Return the first observation that satisfies a condition; fail with the last one.

    Args:
        look: Returns the current observation, or an awaitable for it.
        reached: Whether an observation satisfies the condition.
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
    """Return the first observation that satisfies a condition, outside an event loop; fail with the last one.

    Args:
        look: Returns the current observation.
        reached: Whether an observation satisfies the condition.
        within_s: Seconds after which the test fails.
        ended: Returns why the condition can no longer become true, or None while it can.
    """
    give_up_at = time.monotonic() + within_s
    while not reached(seen := look()):
        if (reason := ended()) is not None:
            pytest.fail(f"{reason}; seen last: {seen!r}")
        if time.monotonic() > give_up_at:
            pytest.fail(f"not reached within {within_s:g} s; seen last: {seen!r}")
        time.sleep(_PAUSE_S)
    return seen
