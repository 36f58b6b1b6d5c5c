"""Calls that servers of this process hold, also those that have ended and wait for garbage collection."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def without_collection() -> Iterator[None]:
    """Collect no garbage inside the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def calls_in_memory() -> int:
    """Return how many calls there are."""
    return sum(type(each).__name__ == "_ServicerContext" for each in gc.get_objects())
