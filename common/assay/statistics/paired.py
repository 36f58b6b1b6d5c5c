"""Two variants on the same cases: exact McNemar for 0 and 1, sign-flip permutation for scores, clustered errors.

Differences are B - A throughout. Functions import scipy and numpy when they are called.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay.records import dataclass
from assay.statistics.sign_flips import SignFlip, sign_flip

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import numpy as np
    from numpy.typing import NDArray

LARGEST = 1e100
"""Values beyond it count for nothing: the squares of their differences are more than a float holds."""
NEGLIGIBLE = 1e-9
"""Share of a mean up to which a standard error of differences is rounding, and 0."""
NOISE = 1e-6
"""Share of their size by which two values may differ and count as equal: float32 vectors are not more exact."""


def difference(a: float, b: float) -> float:
    """Return B - A of a case; 0 where it is noise."""
    found = b - a
    return 0.0 if abs(found) <= NOISE * max(abs(a), abs(b)) else found


def differences(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return B - A of each case; 0 where it is noise, NaN where a value is missing.

    Args:
        a: Values of A, shape (n,).
        b: Values of B, in the same order.
    """
    import numpy as np

    found = b - a
    found[np.abs(found) <= NOISE * np.maximum(np.abs(a), np.abs(b))] = 0.0
    return found


@dataclass(frozen=True, slots=True)
class McNemar:
    """The comparison of two variants whose cases are right or wrong.

    Args:
        b: Cases that A has right and B wrong.
        c: Cases that A has wrong and B right.
        n: All cases.
        p: Exact two-sided p-value.
        mid_p: The same with half of the probability of what was seen.
        difference: Rate of B less that of A.
        interval: Its interval, in [-1, 1].
        cohens_h: The difference of the rates on the arcsine scale.
        min_attainable_p: The smallest p-value that as many disagreeing cases can give.
    """

    b: int
    c: int
    n: int
    p: float
    mid_p: float
    difference: float
    interval: tuple[float, float]
    cohens_h: float
    min_attainable_p: float

    def is_borderline(self, alpha: float) -> bool:
        """Whether p-value and interval, which are built differently, disagree at a level; the p-value decides."""
        return (self.p < alpha) is not (self.interval[0] > 0 or self.interval[1] < 0)


def mcnemar(both: int, b: int, c: int, neither: int, *, alpha: float = 0.05) -> McNemar:
    """Compare two variants by the 2 x 2 table of their cases.

    Args:
        both: Cases that both have right.
        b: Cases that A alone has right.
        c: Cases that B alone has right.
        neither: Cases that both have wrong.
        alpha: The interval is of 1 - alpha.

    Raises:
        ValueError: There is no case, or a count is negative.

    Source: Q. McNemar, 1947; the interval: D. Bonett and R. Price, "Adjusted Wald confidence interval for a
    difference of binomial proportions based on paired data", 2012.
    """
    n = both + b + c + neither
    if n < 1 or min(both, b, c, neither) < 0:
        raise ValueError("McNemar's test needs counts of at least 0, and at least one case")
    m, smaller = b + c, min(b, c)
    below = last = 1
    for k in range(smaller):  # math.comb would begin anew for each of thousands
        last = last * (m - k) // (k + 1)
        below += last
    exact = min(1.0, _share(2 * below, m))
    mid = min(1.0, _share(2 * below - last, m)) if m else 1.0
    rate_a, rate_b = (both + b) / n, (both + c) / n
    return McNemar(
        b=b,
        c=c,
        n=n,
        p=exact,
        mid_p=mid,
        difference=(c - b) / n,
        interval=bonett_price(b, c, n, alpha=alpha),
        cohens_h=2 * math.asin(math.sqrt(rate_b)) - 2 * math.asin(math.sqrt(rate_a)),
        min_attainable_p=min(1.0, 2 * 0.5**m),
    )


def _share(count: int, m: int) -> float:
    """Return count / 2**m, both of which may be larger than a float holds."""
    shift = max(0, count.bit_length() - 64)
    return math.ldexp(float(count >> shift), shift - m)


def bonett_price(b: int, c: int, n: int, *, alpha: float = 0.05) -> tuple[float, float]:
    """Return the interval of a difference of paired rates, clipped to [-1, 1]."""
    from statistics import NormalDist

    lost, won = (b + 1) / (n + 2), (c + 1) / (n + 2)
    difference = won - lost
    half = NormalDist().inv_cdf(1 - alpha / 2) * math.sqrt((lost + won - difference * difference) / (n + 2))
    return max(-1.0, difference - half), min(1.0, difference + half)


@dataclass(frozen=True, slots=True)
class PairedScores:
    """The comparison of two variants by scores of the same cases.

    Args:
        n: Pairs.
        mean_difference: Mean of B - A.
        p: Of the sign-flip permutation test; with clusters of t, and where that has no standard error, of sign flips
            of the clusters' sums. None with one cluster.
        method: Of the p-value: a method of `SignFlip`, or "clustered_t".
        interval: t interval of the mean difference; None where it has none.
        standard_error: Of the mean difference; 0 where all pairs, or clusters, differ by the same; None with fewer
            than two.
        degrees: Degrees of freedom of t.
        t: The paired t statistic; None where all pairs, or clusters, differ by the same, or there is one.
        t_p: Its two-sided p-value; None likewise.
        d_z: Mean by standard deviation of the differences; None where all are equal or there is one pair.
        cliffs_delta: How far B is above A over all pairs of cases, -1 to 1.
        wins: Cases in which B is higher.
        ties: Cases in which both are equal.
        losses: Cases in which A is higher.
        clusters: How many clusters the cases are in; None without a cluster key.
    """

    n: int
    mean_difference: float
    p: float | None
    method: str
    interval: tuple[float, float] | None
    standard_error: float | None
    degrees: int
    t: float | None
    t_p: float | None
    d_z: float | None
    cliffs_delta: float
    wins: int
    ties: int
    losses: int
    clusters: int | None = None


def paired_scores(
    a: Sequence[float],
    b: Sequence[float],
    *,
    seed: int = 0,
    alpha: float = 0.05,
    clusters: Sequence[Hashable] | None = None,
    flip: SignFlip | None = None,
) -> PairedScores:
    """Compare the scores that two variants have on the same cases.

    Args:
        a: Scores of A, one per case.
        b: Scores of B, in the same order.
        seed: Of the random sign assignments.
        alpha: The interval is of 1 - alpha.
        clusters: What each case shares with others, such as a document; None where cases are independent.
        flip: The sign-flip test of B - A where it has been made with others at once; None makes it here.

    Raises:
        ValueError: The sequences differ in length, or are empty.
    """
    found = [difference(first, second) for first, second in zip(a, b, strict=True)]
    if not found:
        raise ValueError("a paired comparison needs at least one pair")
    n = len(found)
    mean = math.fsum(found) / n
    error, count = clustered_error(found, clusters)
    if is_negligible(error, mean):
        error = 0.0
    t = mean / error if error else None
    t_p = _t_p_value(t, count - 1) if t is not None else None
    spread = math.sqrt(math.fsum((one - mean) ** 2 for one in found) / (n - 1)) if n > 1 else 0.0
    p: float | None
    if clusters is None:
        tested = flip or sign_flip(found, seed=seed)
        p, method = tested.p, tested.method
    elif error == 0:
        tested = sign_flip(list(cluster_sums(found, clusters).values()), seed=seed)
        p, method = tested.p, tested.method
    else:
        p, method = t_p, "clustered_t"
    return PairedScores(
        n=n,
        mean_difference=mean,
        p=p,
        method=method,
        interval=t_interval(mean, error, count - 1, alpha=alpha),
        standard_error=error,
        degrees=count - 1,
        t=t,
        t_p=t_p,
        d_z=None if is_negligible(spread, mean) else mean / spread,
        cliffs_delta=cliffs_delta(a, b),
        wins=sum(one > 0 for one in found),
        ties=sum(one == 0 for one in found),
        losses=sum(one < 0 for one in found),
        clusters=None if clusters is None else count,
    )


def t_interval(mean: float, error: float | None, degrees: int, *, alpha: float = 0.05) -> tuple[float, float] | None:
    """Return the t interval of a mean, of 1 - alpha; None without a standard error, or with one of 0."""
    if not error:
        return None
    from scipy import special

    half = float(special.stdtrit(degrees, 1 - alpha / 2)) * error
    return mean - half, mean + half


def clustered_error(values: Sequence[float], clusters: Sequence[Hashable] | None) -> tuple[float | None, int]:
    """Return the standard error of a mean over values in clusters, and how many clusters there are.

    The error is None with fewer than two clusters. With each value a cluster of its own, which None stands for, it is
    the usual one.
    """
    n = len(values)
    mean = math.fsum(values) / n
    if clusters is None:
        return (math.sqrt(n / (n - 1) * math.fsum([(one - mean) ** 2 for one in values])) / n if n > 1 else None), n
    sums = cluster_sums([value - mean for value in values], clusters)
    count = len(sums)
    if count < 2:
        return None, count
    return math.sqrt(count / (count - 1) * math.fsum(one * one for one in sums.values())) / n, count


def cluster_sums(values: Sequence[float], clusters: Sequence[Hashable]) -> dict[Hashable, float]:
    """Return the sum of the values of each cluster."""
    sums: dict[Hashable, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value
    return sums


def is_negligible(spread: float | None, mean: float) -> bool:
    """Whether a standard error or deviation is 0, or so small beside the mean that it is rounding of equal terms."""
    return spread is not None and spread <= NEGLIGIBLE * abs(mean)


def cliffs_delta(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the share of pairs of cases in which B is higher, less the share in which A is.

    Source: N. Cliff, "Dominance statistics", 1993.
    """
    import numpy as np

    ordered = np.sort(np.asarray(a, dtype=float))
    above = int(np.searchsorted(ordered, b, side="left").sum())
    below = len(ordered) * len(b) - int(np.searchsorted(ordered, b, side="right").sum())
    return (above - below) / (len(a) * len(b))


def _t_p_value(t: float, df: int) -> float:
    from scipy import special  # scipy.stats takes a second to import

    return float(2 * special.stdtr(df, -abs(t)))
