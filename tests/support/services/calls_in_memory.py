"""The calls that servers of this process keep in memory, including ended ones not yet collected."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def without_collection() -> Iterator[None]:
    """Disable garbage collection inside the block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def calls_in_memory() -> int:
    """Return the number of calls."""
    return sum(type(each).__name__ == "_ServicerContext" for each in gc.get_objects())
