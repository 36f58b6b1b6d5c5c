"""The sign-flip test: the chance that random signs of the differences give a sum as large as the observed one.

Its null hypothesis is that each difference is equally likely to have either sign, which holds if two variants behave
alike. For clustered cases, the differences are the sums of the clusters.

Sources: R. A. Fisher, "The Design of Experiments", 1935; the interval: J. A. Hartigan, "Using subsample values as
typical values", 1969; 1 added to the hits of drawn signs: B. Phipson and G. K. Smyth, "Permutation p-values should
never be zero", 2010.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

EXACT_UNITS = 20
"""The most differences other than 0 for which all assignments of signs are enumerated."""
DRAWS = 20_000
MORE_DRAWS = 200_000
"""The assignments drawn if the p-value of the first 20,000 is within five standard errors of the level."""
_NEAR = 5
_NORMAL_FROM = 10_000  # differences above which the normal limit may replace the draws
_HEAVY = 0.01  # share of the sum of squares from which one term alone keeps the sum from being normal
_BYTE = 8  # signs in one random byte
_TOLERANCE = 1e-12  # share of the sum of sizes: sums in another order differ in their last digits
_GRID_PARTS = 12  # the smallest difference is at most so many steps of a grid
_GRID_WORK = 2e8  # additions up to which sums on a grid are enumerated
_GRID_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class SignFlip:
    """The outcome of a sign-flip test.

    Args:
        p: Two-sided p-value.
        method: "exact", "random" (20,000 or 200,000 assignments) or "normal_limit".
        error: Monte-Carlo standard error of p; None if nothing was drawn.
        least_p: The smallest p-value of this number of differences, with all of them on one side.
    """

    p: float
    method: str
    error: float | None = None
    least_p: float = 0.0


def sign_flip(differences: Sequence[float], *, seed: int = 0, alpha: float = 0.05) -> SignFlip:
    """Test whether the differences of one comparison have random signs; see `sign_flips`."""
    return sign_flips([differences], seed=seed, alpha=alpha)[0]


def sign_flips(
    comparisons: Sequence[Sequence[float] | NDArray[np.float64]],
    *,
    seed: int = 0,
    alpha: float = 0.05,
    counts: Sequence[int] | None = None,
) -> list[SignFlip]:
    """Test each comparison; the random signs are drawn once for all.

    The p-value is exact with up to 20 differences other than 0, and with more if they are multiples of one step, like
    those of ratings and of repeated 0 and 1. Otherwise 20,000 assignments of signs are drawn, or 200,000 if the p-value
    is close to the level. Above 10,000 differences, none of which dominates, the sum is taken as normal.

    Signs belong to a difference's rank by size, from the largest, so that a p-value depends neither on the order of the
    cases nor on the direction of the comparison nor on other comparisons.

    Args:
        comparisons: The finite differences of each comparison, one per case or per cluster.
        seed: The seed of the random signs.
        alpha: The level that the p-value is compared with.
        counts: The number of tests that each is adjusted for; the p-value is then also compared with alpha divided by
            it. None without an adjustment.
    """
    import numpy as np

    differences = [np.asarray(values, dtype=float) for values in comparisons]
    sizes = list(map(_sizes, differences))
    sums = [abs(math.fsum(values.tolist())) for values in differences]
    tests = [_without_draws(values, observed) for values, observed in zip(sizes, sums, strict=True)]
    levels = [(alpha, alpha / count) for count in counts or (1,) * len(tests)]
    for draws in (DRAWS, MORE_DRAWS):
        places = [at for at, test in enumerate(tests) if test is None or _is_near(test, levels[at], draws)]
        drawn = _random([sizes[at] for at in places], [sums[at] for at in places], seed, draws)
        for at, p in zip(places, drawn, strict=True):
            least = max(_least_p(len(sizes[at])), 1 / (1 + draws))
            tests[at] = SignFlip(p, "random", math.sqrt(p * (1 - p) / draws), least)
    return [test for test in tests if test is not None]


def _is_near(test: SignFlip, levels: tuple[float, float], draws: int) -> bool:
    if draws == DRAWS or test.error is None:
        return False
    return any(abs(test.p - level) < _NEAR * test.error for level in levels)


def _sizes(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sizes of the differences that are not 0, the largest first."""
    import numpy as np

    return np.sort(np.abs(differences[differences != 0]))[::-1]


def _least_p(units: int) -> float:
    return min(1.0, math.ldexp(2.0, -units))


def _without_draws(sizes: NDArray[np.float64], observed: float) -> SignFlip | None:
    """Return the test if it needs no random signs, else None."""
    least = _least_p(len(sizes))
    if not len(sizes):
        return SignFlip(1.0, "exact", None, 1.0)
    if len(sizes) <= EXACT_UNITS:
        return SignFlip(_exact(sizes, observed), "exact", None, least)
    steps = _grid_steps(sizes)
    if steps is not None:
        surplus = round(observed * float(steps[-1] / sizes[-1]))
        return SignFlip(max(least, _grid_p(steps, surplus)), "exact", None, least)
    squares = sizes * sizes
    total = math.fsum(squares.tolist())
    if len(sizes) > _NORMAL_FROM and squares[0] < _HEAVY * total:
        return SignFlip(math.erfc(observed / math.sqrt(2 * total)), "normal_limit", None, least)
    return None


def _bound(sizes: NDArray[np.float64], observed: float) -> float:
    """Return the least sum that counts as large."""
    return observed - _TOLERANCE * float(sizes.sum())


def _exact(sizes: NDArray[np.float64], observed: float) -> float:
    """Return the p-value over all assignments, by combining the sums of the two halves of the sizes."""
    import numpy as np

    bound = _bound(sizes, observed)
    if bound <= 0:
        return 1.0
    half = len(sizes) // 2
    upper, lower = np.sort(_signed_sums(sizes[:half])), _signed_sums(sizes[half:])
    hits = len(upper) * len(lower) - int(np.searchsorted(upper, bound - lower, side="left").sum())
    return math.ldexp(2 * hits, -len(sizes))


def _signed_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of the values under each assignment of signs; assignment i flips value j if its bit j is 1."""
    import numpy as np

    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def _subset_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of each subset of the values; subset i has value j if its bit j is 1."""
    import numpy as np

    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums, sums + value])
    return sums


def _grid_steps(sizes: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Return the sizes as multiples of one step, or None if there is none or too much to enumerate."""
    import numpy as np

    if not float(sizes[0]) * len(sizes) ** 2 <= float(sizes[-1]) * _GRID_WORK * len(sizes):
        return None  # the largest alone has too many steps, or their number is more than a float holds
    for parts in range(1, _GRID_PARTS + 1):
        steps = sizes / sizes[-1] * parts
        if not float(steps.sum()) * len(steps) <= _GRID_WORK:
            return None
        whole: NDArray[np.int64] = np.rint(steps).astype(np.int64)
        if (np.abs(steps - whole) <= _GRID_TOLERANCE * whole).all():
            return whole
    return None


def _grid_p(steps: NDArray[np.int64], surplus: int) -> float:
    """Return the p-value of sums of whole steps: the chance that the flipped sizes add up to so little, or so much.

    Args:
        steps: Sizes of the differences, in steps.
        surplus: Size of the observed sum, in steps.
    """
    import numpy as np

    if not surplus:
        return 1.0
    chances = np.zeros((int(steps.sum()) - surplus) // 2 + 1)  # of each sum of turned steps, up to the observed one
    chances[0] = 1.0
    for step in steps.tolist():
        chances[step:] += chances[:-step]
        chances *= 0.5
    return min(1.0, 2 * float(chances.sum()))


def _patterns(seed: int, draws: int) -> Iterator[NDArray[np.uint8]]:
    """Return the random signs of eight differences at a time, one bit each, for all assignments."""
    import numpy as np

    rng = np.random.default_rng(seed)
    return (np.frombuffer(rng.bytes(draws), dtype=np.uint8) for _ in repeat(None))


def _byte_of(values: NDArray[np.float64], begin: int) -> NDArray[np.float64]:
    """Return eight of the values, zeros after their end."""
    import numpy as np

    part = values[begin : begin + _BYTE]
    return np.pad(part, (0, _BYTE - len(part)))


def _random(sizes: Sequence[NDArray[np.float64]], observed: Sequence[float], seed: int, draws: int) -> list[float]:
    """Return the p-value of each comparison over drawn signs."""
    import numpy as np

    sums = [np.zeros(draws) for _ in sizes]
    counts = list(map(_heavy_count, sizes))
    for begin, patterns in zip(range(0, max(counts, default=0), _BYTE), _patterns(seed, draws), strict=False):
        for total, size, count in zip(sums, sizes, counts, strict=True):
            if begin < count:
                total += _signed_sums(_byte_of(size[:count], begin))[patterns]
    p_values = []
    for total, size, count, target in zip(sums, sizes, counts, observed, strict=True):
        if light := math.fsum((size[count:] ** 2).tolist()):
            total += math.sqrt(light) * np.random.default_rng([seed, 1]).standard_normal(draws)
        hits = int((np.abs(total) >= _bound(size, target)).sum())
        p_values.append((1 + hits) / (1 + draws))
    return p_values


def _heavy_count(sizes: NDArray[np.float64]) -> int:
    """Return the number of largest differences whose signs are drawn; the sum of the others is taken as normal."""
    import numpy as np

    if len(sizes) <= _NORMAL_FROM:
        return len(sizes)
    squares = sizes * sizes
    is_light = squares < _HEAVY * np.cumsum(squares[::-1])[::-1]
    return min(_NORMAL_FROM, int(is_light.argmax()) if is_light.any() else len(sizes))


def sign_flip_interval(
    sums: Sequence[float], counts: Sequence[int], *, alpha: float = 0.05, seed: int = 0
) -> tuple[float, float] | None:
    """Return the means of the cases that the sign-flip test of the clusters' sums does not reject.

    Shifted by a mean, a cluster's sum is sum - count * mean. Flipping some clusters gives a total as large as the
    observed one exactly if the mean lies between the mean of the flipped clusters and that of the others. The overall
    mean always does, so the p-value falls on either side of it, and each end is a quantile of such means: no search is
    needed. Signs are drawn as in the test, so that both nearly always agree on 0.

    Args:
        sums: Sum of the differences of each cluster.
        counts: Cases of each cluster, in the same order.
        alpha: The interval has level 1 - alpha.
        seed: The seed of the random signs, with more than 20 clusters.

    Returns:
        None if the clusters are too few for any mean to be rejected.
    """
    import numpy as np

    # One order for a comparison and its mirror image, which also puts the sizes as the test has them.
    pairs = sorted(zip(sums, counts, strict=True))
    mirrored = sorted((-value, count) for value, count in pairs)
    sign = -1 if mirrored > pairs else 1
    ordered = sorted(max(pairs, mirrored), key=lambda pair: (-abs(pair[0]), pair))
    totals, sizes = (np.array(column, dtype=float) for column in zip(*ordered, strict=True))
    total, n = sign * math.fsum(sums), float(sum(counts))
    is_drawn = len(ordered) > EXACT_UNITS
    turned, cases = _turned(totals, sizes, seed)
    rank = math.ceil(alpha * (len(turned) + is_drawn)) - is_drawn
    is_all = (cases == 0) | (cases == n)  # turning none, or all, leaves the total as it is, whatever the mean
    cases[is_all] = n / 2
    first, second = turned / cases, (total - turned) / (n - cases)
    highs, lows = np.maximum(first, second), np.minimum(first, second)
    highs[is_all], lows[is_all] = math.inf, -math.inf
    low, high = float(np.partition(lows, rank - 1)[rank - 1]), float(np.partition(highs, -rank)[-rank])
    if not math.isfinite(high - low):
        return None
    if pairs == mirrored:
        low, high = (low - high) / 2, (high - low) / 2
    noise = _TOLERANCE * math.fsum(map(abs, sums)) / n
    low, high = (0.0 if abs(end) <= noise else end for end in (low, high))
    return (low, high) if sign > 0 else (-high, -low)


def _turned(
    sums: NDArray[np.float64], sizes: NDArray[np.float64], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return sum and number of the cases in flipped clusters, for each assignment of signs.

    Flipping all signs does not change the size of a sum, so an enumeration never flips the first cluster.
    """
    import numpy as np

    if len(sums) <= EXACT_UNITS:
        return _subset_sums(sums[1:]), _subset_sums(sizes[1:])
    turned, cases = np.zeros(DRAWS), np.zeros(DRAWS)
    for begin, patterns in zip(range(0, len(sums), _BYTE), _patterns(seed, DRAWS), strict=False):
        turned += _subset_sums(_byte_of(sums, begin))[patterns]
        cases += _subset_sums(_byte_of(sizes, begin))[patterns]
    return turned, cases
