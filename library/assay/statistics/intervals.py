"""Intervals of a rate over independent cases, and upper limits of a rate and of a spread."""

from __future__ import annotations

import math

Z_95 = 1.959963984540054
"""The value that |z| exceeds with a probability of 5 %."""


def wilson(successes: float, n: float, *, z: float = Z_95) -> tuple[float, float] | None:
    """Return the Wilson score interval of a rate, or None for n = 0.

    Args:
        successes: How often it happened.
        n: How often it could have; no whole number where cases count for less than one.
        z: Normal quantile of the level; that of 95 % unless given.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
    """
    if n == 0:
        return None
    rate = successes / n
    z2 = z * z
    centre = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high


def upper_rate(count: float, n: float, *, level: float) -> float:
    """Return the exact upper limit of a rate.

    Args:
        count: How often it happened; no whole number where cases count for less than one.
        n: How often it could have.
        level: Of the limit, on one side.

    Source: C. Clopper and E. Pearson, "The use of confidence or fiducial limits illustrated in the case of the
    binomial", 1934.
    """
    from scipy import special

    return float(special.betaincinv(count + 1, n - count, level)) if count < n else 1.0


def upper_spread(degrees: float, *, level: float) -> float:
    """Return how many times larger than the one seen a standard deviation may be: the limit of chi-square.

    Args:
        degrees: Of freedom; fewer than one count as one.
        level: Of the limit, on one side.
    """
    from scipy import special

    degrees = max(1.0, degrees)
    return math.sqrt(degrees / float(special.chdtri(degrees, level)))
