"""A number with its interval and its base, or the reason for its absence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay.statistics.intervals import wilson

NOTHING = "nothing_to_compare"
ONE_LABEL = "one_label_only"
CONSTANT = "constant"
"""The reasons for a missing figure: no items, only one label, one side never varies."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, its interval and its base.

    Args:
        value: The number; None if it cannot be computed, which is never 0.
        n: The number of items behind it.
        interval: 95 % interval; None if there is none.
        reason: Why there is no value, one stable word; empty if there is one.
    """

    value: float | None
    n: int
    interval: tuple[float, float] | None = None
    reason: str = ""

    def document(self) -> dict[str, Any]:
        """Return the figure for JSON."""
        interval = None if self.interval is None else dict(zip(("low", "high"), self.interval, strict=True))
        return {"value": self.value, "item_count": self.n, "interval": interval, "reason": self.reason or None}


def rate(count: int, n: int) -> Figure:
    """Return a share with its Wilson interval.

    Args:
        count: Hits, at most n.
        n: Items; 0 gives no value.
    """
    return Figure(count / n, n, wilson(count, n)) if n else Figure(None, 0, reason=NOTHING)
