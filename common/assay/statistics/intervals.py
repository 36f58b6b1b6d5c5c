"""Intervals of a rate and of a mean, and upper limits of a rate and of a spread."""

from __future__ import annotations

import math

from assay.statistics.student import t_quantile_95

_Z_95 = 1.959963984540054


def wilson(successes: float, n: float, *, z: float = _Z_95) -> tuple[float, float] | None:
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


class MeanInterval:
    """The 95 % t interval of a mean over values that come in clusters, such as the runs of one case.

    Values of one cluster come one after the other. With every value a cluster of its own it is the usual interval.
    """

    def __init__(self) -> None:
        self._first = 0.0  # sums are over differences from it, so that little is lost when values are large and close
        self._count = 0
        self._sum = 0.0
        self._clusters = 0
        self._cluster: object = None
        self._cluster_sum = 0.0
        self._cluster_count = 0
        self._squares = self._mixed = self._counts = 0.0

    @property
    def mean(self) -> float | None:
        """The mean of the values; None without one, or where their sum is more than a float holds."""
        mean = self._first + self._sum / self._count if self._count else math.nan
        return mean if math.isfinite(mean) else None

    def take(self, value: float, cluster: object) -> None:
        """Take a value of a cluster."""
        if not self._count:
            self._first = value
        elif cluster != self._cluster:
            self._close()
        self._cluster = cluster
        self._cluster_sum += value - self._first
        self._cluster_count += 1
        self._sum += value - self._first
        self._count += 1

    def _close(self) -> None:
        total, count = self._cluster_sum, self._cluster_count
        self._squares += total * total
        self._mixed += total * count
        self._counts += count * count
        self._clusters += 1
        self._cluster_sum, self._cluster_count = 0.0, 0

    def result(self) -> tuple[float, float] | None:
        """Return the interval; None with fewer than two clusters, or where all values are equal.

        None, too, where their squares, or an end, are more than a float holds: values of about 1e150 and more.

        Source: the clustered standard error sqrt(G/(G-1) * sum over clusters of squared sums of deviations) / n.
        """
        if not self._count:
            return None
        if self._cluster_count:
            self._close()
        clusters = self._clusters
        if clusters < 2:
            return None
        shift = self._sum / self._count
        spread = self._squares - 2 * shift * self._mixed + shift * shift * self._counts
        if not 0 < spread < math.inf:  # NaN, too, where squares overflow
            return None
        error = math.sqrt(clusters / (clusters - 1)) * math.sqrt(spread) / self._count
        half, mean = t_quantile_95(clusters - 1) * error, self._first + shift
        low, high = mean - half, mean + half
        return (low, high) if math.isfinite(low) and math.isfinite(high) else None
