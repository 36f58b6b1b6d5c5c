"""How many cases a paired comparison needs, and which difference a number of cases can detect."""

from __future__ import annotations

import math
from statistics import NormalDist

_BISECTIONS = 200
_MOST_CASES = 2.0**53


def _z(alpha: float, power: float) -> tuple[float, float]:
    normal = NormalDist()
    return normal.inv_cdf(1 - alpha / 2), normal.inv_cdf(power)


def cases_for_rates(difference: float, disagreeing: float, *, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """Return how many cases detect a difference of paired rates; None where no number does.

    Args:
        difference: To be detected; its sign does not matter.
        disagreeing: Share of the cases in which one variant is right and the other wrong, at least |difference|.
        alpha: Level of the test.
        power: Chance to detect the difference.

    Raises:
        ValueError: Fewer cases disagree than the difference needs.

    Source: R. Connor, "Sample size for testing differences in proportions for the paired-sample design", 1987.
    """
    size = abs(difference)
    if size == 0:
        return None
    if disagreeing < size:
        raise ValueError(f"a difference of {size:g} needs at least that share of disagreeing cases: {disagreeing:g}")
    return _whole(_cases_for_rates(size, disagreeing, *_z(alpha, power)), least=0)


def _cases_for_rates(size: float, disagreeing: float, z_alpha: float, z_beta: float) -> float:
    root = z_alpha * math.sqrt(disagreeing) + z_beta * math.sqrt(max(0.0, disagreeing - size * size))
    return root / size * (root / size)


def detectable_rate_difference(n: int, disagreeing: float, *, alpha: float = 0.05, power: float = 0.8) -> float | None:
    """Return the smallest difference of paired rates that n cases detect; None where they detect none."""
    z_alpha, z_beta = _z(alpha, power)
    if n < 1 or disagreeing <= 0 or _cases_for_rates(disagreeing, disagreeing, z_alpha, z_beta) > n:
        return None
    low, high = 0.0, disagreeing
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if _cases_for_rates(middle, disagreeing, z_alpha, z_beta) <= n else (middle, high)
    return high


def cases_for_scores(difference: float, spread: float, *, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """Return how many cases detect a mean difference of paired scores; None where no number does.

    Args:
        difference: To be detected; its sign does not matter.
        spread: Standard deviation of the differences.
        alpha: Level of the test.
        power: Chance to detect the difference.
    """
    if difference == 0:
        return None
    ratio = sum(_z(alpha, power)) * spread / difference
    return _whole(ratio * ratio, least=2)


def _whole(cases: float, *, least: int) -> int | None:
    """Return a number of cases, rounded up; None for one that is too large to be exact."""
    return max(least, math.ceil(cases - 1e-9)) if cases <= _MOST_CASES else None


def detectable_score_difference(n: int, spread: float, *, alpha: float = 0.05, power: float = 0.8) -> float:
    """Return the smallest mean difference of paired scores that n cases detect."""
    return sum(_z(alpha, power)) * spread / math.sqrt(n)
