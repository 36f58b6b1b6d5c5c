"""One number with what it rests on, or the reason why there is none."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.statistics.intervals import wilson

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NOTHING = "nothing_to_compare"
ONE_LABEL = "one_label_only"
CONSTANT = "constant"
"""Why a figure is not computed: no items, everyone always gives the same label, one side never varies."""

_LEAST_RESAMPLES = 0.9


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, its interval and its base.

    Args:
        value: The number; None where it cannot be computed, which is never 0.
        n: Items that it rests on.
        interval: 95 % interval; None where there is none.
        reason: Why there is no value, one stable word; empty where there is one.
    """

    value: float | None
    n: int
    interval: tuple[float, float] | None = None
    reason: str = ""

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        interval = None if self.interval is None else list(self.interval)
        return {"value": self.value, "n": self.n, "interval": interval, "reason": self.reason or None}


def rate(count: int, n: int) -> Figure:
    """Return a share with its Wilson interval.

    Args:
        count: Hits, at most n.
        n: Items; 0 gives no value.
    """
    return Figure(count / n, n, wilson(count, n)) if n else Figure(None, 0, reason=NOTHING)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile by linear interpolation between closest ranks.

    Args:
        ordered: At least one number, ascending.
        share: From 0 to 1.
    """
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def bootstrap_interval(
    statistic: Callable[[Sequence[int]], float | None], n: int, *, resamples: int = 1_000, seed: int = 0
) -> tuple[float, float] | None:
    """Return the 95 % percentile bootstrap interval of a statistic over n items.

    Args:
        statistic: Of some items, given by index, with repetitions; None where it cannot be computed.
        n: Items; fewer than 2 give no interval.
        resamples: How often n items are drawn.
        seed: Of the drawing.

    Returns:
        None where more than a tenth of the resamples have no value: the rest would be biased.

    Source: B. Efron, "Bootstrap methods: another look at the jackknife", 1979.
    """
    if n < 2:
        return None
    generator = random.Random(seed)  # noqa: S311  # resampling, no secret
    drawn = (statistic(generator.choices(range(n), k=n)) for _ in range(resamples))
    values = sorted(value for value in drawn if value is not None)
    if len(values) < _LEAST_RESAMPLES * resamples:
        return None
    return percentile(values, 0.025), percentile(values, 0.975)
