"""Sums that do not depend on the order of their terms, so that any re-run folds to the same bits."""

from __future__ import annotations

import math

__all__ = ["ExactSum"]


class ExactSum:
    """A running sum without rounding error.

    It keeps non-overlapping partial sums, as `math.fsum` does (Shewchuk, "Adaptive Precision
    Floating-Point Arithmetic", 1997), but takes the terms one by one.
    """

    def __init__(self) -> None:
        self._partials: list[float] = []
        self.count = 0

    def add(self, term: float) -> None:
        """Add one finite term."""
        self.count += 1
        kept = 0
        for partial in self._partials:
            if abs(term) < abs(partial):
                term, partial = partial, term
            high = term + partial
            low = partial - (high - term)
            if low:
                self._partials[kept] = low
                kept += 1
            term = high
        self._partials[kept:] = [term]

    @property
    def total(self) -> float:
        """The sum, rounded once."""
        return math.fsum(self._partials)

    @property
    def mean(self) -> float | None:
        """The mean; None without terms."""
        return self.total / self.count if self.count else None
