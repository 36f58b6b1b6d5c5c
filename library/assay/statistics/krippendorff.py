"""Krippendorff's alpha: agreement of any number of raters, some of whose ratings may be missing.

    alpha = 1 - D_o / D_e

D_o is the mean disagreement within units, D_e that of all pairable values with each other. Units with fewer than
two ratings are left out. Disagreement is 0 or 1 (nominal), the squared difference (interval), or the squared
difference of the values' mean ranks among all pairable values (ordinal). Alpha is not computed if all values are equal:
there is then nothing to disagree about.

Source: K. Krippendorff, "Computing Krippendorff's alpha-reliability", 2011.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Literal

from assay.statistics.agreement import midranks
from assay.statistics.figure import NOTHING, ONE_LABEL, Figure

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

Level = Literal["nominal", "ordinal", "interval"]
LEVELS: tuple[Level, ...] = ("nominal", "ordinal", "interval")


def alpha(units: Sequence[Sequence[Hashable | None]], level: Level) -> Figure:
    """Return Krippendorff's alpha.

    Args:
        units: The ratings of each unit, None for a missing rating; numbers unless the level is nominal.
        level: The distance of two values: "nominal", "ordinal" or "interval".

    Returns:
        The figure; its n counts the units with at least two ratings.
    """
    rated = [[value for value in unit if value is not None] for unit in units]
    pairable = [unit for unit in rated if len(unit) >= 2]
    if not pairable:
        return Figure(None, 0, reason=NOTHING)
    values = [value for unit in pairable for value in unit]
    if len(set(values)) == 1:
        return Figure(None, len(pairable), reason=ONE_LABEL)
    if level == "nominal":
        return Figure(_nominal(pairable, values), len(pairable))
    numbers = [[_number(value) for value in unit] for unit in pairable]
    flat = [value for unit in numbers for value in unit]
    if level == "ordinal":
        ranks = dict(zip(flat, midranks(flat), strict=True))
        numbers = [[ranks[value] for value in unit] for unit in numbers]
        flat = [value for unit in numbers for value in unit]
    return Figure(_interval(numbers, flat), len(pairable))


def _number(value: Hashable) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no number: only the nominal level takes labels")
    return float(value)


def _nominal(units: Sequence[Sequence[Hashable]], values: Sequence[Hashable]) -> float:
    n = len(values)
    observed = math.fsum(_unequal_pairs(unit) / (len(unit) - 1) for unit in units) / n
    return 1 - observed * n * (n - 1) / _unequal_pairs(values)


def _unequal_pairs(values: Sequence[Hashable]) -> int:
    return len(values) ** 2 - sum(count * count for count in Counter(values).values())


def _interval(units: Sequence[Sequence[float]], values: Sequence[float]) -> float:
    n = len(values)
    mean = math.fsum(values) / n
    # As a share of the widest distance, whose square may be too small for a float.
    widest = max(values) - min(values)
    # Σ over ordered pairs (x - y)² = 2n Σ (x - mean)²; within units pair by pair, so that equal values give exactly 0.
    expected = 2 * n * math.fsum(((value - mean) / widest) ** 2 for value in values) / (n * (n - 1))
    within = [math.fsum(((x - y) / widest) ** 2 for x in unit for y in unit) / (len(unit) - 1) for unit in units]
    return 1 - math.fsum(within) / n / expected
