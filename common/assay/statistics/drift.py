"""Whether a judge still judges as it did: one frozen set of answers, judged then and now.

d = new - old for each item; alarm where the sign-flip p-value is below α or |mean d| is more than 5 % of the scale

Items without a valid score on one side are left out and counted; with fewer than two left, or with more than half
left out, nothing is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.statistics.sign_flips import sign_flip
from assay.statistics.thresholds import exceeds

if TYPE_CHECKING:
    from collections.abc import Mapping

ALPHA = 0.05
LARGEST_SHIFT = 0.05
"""Largest mean difference that is no alarm, as a share of the scale."""

TOO_FEW_ITEMS = "too_few_items"
_LEAST_ITEMS = 2


@dataclass(frozen=True, slots=True)
class Drift:
    """How much a judge's scores have moved.

    Args:
        n: Items scored both times.
        n_dropped: Items without a score on one side.
        mean: Mean of new - old, on the scale; None where it cannot be computed.
        p_value: Of the sign-flip test; None with the mean.
        limit: The largest |mean| that is no alarm, on the scale.
        changed: Items whose score is another one.
        drifted: Whether that is an alarm; None where nothing is computed.
        reason: Why nothing is computed; empty where it is.
    """

    n: int
    n_dropped: int
    mean: float | None
    p_value: float | None
    limit: float
    changed: int
    drifted: bool | None
    reason: str = ""


def find_drift(
    old: Mapping[str, float | None], new: Mapping[str, float | None], *, width: float, alpha: float = ALPHA
) -> Drift:
    """Compare two judgements of the same items.

    Args:
        old: The first score of each item, None where there was no valid one.
        new: The present score of each item.
        width: Highest minus lowest score of the scale, above 0.
        alpha: Below this p-value is an alarm.
    """
    limit = LARGEST_SHIFT * width
    names = sorted({*old, *new})
    pairs = [(old.get(name), new.get(name)) for name in names]
    differences = [after - before for before, after in pairs if before is not None and after is not None]
    n, dropped = len(differences), len(names) - len(differences)
    if n < _LEAST_ITEMS or dropped > len(names) / 2:
        return Drift(n, dropped, None, None, limit, 0, None, TOO_FEW_ITEMS)
    mean = math.fsum(differences) / n
    p_value = sign_flip(differences, alpha=alpha).p
    return Drift(
        n, dropped, mean, p_value, limit, sum(map(bool, differences)), p_value < alpha or exceeds(abs(mean), limit)
    )
