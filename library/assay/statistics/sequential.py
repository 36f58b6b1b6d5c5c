"""Early stopping of a paired comparison at a controlled level: at any case, or at five planned looks.

Differences are B - A, one per case, in [-1, 1]: unchanged for 0 and 1, otherwise divided by the range of their metric.
Functions import numpy and scipy when they are called.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.statistics.clusters import is_negligible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from numpy.typing import NDArray

LOOK_BOUNDS = (4.5616, 3.2255, 2.6336, 2.2808, 2.0400)
"""The |z| that stops at 20, 40, 60, 80 and 100 % of the planned cases, at a level of 5 % over all five looks."""
LEAST_LOOKED_AT = 20
"""The least cases of five planned looks."""

_BLOCK = 256  # cases whose integrands are in memory at a time
_NEGLIGIBLE = 40.0  # logarithm below the peak from which an integrand no longer counts
_BISECTIONS = 30
_SMALLEST_TAIL = 1e-300
_NODES_A_SIDE = 48  # of the integral on one side of its peak


class Evidence:
    """The evidence E that two variants differ, updated with every case; it may be looked at after each.

    With equal variants, the chance that E ever reaches 1/alpha is at most alpha, however often it is looked at.
    E = ½ ∫ Π (1 + λ·dᵢ) dλ over λ in [-1, 1]. If all differences are -1, 0 or 1, it has a closed form; otherwise
    Gauss-Legendre integrates it. The differences may come in parts, which do not change any bit of the result.

    Args:
        cases: The most cases that will come. Time grows with its 1.5th power, memory with its square root.

    Source: I. Waudby-Smith and A. Ramdas, "Estimating means of bounded random variables by betting", 2024, with a
    uniform mixture over bets.
    """

    def __init__(self, cases: int) -> None:
        self._most = cases
        self._count = self._lost = self._won = 0
        self._products: NDArray[np.float64] | None = None
        self._rule: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
        self._largest = 0.0

    @property
    def p(self) -> float:
        """The always-valid p-value: 1 by the largest E so far, at most 1."""
        return math.exp(-self._largest)

    def take(self, differences: Sequence[float]) -> NDArray[np.float64]:
        """Add the next cases and return log E after each of them.

        Raises:
            ValueError: A difference is outside [-1, 1] or NaN, or there are more cases than announced.
        """
        import numpy as np

        values = np.asarray(differences, dtype=float)
        if not (np.abs(values) <= 1).all():
            raise ValueError("evidence needs differences in [-1, 1]: divide them by the range of the metric")
        self._count += len(values)
        if self._count > self._most:
            raise ValueError(f"{self._count:,} cases are more than the {self._most:,} that were announced")
        if not len(values):
            return values
        lost, won = self._lost + np.cumsum(values == -1), self._won + np.cumsum(values == 1)
        is_between = (np.abs(values) < 1) & (values != 0)
        between = np.where(is_between, values, 0.0)
        first = 0 if self._products is not None else int(is_between.argmax()) if is_between.any() else len(values)
        path = np.concatenate(
            [_log_of_counts(lost[:first], won[:first]), self._integrated(between[first:], lost[first:], won[first:])]
        )
        self._lost, self._won = int(lost[-1]), int(won[-1])
        self._largest = max(self._largest, float(path.max()))
        return path

    def _integrated(
        self, between: NDArray[np.float64], lost: NDArray[np.int64], won: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        import numpy as np

        if not len(between):
            return between
        self._rule = self._rule or _nodes(self._most)
        nodes, weights = self._rule
        products = np.zeros(len(nodes)) if self._products is None else self._products
        against, towards = np.log1p(-nodes), np.log1p(nodes)
        parts = []
        for begin in range(0, len(between), _BLOCK):
            here = slice(begin, begin + _BLOCK)
            logs = np.log(1 + np.outer(between[here], nodes))
            logs[0] += products
            np.cumsum(logs, axis=0, out=logs)
            products = logs[-1].copy()
            logs += np.outer(lost[here], against) + np.outer(won[here], towards)
            parts.append(_log_sum(logs, weights / 2))
        self._products = products
        return np.concatenate(parts)


def _log_of_counts(lost: NDArray[np.int64], won: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return log E of cases that are right or wrong: log(2^m · lost! · won! / (m + 1)!), m = lost + won."""
    from scipy.special import gammaln

    m = lost + won
    path: NDArray[np.float64] = m * math.log(2) + gammaln(lost + 1) + gammaln(won + 1) - gammaln(m + 2)
    return path


def _nodes(cases: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return nodes and weights that integrate a product over this many cases.

    n/2 + 1 nodes are exact, but fewer suffice: in the angle θ, λ = cos θ, the product's logarithm has a curvature of at
    most n at its peak, so its coefficients of degree k fall like exp(-k²/2n). K nodes are exact up to degree 2K - 1;
    with K = 4√n the rest is below exp(-32), the rounding of floats.
    """
    from scipy.special import roots_legendre

    nodes, weights = roots_legendre(max(1, min(cases // 2 + 1, math.ceil(4 * math.sqrt(cases)))))
    return (nodes - nodes[::-1]) / 2, (weights + weights[::-1]) / 2  # symmetric to the last bit, as A and B are


def _log_sum(logs: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log Σ weight · exp(log) of each row."""
    import numpy as np

    largest = logs.max(axis=1)
    logs_of_sums: NDArray[np.float64] = largest + np.log((np.exp(logs - largest[:, None]) * weights).sum(axis=1))
    return logs_of_sums


def first_crossing(path: Sequence[float] | NDArray[np.float64], *, alpha: float = 0.05) -> int | None:
    """Return the number of cases after which a path of log E reaches 1/alpha; None if it does not."""
    import numpy as np

    reached = np.flatnonzero(np.asarray(path) >= -math.log(alpha))
    return int(reached[0]) + 1 if len(reached) else None


def always_valid_interval(differences: Sequence[float], *, alpha: float = 0.05) -> tuple[float, float]:
    """Return the interval of the mean difference that is valid after any case.

    It contains all μ in [-1, 1] for which ∫ Π (1 + λ·(dᵢ - μ)) dλ over λ in [-½, ½] is below 1/alpha. The integral is
    convex in μ, since each factor is linear in it, and at most 1 at the mean.

    Raises:
        ValueError: A difference is outside of [-1, 1] or NaN.
    """
    bets = (-0.5, 0.5)
    return _always_valid_end(differences, -1.0, bets, alpha), _always_valid_end(differences, 1.0, bets, alpha)


def always_valid_lower_bound(differences: Sequence[float], *, alpha: float = 0.05) -> float:
    """Return the one-sided lower bound of the mean difference that is valid after any case.

    Only bets on a larger mean count: the bound is the least μ for which 2·∫ Π (1 + λ·(dᵢ - μ)) dλ over λ in [0, ½] is
    below 1/alpha.

    Raises:
        ValueError: A difference is outside of [-1, 1] or NaN.
    """
    return _always_valid_end(differences, -1.0, (0.0, 0.5), alpha)


def _always_valid_end(differences: Sequence[float], end: float, bets: tuple[float, float], alpha: float) -> float:
    """Return the point between the mean and an end at which the evidence of bets against it reaches 1/alpha."""
    import numpy as np

    values, counts = np.unique(np.asarray(differences, dtype=float), return_counts=True)
    if not (np.abs(values) <= 1).all():
        raise ValueError("an interval needs differences in [-1, 1]: divide them by the range of the metric")
    if not len(values):
        return end
    mean, times = math.fsum(values * counts) / len(differences), counts.astype(float)
    width = bets[1] - bets[0]

    def excess(at: float) -> float:
        return _log_integral(values - at, times, bets) - math.log(width) + math.log(alpha)

    return _crossing(excess, mean, math.copysign(1 / math.sqrt(len(differences)), end), end)


def _crossing(excess: Callable[[float], float], start: float, step: float, end: float) -> float:
    """Return the point at which an excess, negative at the start, becomes 0; the end if it stays negative."""
    from scipy.optimize import brentq

    inside = start
    while True:
        outside = max(end, inside + step) if step < 0 else min(end, inside + step)
        if excess(outside) > 0:
            return float(brentq(excess, inside, outside, xtol=1e-12))
        if outside == end:
            return end
        inside, step = outside, 2 * step


def _boundary(is_outside: Callable[[float], bool], inside: float, end: float) -> float:
    """Return the approximate boundary of a region around `inside` in the direction of `end`."""
    if not is_outside(end):
        return end
    for _ in range(_BISECTIONS):
        middle = (inside + end) / 2
        if middle in (inside, end):
            break
        inside, end = (inside, middle) if is_outside(middle) else (middle, end)
    return inside


def _log_integral(shifted: NDArray[np.float64], counts: NDArray[np.float64], bets: tuple[float, float]) -> float:
    """Return log ∫ Π (1 + λ·x) dλ over bets λ from -½ to ½, each x in [-2, 2] as often as it is counted.

    The integrand has one peak and a concave logarithm, so each side of the peak is integrated by itself, as far as it
    counts.
    """
    import numpy as np
    from scipy.special import roots_legendre

    def slope(at: float) -> float:
        with np.errstate(divide="ignore"):
            return float(counts @ (shifted / (1 + at * shifted)))

    def log_at(at: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.array([float(counts @ np.log(1 + point * shifted)) for point in at])

    peak = _boundary(lambda at: slope(at) <= 0, *bets) if slope(bets[0]) > 0 else bets[0]
    height = float(log_at(np.array([peak]))[0])
    nodes, weights = roots_legendre(_NODES_A_SIDE)
    logs, parts = [], []
    for end in bets:
        last = _boundary(lambda at: float(log_at(np.array([at]))[0]) < height - _NEGLIGIBLE, peak, end)
        half = (last - peak) / 2
        logs.append(log_at(peak + half * (1 + nodes)))
        parts.append(abs(half) * weights)
    joined = np.concatenate(parts)
    return float(_log_sum(np.concatenate(logs)[None, joined > 0], joined[joined > 0])[0]) if joined.any() else height


def look_sizes(cases: int) -> tuple[int, ...]:
    """Return the number of cases at which each of the five looks is due, rounded up.

    Raises:
        ValueError: The cases are fewer than 20: the bounds do not hold for looks at fewer than 4.
    """
    if cases < LEAST_LOOKED_AT:
        raise ValueError(f"five planned looks need at least {LEAST_LOOKED_AT} cases, not {cases}")
    return tuple(-(-cases * number // len(LOOK_BOUNDS)) for number in range(1, len(LOOK_BOUNDS) + 1))


@dataclass(frozen=True, slots=True)
class Look:
    """The result of a planned look.

    Args:
        z: Its statistic, with the sign of the mean difference.
        standard_error: The standard error of the mean difference, mean/z; 0 if no case differs.
    """

    z: float
    standard_error: float


def look_at(differences: Sequence[float], *, is_binary: bool) -> Look:
    """Return the result of a planned look.

    Args:
        differences: The differences of the cases so far.
        is_binary: Whether they come from 0 and 1: then z is (won - lost)/√(won + lost), 0 if none disagree. Otherwise
            it is the z that is as unlikely as the paired t statistic, since t itself is too often large with few
            cases. If all differences are equal, there is no t, and they count as won or lost.

    Source: P. O'Brien and T. Fleming, "A multiple testing procedure for clinical trials", 1979.
    """
    n, total = len(differences), math.fsum(differences)
    spread = math.fsum((difference - total / n) ** 2 for difference in differences) if n else 0.0
    if is_binary or n < 2 or is_negligible(math.sqrt(spread / (n - 1)), total / n):
        won, lost = sum(difference > 0 for difference in differences), sum(difference < 0 for difference in differences)
        z = (won - lost) / math.sqrt(won + lost) if won + lost else 0.0
        return Look(z, total / n / z if z else math.sqrt(won + lost) / max(1, n))
    from scipy import special

    error = math.sqrt(spread / (n - 1) / n)
    t = total / n / error
    tail = max(float(special.stdtr(n - 1, -abs(t))), _SMALLEST_TAIL)
    z = math.copysign(float(special.ndtri(tail)), t)
    return Look(z, total / n / z if z else error)
