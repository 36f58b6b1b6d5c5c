"""Drift of a judge: a frozen set of answers, judged then and now.

    d = new - old for each item; alarm if the p-value of the sign flips of d is below α

An unchanged but noisy judge raises an alarm with a chance of at most α, however few the items. Without an alarm, the
95 % interval of the mean shows which drift is excluded; if it exceeds 5 % of the scale, there are too few items for the
noise. A half-width of 5 % of the scale takes

    n = (1.96 s / (0.05 · scale))²

items, s being the standard deviation of d: √2 times that of a single score.

Items without a valid score on one side are left out and counted; with fewer than two left, or with more than half
left out, nothing is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.statistics.clusters import can_decide, least_units
from assay.statistics.sign_flips import sign_flip
from assay.statistics.student import t_quantile_95
from assay.statistics.thresholds import exceeds

if TYPE_CHECKING:
    from collections.abc import Mapping

ALPHA = 0.05
LARGEST_SHIFT = 0.05
"""The largest mean difference of a steady judge, as a share of the scale."""

TOO_FEW_ITEMS = "too_few_items"
_LEAST_ITEMS = 2
_Z_95 = 1.96


@dataclass(frozen=True, slots=True)
class Drift:
    """The change of a judge's scores.

    Args:
        n: Items scored both times.
        n_dropped: Items without a score on one side.
        mean: Mean of new - old, on the scale; None if it cannot be computed.
        interval: 95 % t interval of the mean; None with the mean.
        p_value: Of the sign-flip test; None with the mean.
        limit: 5 % of the scale, on the scale.
        changed: Items whose score changed.
        drifted: Whether there is an alarm; None if nothing is computed.
        items_needed: The approximate number of items that would exclude a mean difference beyond the limit; None if
            there is an alarm, if the items exclude it already, or if nothing is computed.
        reason: Why nothing is computed; empty if it is.
    """

    n: int
    n_dropped: int
    mean: float | None
    interval: tuple[float, float] | None
    p_value: float | None
    limit: float
    changed: int
    drifted: bool | None
    items_needed: int | None = None
    reason: str = ""

    @property
    def caution(self) -> str:
        """The sentence on the drift that the items cannot exclude; empty if they exclude it."""
        if self.items_needed is None:
            return ""
        return f"{self.n} anchors cannot exclude a drift of {100 * LARGEST_SHIFT:g} %: use about {self.items_needed}"


def find_drift(old: Mapping[str, float | None], new: Mapping[str, float | None], *, width: float) -> Drift:
    """Compare two judgements of the same items.

    Args:
        old: The first score of each item, None if there was no valid one.
        new: The present score of each item.
        width: Highest minus lowest score of the scale, above 0.
    """
    limit = LARGEST_SHIFT * width
    names = sorted({*old, *new})
    pairs = [(old.get(name), new.get(name)) for name in names]
    differences = [after - before for before, after in pairs if before is not None and after is not None]
    n, dropped = len(differences), len(names) - len(differences)
    if n < _LEAST_ITEMS or dropped > len(names) / 2:
        return Drift(n, dropped, None, None, None, limit, 0, None, reason=TOO_FEW_ITEMS)
    mean = math.fsum(differences) / n
    variance = math.fsum((difference - mean) ** 2 for difference in differences) / (n - 1)
    half = t_quantile_95(n - 1) * math.sqrt(variance / n)
    p_value = sign_flip(differences).p
    drifted = p_value < ALPHA
    # So few items could not have raised an alarm, and equal scores exclude nothing.
    is_excluded = can_decide(n, ALPHA) and not exceeds(abs(mean) + half, limit)
    return Drift(
        n=n,
        n_dropped=dropped,
        mean=mean,
        interval=(mean - half, mean + half),
        p_value=p_value,
        limit=limit,
        changed=sum(map(bool, differences)),
        drifted=drifted,
        items_needed=None if drifted or is_excluded else _items_needed(n, variance, limit),
    )


def _items_needed(n: int, variance: float, limit: float) -> int:
    """Return the approximate number of items that exclude a mean difference beyond the limit, or show it.

    Never fewer than can raise an alarm. If there are already enough items for their noise, the mean is too close to the
    limit, and twice as many items are needed.
    """
    by_noise = round(_Z_95**2 * variance / limit**2)
    return max(by_noise if by_noise > n else 2 * n, least_units(ALPHA))
