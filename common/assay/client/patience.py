"""How long a lost connection is tried again."""

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

    def spend(self, problem: UnavailableError) -> None:
        """Raise the problem where the time is over."""
        now = asyncio.get_running_loop().time()
        if self._lost_at is None:
            self._lost_at = now
        if now - self._lost_at >= self._seconds:
            raise problem
