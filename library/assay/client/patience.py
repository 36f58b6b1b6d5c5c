"""Time limit for retries after a lost connection or a refusing database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.errors import UnavailableError


class Patience:
    """Retry budget of a lost connection.

    Args:
        seconds: Time limit from the first failure on.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lost_at: float | None = None

    def renew(self) -> None:
        """Reset the budget after a successful call."""
        self._lost_at = None

    def spend(self, problem: UnavailableError) -> bool:
        """Return whether this is the first failure in a row; raise the problem once the time is over."""
        now = asyncio.get_running_loop().time()
        is_first = self._lost_at is None
        if self._lost_at is None:
            self._lost_at = now
        if now - self._lost_at >= self._seconds:
            raise problem
        return is_first
