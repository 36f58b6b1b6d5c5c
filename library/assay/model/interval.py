"""A confidence interval."""

from __future__ import annotations

from typing import NamedTuple


class Interval(NamedTuple):
    """A confidence interval, with its ends."""

    low: float
    high: float

    @classmethod
    def of(cls, ends: tuple[float, float] | None) -> Interval | None:
        """Return the interval of two ends; None without ends."""
        return None if ends is None else cls(*ends)
