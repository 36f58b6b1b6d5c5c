"""The mean of clustered values and its 95 % interval, from running sums.

Values of one cluster, such as the repeats of a case or the cases about one document, carry less information than the
same number of independent values. The standard error is CR2 (`assay.statistics.clusters`). A mean has the t interval
with Satterthwaite's degrees of freedom. A rate, or a mean of shares, has Wilson's interval over the effective count,
the number of independent values with the same information: the smallest of

    n
    p(1 - p) / error²
    the same with half a cluster of successes and half a cluster of failures added

times (z / t)², because the spread of few clusters is itself uncertain, and at least 1. The third is included because
clusters near 0 and 1 look more alike than they are. If the values within each cluster are equal, or the clusters do not
differ, it is (Σ n)² / Σ n² over the clusters' sizes instead, since the values of a cluster are then copies.

Sources: L. Kish, "Survey Sampling", 1965, on effective sizes; E. L. Korn and B. I. Graubard, "Confidence intervals for
proportions with small expected number of positive counts estimated from survey data", 1998, on (z / t)².
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from assay.statistics.clusters import cr2_error
from assay.statistics.exact_sum import exact_parts
from assay.statistics.intervals import Z_95, wilson
from assay.statistics.student import t_quantile_95

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

_NOISE = 1e-9  # share of the mean up to which a standard error is rounding
_BUFFERED = 512  # values added at once
_LARGE = 1e150  # the squares of larger values are more than a float holds
_SPLIT = 134_217_729.0  # 2**27 + 1


class _OfSize(NamedTuple):
    """The clusters of one size.

    Args:
        size: Values in each cluster.
        number: The number of clusters.
        total: The sum of the clusters' sums.
        squares: The sum of their squares.
    """

    size: Fraction
    number: int
    total: Fraction
    squares: Fraction


class _Moments:
    """Adds numbers and their squares without rounding, so that their order does not matter."""

    __slots__ = ("_pending", "_squares", "_total", "number")

    def __init__(self) -> None:
        self.number = 0
        self._total = self._squares = Fraction()
        self._pending: list[float] = []

    def add(self, value: float) -> None:
        pending = self._pending
        pending.append(value)
        if len(pending) >= _BUFFERED:
            self._settle()

    def add_many(self, value: float, times: int) -> None:
        self.number += times
        self._total += times * Fraction(value)
        self._squares += times * Fraction(value) ** 2

    def _settle(self) -> None:
        pending = self._pending
        self.number += len(pending)
        total = _exact_total(pending)
        self._total += total
        if {0.0, 1.0}.issuperset(pending):
            self._squares += total
        elif max(map(abs, pending), default=0.0) < _LARGE:
            self._squares += _exact_total(_squares(pending))
        else:
            self._squares += sum(Fraction(value) ** 2 for value in pending)
        pending.clear()

    def of_size(self, size: int) -> _OfSize:
        self._settle()
        return _OfSize(Fraction(size), self.number, self._total, self._squares)


class ClusteredMean:
    """Folds values with their clusters. Its memory grows with the clusters of several values, not with the values.

    Example:
        >>> verdicts = ClusteredMean()
        >>> for passed in (1, 1, 1, 1):  # four copies of one case
        ...     verdicts.take(passed, 0)
        >>> verdicts.effective_count()
        1.0
    """

    __slots__ = ("_closed", "_clusters", "_open", "_single", "count", "is_rate")

    def __init__(self) -> None:
        self.count = 0
        self.is_rate = True
        """Whether every value is 0 or 1."""
        self._single = _Moments()
        self._closed: dict[int, _Moments] = {}  # complete clusters, by size
        self._clusters: dict[int, list[float]] = {}  # by number: size, and then what adds up to the sum
        self._open: tuple[int, list[float]] = (0, [])

    def take(self, value: float, cluster: int | None = None, *, times: int = 1) -> None:
        """Add a value.

        Args:
            value: The value.
            cluster: Its cluster: None if it shares nothing with any other value, a negative number if the values of
                the cluster come one after the other, else any number.
            times: The number of such values; above 1 only with None.
        """
        self.count += times
        if value != 0 and value != 1:  # faster than a lookup in a tuple, and done for each score of a run
            self.is_rate = False
        if cluster is None:
            if times == 1:
                self._single.add(value)
            else:
                self._single.add_many(value, times)
            return
        if cluster != self._open[0] or not self._open[1]:
            self._close()
            self._open = cluster, [0.0] if cluster < 0 else self._clusters.setdefault(cluster, [0.0])
        terms = self._open[1]
        terms[0] += times
        terms.append(value)
        if len(terms) > _BUFFERED:
            terms[1:] = exact_parts(terms[1:])

    def _close(self) -> None:
        """Add the open cluster to those of its size, unless further values of it may come."""
        cluster, terms = self._open
        if cluster < 0:
            self._closed.setdefault(int(terms[0]), _Moments()).add(_rounded_total(terms[1:]))

    def _groups(self) -> list[_OfSize]:
        groups: dict[int, _OfSize] = {}
        cluster, opened = self._open
        for size, moments in ((1, self._single), *self._closed.items()):
            _merge(groups, moments.of_size(size))
        for terms in (*self._clusters.values(), *([opened] if cluster < 0 else [])):
            total = Fraction(_rounded_total(terms[1:]))
            _merge(groups, _OfSize(Fraction(terms[0]), 1, total, total * total))
        return [groups[size] for size in sorted(groups)]

    @property
    def mean(self) -> float | None:
        """The mean of the values; None without one."""
        return float(sum(group.total for group in self._groups()) / self.count) if self.count else None

    def effective_count(self, most: float | None = None) -> float | None:
        """Return the effective count of a mean of values from 0 to 1; None without a value.

        Args:
            most: The upper bound of the count; None for the number of values.
        """
        if not self.count:
            return None
        groups = self._groups()
        if self.is_rate and all(group.size == 1 for group in groups):
            return float(self.count)
        mean, error, degrees = _estimate(groups)
        if not error or (self.is_rate and all(group.squares == group.size * group.total for group in groups)):
            return _kish(groups)  # sums of equal verdicts are 0 or the size, and only their squares are size times sum
        half = Fraction(self.count, 2 * sum(group.number for group in groups))
        wider = [*groups, _OfSize(half, 1, half, half * half), _OfSize(half, 1, Fraction(), Fraction())]
        middle, wide, _ = _estimate(wider)
        share = self.count / (self.count + 2 * float(half))
        limit = float(self.count if most is None else most)
        least = min(limit, _worth(mean, error, 1.0), _worth(middle, wide, share))
        return max(1.0, least * (Z_95 / t_quantile_95(degrees)) ** 2)

    def interval(self, *, of_shares: bool = False, most: float | None = None) -> tuple[float, float] | None:
        """Return the 95 % interval of the mean.

        Args:
            of_shares: Whether the values are shares, from 0 to 1, as values of only 0 and 1 are.
            most: As for `effective_count`.

        Returns:
            None without a value. A mean of other values also has none with fewer than two clusters, if all values are
            equal, or if squares exceed a float (values of about 1e150 and more).
        """
        worth, mean = self.effective_count(most) if self.is_rate or of_shares else None, self.mean
        if mean is None:
            return None
        if worth is not None:
            return wilson(min(1.0, max(0.0, mean)) * worth, worth)
        _, error, degrees = _estimate(self._groups())
        half = t_quantile_95(degrees) * error
        ends = mean - half, mean + half
        return ends if error and all(map(math.isfinite, ends)) else None


def clustered_wilson(
    values: Sequence[float], clusters: Sequence[Hashable], *, alpha: float = 0.05
) -> tuple[float, float] | None:
    """Return Wilson's interval of a rate over its effective cases (`ClusteredMean`); None without a case."""
    from statistics import NormalDist

    mean = ClusteredMean()
    numbers: dict[Hashable, int] = {}
    for value, cluster in zip(values, clusters, strict=True):
        mean.take(value, numbers.setdefault(cluster, len(numbers)))
    n, rate = mean.effective_count(), mean.mean
    if n is None or rate is None:
        return None
    return wilson(rate * n, n, z=NormalDist().inv_cdf(1 - alpha / 2))


def _merge(groups: dict[int, _OfSize], more: _OfSize) -> None:
    if more.number:
        size = int(more.size)
        before = groups.get(size, _OfSize(more.size, 0, Fraction(), Fraction()))
        groups[size] = _OfSize(
            more.size, before.number + more.number, before.total + more.total, before.squares + more.squares
        )


def _squares(values: Sequence[float]) -> list[float]:
    """Return numbers that add up to the squares of values, two for each: the square and its rounding error.

    Source: T. J. Dekker, "A floating-point technique for extending the available precision", 1971.
    """
    squares: list[float] = []
    for value in values:
        square, scaled = value * value, value * _SPLIT
        high = scaled - (scaled - value)
        low = value - high
        squares += (square, ((high * high - square) + 2 * high * low) + low * low)
    return squares


def _exact_total(values: Sequence[float]) -> Fraction:
    try:
        return sum(map(Fraction, exact_parts(values)), Fraction())
    except OverflowError:
        return sum(map(Fraction, values), Fraction())


def _rounded_total(values: Sequence[float]) -> float:
    try:
        return math.fsum(values)
    except OverflowError:
        return sys.float_info.max if sum(map(Fraction, values)) > 0 else -sys.float_info.max


def _worth(rate: float, error: float, share: float) -> float:
    return rate * (1 - rate) / (error * error) * share


def _kish(groups: Iterable[_OfSize]) -> float:
    sizes = [(group.size, group.number) for group in groups]
    whole = sum(size * number for size, number in sizes)
    return float(whole * whole / sum(size * size * number for size, number in sizes))


def _estimate(groups: Sequence[_OfSize]) -> tuple[float, float, float]:
    """Return the mean, its CR2 standard error and the degrees of freedom.

    The error is 0 if there is none: with one cluster, if clusters do not differ, or if a square overflows.
    """
    n = sum((group.size * group.number for group in groups), Fraction())
    mean = sum((group.total for group in groups), Fraction()) / n
    try:
        # Exact up to here: otherwise terms that cancel each other would leave their rounding errors.
        error, degrees = cr2_error(
            (float(size), number, float(squared - 2 * mean * size * total + (mean * size) ** 2 * number))
            for size, number, total, squared in groups
        )
    except OverflowError:
        error, degrees = None, 0.0
    is_noise = error is None or error <= _NOISE * abs(float(mean))
    return float(mean), 0.0 if is_noise or error is None else error, max(1.0, degrees)
