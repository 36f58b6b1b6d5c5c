"""Intervals of rates over independent cases, and upper limits of a rate and of a standard deviation."""

from __future__ import annotations

import math

Z_95 = 1.959963984540054
"""The value that |z| exceeds with a probability of 5 %."""


def wilson(successes: float, n: float, *, z: float = Z_95) -> tuple[float, float] | None:
    """Return the Wilson score interval of a rate, or None for n = 0.

    Args:
        successes: The number of successes.
        n: The number of cases; not whole if cases count for less than one.
        z: The normal quantile of the level; that of 95 % by default.

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
        count: The number of successes; not whole if cases count for less than one.
        n: The number of cases.
        level: The one-sided level of the limit.

    Source: C. Clopper and E. Pearson, "The use of confidence or fiducial limits illustrated in the case of the
    binomial", 1934.
    """
    from scipy import special

    return float(special.betaincinv(count + 1, n - count, level)) if count < n else 1.0


def upper_spread(degrees: float, *, level: float) -> float:
    """Return the factor by which a standard deviation may exceed the observed one, the limit of chi-square.

    Args:
        degrees: The degrees of freedom; fewer than one count as one.
        level: The one-sided level of the limit.
    """
    from scipy import special

    degrees = max(1.0, degrees)
    return math.sqrt(degrees / float(special.chdtri(degrees, level)))
