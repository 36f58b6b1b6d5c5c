"""Power of paired comparisons: the cases that a difference needs, and the difference that cases detect.

Power is that of the deciding test: exact McNemar for 0 and 1, over all likely counts of disagreeing cases, and for
scores the sign flips of normal differences or, where they are close to it, the noncentral t. Closed forms give the
start of the search. Only the right direction counts.

Functions import scipy and numpy when they are called.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

from assay.statistics.clusters import least_units

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    import numpy as np
    from numpy.typing import NDArray

_MOST_CASES = 2.0**53
_MOST_EXACT = 200_000  # cases up to which McNemar's power is enumerated; above, the closed form is right to 0.1 %
_TAIL_SDS = 7.5  # of the count of disagreeing cases: beyond it lies less than 1e-12
_TAIL_CASES = 30  # the same where the count is so small that its upper tail is Poisson's
_PRECISION = 1e-9
_MOST_STEPS = 100
_EXACT_SIGNIFICANT = 32  # assignments below the level from which t is close to the sign flips
_LOST_STEPS = 1.5  # of the sum, to a test whose sums are whole steps: 0.8 to 1.6 in McNemar's enumeration
_MOST_SIZES = 100  # of values that are counted in steps; with more, these are too small to matter
_STEP_TOLERANCE = 1e-6
_MOST_DRAWS = 10_000
_MOST_SUMS = 1 << 25
_SUMS_AT_ONCE = 1 << 21


def _z(alpha: float, power: float) -> tuple[float, float]:
    normal = NormalDist()
    return normal.inv_cdf(1 - alpha / 2), normal.inv_cdf(power)


def rate_power(n: int, difference: float, disagreeing: float, *, alpha: float = 0.05) -> float:
    """Return the chance that exact McNemar finds a difference of paired rates, in its direction.

    Args:
        n: Cases.
        difference: The true difference; its sign does not matter.
        disagreeing: True share of the cases in which one variant is right and the other wrong, at least |difference|.
        alpha: Level of the test.

    Source: S. Duffy, "Asymptotic and exact power for the McNemar test and its analogue with R controls per case", 1984.
    """
    counts, weights = _disagreeing_counts(n, disagreeing)
    return float(weights @ _found(counts, abs(difference), disagreeing, alpha))


def cases_for_rates(difference: float, disagreeing: float, *, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """Return the number of cases from which on exact McNemar detects a difference of paired rates.

    Power fluctuates a little with each further case because counts are whole; from the returned number on it stays at
    or above the target.

    Args:
        difference: To be detected; its sign does not matter.
        disagreeing: Share of the cases in which one variant is right and the other wrong, at least |difference|.
        alpha: Level of the test.
        power: Chance to detect the difference.

    Returns:
        None if no number of cases is enough, or the number is too large to be exact.

    Raises:
        ValueError: Fewer cases disagree than the difference needs.
    """
    size = abs(difference)
    if size == 0:
        return None
    if disagreeing < size:
        raise ValueError(f"a difference of {size:g} needs at least that share of disagreeing cases: {disagreeing:g}")
    root = _about_root(size, disagreeing, alpha, power) / size
    about = root * root
    if about > _MOST_EXACT:
        return None if about > _MOST_CASES else math.ceil(about + 2 / size)  # and the surplus of an exact test
    first = _least(lambda n: rate_power(n, size, disagreeing, alpha=alpha) >= power, math.ceil(about))
    last = first - 1  # with too little power
    while True:
        block = 64 + 4 * math.isqrt(first)  # power falls back over less than this
        below = [n for n, reached in _powers(last + 1, block, size, disagreeing, alpha) if reached < power]
        if not below:
            return last + 1
        last = below[-1]


def _about_root(size: float, disagreeing: float, alpha: float, power: float) -> float:
    """Return the approximate root of the number of cases times the difference, for a normal statistic.

    Source: R. Connor, "Sample size for testing differences in proportions for the paired-sample design", 1987.
    """
    z_alpha, z_beta = _z(alpha, power)
    return z_alpha * math.sqrt(disagreeing) + z_beta * math.sqrt(max(0.0, disagreeing - size * size))


def detectable_rate_difference(n: int, disagreeing: float, *, alpha: float = 0.05, power: float = 0.8) -> float | None:
    """Return the smallest difference of paired rates that n cases detect; None if they detect none.

    Arguments as for `cases_for_rates`.
    """
    if n < least_units(alpha) or disagreeing <= 0:
        return None
    if n > _MOST_EXACT:
        return _root(lambda size: math.sqrt(n) * size - _about_root(size, disagreeing, alpha, power), disagreeing)
    from scipy import special

    counts, weights = _disagreeing_counts(n, disagreeing)
    critical = _critical(counts, alpha)

    def surplus(size: float) -> float:  # in standard deviations, in which power is nearly a line
        chance = min(float(weights @ _found_of(counts, critical, size, disagreeing)), 1 - 1e-12)
        return float(special.ndtri(max(chance, 1e-12)) - special.ndtri(power))

    return _root(surplus, disagreeing)


def _root(surplus: Callable[[float], float], high: float) -> float | None:
    """Return the least value from 0 to `high` with a surplus of at least 0; None if there is none. The surplus rises.

    Source: the Illinois algorithm, M. Dowell and P. Jarratt, "A modified regula falsi method", 1971.
    """
    low, above = 0.0, surplus(high)
    if above < 0:
        return None
    below, top, side = surplus(0.0), high, 0
    for _ in range(_MOST_STEPS):
        if above <= _PRECISION or high - low <= _PRECISION * top:
            break
        middle = min(max((low * above - high * below) / (above - below), low), high)
        value = surplus(middle)
        if value >= 0:
            high, above = middle, value
            below, side = (below / 2, 1) if side == 1 else (below, 1)
        else:
            low, below = middle, value
            above, side = (above / 2, -1) if side == -1 else (above, -1)
    return high


def _disagreeing_counts(n: int, disagreeing: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the likely counts of disagreeing cases among n, with their probabilities."""
    import numpy as np
    from scipy import special

    if disagreeing >= 1:
        return np.array([n]), np.array([1.0])
    mean = n * disagreeing
    half = _TAIL_SDS * math.sqrt(mean * (1 - disagreeing)) + _TAIL_CASES
    counts = np.arange(max(0, math.floor(mean - half)), min(n, math.ceil(mean + half)) + 1)
    log = special.gammaln(counts + 1) + special.gammaln(n - counts + 1)
    log = special.xlogy(counts, disagreeing) + special.xlog1py(n - counts, -disagreeing) - log
    weights = np.exp(log - log.max())
    return counts, weights / weights.sum()


def _found(counts: NDArray[np.int64], size: float, disagreeing: float, alpha: float) -> NDArray[np.float64]:
    return _found_of(counts, _critical(counts, alpha), size, disagreeing)


def _found_of(
    counts: NDArray[np.int64], critical: NDArray[np.float64], size: float, disagreeing: float
) -> NDArray[np.float64]:
    """Return the power of the test with each count of disagreeing cases."""
    import numpy as np
    from scipy import special

    lost = max(0.0, (1 - size / disagreeing) / 2)  # of the disagreeing cases, those in the other direction
    chances = special.bdtr(np.maximum(critical, 0), counts, lost)
    return np.where(critical < 0, 0.0, chances)


def _critical(counts: NDArray[np.int64], alpha: float) -> NDArray[np.float64]:
    """Return the largest number of cases in the smaller direction for which p is below alpha; -1 if there is none."""
    import numpy as np
    from scipy import special

    level = alpha / 2 * (1 - 1e-12)  # a p-value of exactly alpha is not below it, whatever its rounding
    z = NormalDist().inv_cdf(1 - alpha / 2)
    critical = np.clip(np.floor(counts / 2 - z * np.sqrt(counts) / 2 - 0.5), -1, counts)
    while (too_many := (critical >= 0) & (special.bdtr(np.maximum(critical, 0), counts, 0.5) >= level)).any():
        critical[too_many] -= 1
    while (more := (critical < counts) & (special.bdtr(np.minimum(critical + 1, counts), counts, 0.5) < level)).any():
        critical[more] += 1
    return critical


def _powers(first: int, count: int, size: float, disagreeing: float, alpha: float) -> Iterator[tuple[int, float]]:
    """Yield the power for consecutive numbers of cases.

    One more case increases the count of disagreeing cases by one or not: power is the mean of both, by their chances.
    """
    import numpy as np

    counts, weights = _disagreeing_counts(first, disagreeing)
    longer = np.arange(counts[0], counts[-1] + count + 1)
    powers = _found(longer, size, disagreeing, alpha)
    for n in range(first, first + count):
        yield n, float(weights @ powers[: len(weights)])
        powers = disagreeing * powers[1:] + (1 - disagreeing) * powers[:-1]


def _least(is_enough: Callable[[int], bool], about: int) -> int:
    """Return a number that is enough while its predecessor is not, by bisection around an estimate."""
    low, enough = about, about
    while low and is_enough(low):
        low, enough = low * 7 // 8, low
    while not is_enough(enough):
        low, enough = enough, enough + 1 + enough // 8
    while enough - low > 1:
        middle = (low + enough) // 2
        low, enough = (low, middle) if is_enough(middle) else (middle, enough)
    return enough


def cases_for_scores(
    difference: float,
    spread: float,
    *,
    differing: float = 1.0,
    step: float = 0.0,
    alpha: float = 0.05,
    power: float = 0.8,
) -> int | None:
    """Return the number of cases, or clusters, that detect a mean difference of paired scores by sign flips.

    Args:
        difference: To be detected; its sign does not matter.
        spread: Standard deviation of the differences, above 0.
        differing: Share of the cases whose scores differ, above 0.
        step: The step of all differences, such as 1/3 for rates of three runs; 0 if they are of any size.
        alpha: Level of the test.
        power: Chance to detect the difference.

    Returns:
        None if no number of cases is enough, or the number is too large to be exact.
    """
    if difference == 0:
        return None
    root = sum(_z(alpha, power)) * spread / difference
    least = least_units(alpha) / differing
    if max(root * root, least) > _MOST_CASES / 2:
        return None
    effect = abs(difference) / spread

    def is_enough(n: int) -> bool:
        detected = detectable_effect(n, differing=differing, alpha=alpha, power=power)
        return detected is not None and detected <= effect

    return _least(is_enough, math.ceil(max(least, root * root))) + math.ceil(_LOST_STEPS * step / abs(difference))


def _is_enough(n: int, differing: float, alpha: float, power: float) -> bool:
    """Whether enough cases for a test will differ, with the chance `power`."""
    from scipy import special

    least = least_units(alpha)
    return n >= least and bool(special.bdtrc(least - 1, n, differing) >= power)


@lru_cache(maxsize=1024)
def detectable_effect(
    n: int, *, differing: float = 1.0, alpha: float = 0.05, power: float = 0.8, degrees: float | None = None
) -> float | None:
    """Return the smallest mean, in standard deviations of a normal difference, that n cases or clusters detect.

    Power is that of t. With so few differing cases that less than 32 assignments of their signs are below the level,
    sign flips find less than t does: their own power is simulated there, with a fixed seed and a standard error of 0.4
    points, up to 0.9 for levels far below 5 %.

    Args:
        n: Cases or clusters.
        differing: Share of them whose values differ.
        alpha: Level of the test.
        power: Chance to detect it.
        degrees: The degrees of freedom of the standard error; n - 1 by default.

    Returns:
        None if too few cases will differ for a p-value below alpha.
    """
    from scipy import special

    if not _is_enough(n, differing, alpha, power):
        return None
    degrees = n - 1 if degrees is None else degrees
    # The noncentral t of more degrees is the normal distribution to seven digits.
    t = float(special.stdtrit(min(degrees, 1e7), 1 - alpha / 2))
    ratio = float(special.nctdtrinc(min(degrees, 1e7), 1 - power, t))
    count = max(least_units(alpha), round(n * differing))
    significant = math.ceil(math.ldexp(alpha, min(count, 64) - 1)) - 1
    if significant < _EXACT_SIGNIFICANT:
        ratio = max(ratio, math.sqrt(count) * _flips_effect(count, significant, power))
    return ratio / math.sqrt(n)


def detectable_score_difference(
    n: int, spread: float, *, differing: float = 1.0, step: float = 0.0, alpha: float = 0.05, power: float = 0.8
) -> float | None:
    """Return the smallest mean difference of paired scores that n cases detect; None if they detect none.

    Arguments as for `cases_for_scores`.
    """
    effect = detectable_effect(n, differing=differing, alpha=alpha, power=power)
    return None if effect is None else with_lost_steps(spread * effect, n, step)


def with_lost_steps(difference: float, n: int, step: float) -> float:
    """Return a detectable difference corrected for differences that are all multiples of a step."""
    half = _LOST_STEPS * step / (2 * n)
    return half + math.sqrt(half * half + difference * difference)


def common_step(values: Collection[float]) -> float:
    """Return the step between distinct values, from the least value on; 0 without a common step or with one value."""
    if not 2 <= len(values) <= _MOST_SIZES:
        return 0.0
    ordered = sorted(values)
    step = min(after - before for before, after in itertools.pairwise(ordered))
    rests = [(value - ordered[0]) / step % 1.0 for value in ordered]
    return step if all(min(rest, 1 - rest) < _STEP_TOLERANCE for rest in rests) else 0.0


@lru_cache(maxsize=256)
def _flips_effect(n: int, significant: int, power: float) -> float:
    """Return the smallest mean of normal differences that sign flips detect.

    Differences z + d are found where so few of their assignments have a sum as large: those that turn a set S have one
    where the mean of z over S is at most -d. So each z is found from a d of its own on, and the answer is a quantile of
    it.
    """
    import numpy as np

    sets = np.arange(1, 1 << n)[:, None] >> np.arange(n) & 1
    means = (sets / sets.sum(axis=1, keepdims=True)).T
    rng, effects = np.random.default_rng(0), []
    draws, rows = min(_MOST_DRAWS, _MOST_SUMS >> n), max(1, _SUMS_AT_ONCE >> n)
    for begin in range(0, draws, rows):
        least = rng.standard_normal((min(rows, draws - begin), n)) @ means
        effects.append(-np.partition(least, significant - 1, axis=1)[:, significant - 1])
    return float(np.quantile(np.concatenate(effects), power))
