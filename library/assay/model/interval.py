"""A confidence interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Interval(NamedTuple):
    """A confidence interval, with its ends."""

    low: float
    high: float

    @classmethod
    def of(cls, ends: tuple[float, float] | None) -> Interval | None:
        """Return the interval of two ends; None without ends."""
        return None if ends is None else cls(*ends)

    @classmethod
    def of_document(cls, ends: Mapping[str, float] | None) -> Interval | None:
        """Return the interval of an object with `low` and `high`; None without one."""
        return None if ends is None else cls(ends["low"], ends["high"])
