"""Paired tests of two variants: exact McNemar for 0 and 1, sign flips of scores and of sums of clusters.

Differences are B - A throughout. Functions import scipy and numpy when they are called.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.statistics.clusters import Clusters, can_decide, in_clusters, is_negligible
from assay.statistics.sign_flips import SignFlip, sign_flip, sign_flip_interval

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import numpy as np
    from numpy.typing import NDArray

LARGEST = 1e100
"""Values beyond this are ignored: the squares of their differences exceed a float."""
NOISE = 1e-6
"""The relative difference up to which two values count as equal: float32 vectors are not more exact."""
LEAST_DIFFERENCE = 1e-9
"""The absolute difference up to which values count as equal, as for a threshold."""


def difference(a: float, b: float) -> float:
    """Return B - A of a case; 0 if it is noise."""
    gap = b - a
    return 0.0 if abs(gap) <= max(LEAST_DIFFERENCE, NOISE * max(abs(a), abs(b))) else gap


def differences(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return B - A of each case; 0 if it is noise, NaN if a value is missing.

    Args:
        a: Values of A, shape (n,).
        b: Values of B, in the same order.
    """
    import numpy as np

    gaps = b - a
    noise = np.maximum(LEAST_DIFFERENCE, NOISE * np.maximum(np.abs(a), np.abs(b)))
    gaps[np.abs(gaps) <= noise] = 0.0
    return gaps


@dataclass(frozen=True, slots=True)
class McNemar:
    """The comparison of two variants whose cases are right or wrong.

    Args:
        p: Exact two-sided p-value.
        mid_p: The same with half the probability of the observed table.
        difference: The rate of B less the rate of A.
        interval: Its interval, in [-1, 1].
        cohens_h: The difference of the rates on the arcsine scale.
        min_attainable_p: The smallest p-value that this number of disagreeing cases can give.
    """

    p: float
    mid_p: float
    difference: float
    interval: tuple[float, float]
    cohens_h: float
    min_attainable_p: float


def mcnemar(both: int, b: int, c: int, neither: int, *, alpha: float = 0.05) -> McNemar:
    """Compare two variants by the 2 x 2 table of their cases.

    Args:
        both: Cases that both variants have right.
        b: Cases that only A has right.
        c: Cases that only B has right.
        neither: Cases that both variants have wrong.
        alpha: The interval has level 1 - alpha.

    Raises:
        ValueError: There is no case, or a count is negative.

    Source: Q. McNemar, 1947; the interval: D. Bonett and R. Price, "Adjusted Wald confidence interval for a
    difference of binomial proportions based on paired data", 2012.
    """
    n = both + b + c + neither
    if n < 1 or min(both, b, c, neither) < 0:
        raise ValueError("McNemar's test needs counts of at least 0, and at least one case")
    exact, mid = mcnemar_p(b, c)
    rate_a, rate_b = (both + b) / n, (both + c) / n
    return McNemar(
        p=exact,
        mid_p=mid,
        difference=(c - b) / n,
        interval=bonett_price(b, c, n, alpha=alpha),
        cohens_h=2 * math.asin(math.sqrt(rate_b)) - 2 * math.asin(math.sqrt(rate_a)),
        min_attainable_p=min(1.0, 2 * 0.5 ** (b + c)),
    )


def mcnemar_p(b: int, c: int) -> tuple[float, float]:
    """Return the exact two-sided p-value of b against c under a fair coin, and the mid p-value; 1 for 0 and 0."""
    m = b + c
    below = last = 1
    for k in range(min(b, c)):  # math.comb would start over for each of thousands
        last = last * (m - k) // (k + 1)
        below += last
    return min(1.0, _share(2 * below, m)), min(1.0, _share(2 * below - last, m)) if m else 1.0


def _share(count: int, m: int) -> float:
    """Return count / 2**m, both of which may exceed a float."""
    shift = max(0, count.bit_length() - 64)
    return math.ldexp(float(count >> shift), shift - m)


def bonett_price(b: int, c: int, n: int, *, alpha: float = 0.05) -> tuple[float, float]:
    """Return the interval of a difference of paired rates, clipped to [-1, 1]."""
    from statistics import NormalDist

    difference, half = (c - b) / (n + 2), NormalDist().inv_cdf(1 - alpha / 2) * bonett_price_error(b, c, n)
    return max(-1.0, difference - half), min(1.0, difference + half)


def bonett_price_error(b: int, c: int, n: int) -> float:
    """Return the standard error of a difference of paired rates, with one added win for each variant."""
    lost, won = (b + 1) / (n + 2), (c + 1) / (n + 2)
    return math.sqrt((lost + won - (won - lost) ** 2) / (n + 2))


@dataclass(frozen=True, slots=True)
class PairedScores:
    """The comparison of two variants by scores of the same cases.

    Args:
        mean_difference: Mean of B - A.
        flip: The sign-flip test of the differences, or of the clusters' sums.
        interval: The interval of the mean difference; None if there is none.
        interval_method: "sign_flip" for the inverted test of the clusters' sums; "cr2" for t with CR2 errors, if there
            are too few clusters for a verdict; "t" without clusters; empty without an interval.
        units: Differences, or clusters' sums, that are not 0.
        standard_error: The standard error of the mean difference, CR2 with clusters; 0 if all pairs, or clusters,
            differ equally; None with fewer than two.
        t: The paired t statistic; None if all pairs, or clusters, differ equally, or there is only one.
        t_p: Its two-sided p-value; None likewise.
        d_z: Mean by standard deviation of the differences; None if all are equal or there is one pair.
        cliffs_delta: The dominance of B over A in all pairs of cases, -1 to 1.
        clusters: The differences by cluster; None without a cluster key.
    """

    mean_difference: float
    flip: SignFlip
    interval: tuple[float, float] | None
    interval_method: str
    units: int
    standard_error: float | None
    t: float | None
    t_p: float | None
    d_z: float | None
    cliffs_delta: float
    clusters: Clusters | None = None


def paired_scores(
    a: Sequence[float],
    b: Sequence[float],
    *,
    seed: int = 0,
    alpha: float = 0.05,
    clusters: Sequence[Hashable] | None = None,
    flip: SignFlip | None = None,
) -> PairedScores:
    """Compare the scores of two variants on the same cases.

    Args:
        a: Scores of A, one per case.
        b: Scores of B, in the same order.
        seed: The seed of the random sign assignments.
        alpha: The interval has level 1 - alpha.
        clusters: The cluster of each case, such as a document; None if cases are independent.
        flip: The sign-flip test of B - A, or of its sums by cluster, if it was made together with others; None makes
            it here.

    Raises:
        ValueError: The sequences differ in length, or are empty.
    """
    gaps = [difference(first, second) for first, second in zip(a, b, strict=True)]
    if not gaps:
        raise ValueError("a paired comparison needs at least one pair")
    n = len(gaps)
    mean = math.fsum(gaps) / n
    grouped = in_clusters(gaps, clusters)
    error, degrees = grouped.error, grouped.degrees
    t = mean / error if error else None
    spread = math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / (n - 1)) if n > 1 else 0.0
    flip = flip or sign_flip(grouped.sums, seed=seed, alpha=alpha)
    method, interval = "t", t_interval(mean, error, degrees, alpha=alpha)
    units = sum(total != 0 for total in grouped.sums)
    if clusters is not None and interval is not None:
        method = "cr2"
        if can_decide(units, alpha) and flip.method != "normal_limit":
            method, interval = "sign_flip", sign_flip_interval(grouped.sums, grouped.counts, alpha=alpha, seed=seed)
    return PairedScores(
        mean_difference=mean,
        flip=flip,
        interval=interval,
        interval_method=method if interval is not None else "",
        units=units,
        standard_error=error,
        t=t,
        t_p=_t_p_value(t, degrees) if t is not None else None,
        d_z=None if is_negligible(spread, mean) else mean / spread,
        cliffs_delta=cliffs_delta(a, b),
        clusters=None if clusters is None else grouped,
    )


def t_interval(mean: float, error: float | None, degrees: float, *, alpha: float = 0.05) -> tuple[float, float] | None:
    """Return the t interval of a mean at level 1 - alpha; None without a standard error above 0."""
    if not error:
        return None
    from scipy import special

    half = float(special.stdtrit(degrees, 1 - alpha / 2)) * error
    return mean - half, mean + half


def cliffs_delta(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the share of pairs of cases in which B is higher, less the share in which A is.

    Source: N. Cliff, "Dominance statistics", 1993.
    """
    import numpy as np

    ordered = np.sort(np.asarray(a, dtype=float))
    above = int(np.searchsorted(ordered, b, side="left").sum())
    below = len(ordered) * len(b) - int(np.searchsorted(ordered, b, side="right").sum())
    return (above - below) / (len(a) * len(b))


def _t_p_value(t: float, df: float) -> float:
    from scipy import special  # scipy.stats takes a second to import

    return float(2 * special.stdtr(df, -abs(t)))
