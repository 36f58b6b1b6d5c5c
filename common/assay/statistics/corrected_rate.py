"""The pass rate that people would have given, from a judge's pass rate and how often the judge errs.

    θ = (p + q0 - 1) / (q0 + q1 - 1)

q1 is the share of what people passed that the judge passes, q0 the share of what people failed that it fails.

Source: W. J. Rogan and B. Gladen, "Estimating prevalence from the results of a screening test", 1978.
"""

from __future__ import annotations

import math

from assay.statistics.figure import NOTHING, Figure

NO_BETTER_THAN_CHANCE = "no_better_than_chance"
_Z_95 = 1.959963984540054


def corrected_pass_rate(
    observed: float, n: int, *, specificity: float, n_failed: int, sensitivity: float, n_passed: int
) -> Figure:
    """Return the corrected pass rate with its 95 % interval.

    Args:
        observed: The judge's pass rate, from 0 to 1.
        n: Rows that it rests on.
        specificity: q0, from 0 to 1.
        n_failed: Items that people failed, which q0 rests on.
        sensitivity: q1, from 0 to 1.
        n_passed: Items that people passed, which q1 rests on.

    Returns:
        No value where q0 + q1 is at most 1: such a judge's verdict says nothing.
    """
    if not (n and n_failed and n_passed):
        return Figure(None, n, reason=NOTHING)
    lift = specificity + sensitivity - 1
    if lift <= 1e-12:
        return Figure(None, n, reason=NO_BETTER_THAN_CHANCE)
    unclipped = (observed + specificity - 1) / lift
    theta = _clipped(unclipped)
    variance = (
        observed * (1 - observed) / n
        + (1 - theta) ** 2 * specificity * (1 - specificity) / n_failed
        + theta**2 * sensitivity * (1 - sensitivity) / n_passed
    ) / lift**2
    half = _Z_95 * math.sqrt(variance)
    return Figure(theta, n, (_clipped(unclipped - half), _clipped(unclipped + half)))


def _clipped(value: float) -> float:
    return max(0.0, min(1.0, value))
