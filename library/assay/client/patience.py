"""How long a lost connection, or a database that refuses statements, is tried again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.errors import UnavailableError


class Patience:
    """How long a lost connection may still be tried again.

    Args:
        seconds: From the first failure on.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lost_at: float | None = None

    def renew(self) -> None:
        """Begin anew: the connection is there."""
        self._lost_at = None

    def spend(self, problem: UnavailableError) -> bool:
        """Return whether this is the first failure since the connection was there; raise the problem after the time."""
        now = asyncio.get_running_loop().time()
        is_first = self._lost_at is None
        if self._lost_at is None:
            self._lost_at = now
        if now - self._lost_at >= self._seconds:
            raise problem
        return is_first
