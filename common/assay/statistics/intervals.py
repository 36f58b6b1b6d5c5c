"""Intervals for one rate."""

from __future__ import annotations

import math

_Z_95 = 1.959963984540054


def wilson(successes: int, n: int) -> tuple[float, float] | None:
    """Return the 95 % Wilson score interval of a rate, or None for n = 0.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
    """
    if n == 0:
        return None
    rate = successes / n
    z2 = _Z_95 * _Z_95
    centre = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z_95 / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high
