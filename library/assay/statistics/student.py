"""Quantiles of Student's t distribution without scipy, since every report has an interval of a mean."""

from __future__ import annotations

import math
from functools import lru_cache

_PRECISION = 1e-13
_MOST_TERMS = 10_000
_TINY = 1e-300


@lru_cache(maxsize=1024)
def t_quantile_95(df: float) -> float:
    """Return the value that |t| with `df` degrees of freedom exceeds with a probability of 5 %.

    Raises:
        ValueError: There is less than one degree of freedom.
    """
    if df < 1:
        raise ValueError(f"Student's t needs at least one degree of freedom, not {df}")
    low, high = 1.9, 12.8  # the quantiles of infinitely many degrees and of one
    while high - low > _PRECISION * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _tail(middle, df) > 0.05 else (low, middle)
    return (low + high) / 2


def _tail(t: float, df: float) -> float:
    """Return the probability that |t| is larger: the regularised incomplete beta function at df / (df + t²)."""
    x, a, b = df / (df + t * t), df / 2, 0.5
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _fraction(a, b, x) / a
    return 1 - math.exp(log_front) * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method.

    Source: NIST Digital Library of Mathematical Functions, 8.17.22.
    """
    numerator, denominator = 1.0, 1 - (a + b) * x / (a + 1)
    denominator = 1 / (denominator if abs(denominator) > _TINY else _TINY)
    fraction = denominator
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            denominator = 1 + term * denominator
            denominator = 1 / (denominator if abs(denominator) > _TINY else _TINY)
            numerator = 1 + term / (numerator if abs(numerator) > _TINY else _TINY)
            fraction *= numerator * denominator
        if abs(numerator * denominator - 1) < 1e-15:
            break
    return fraction
