"""Clustered cases: the standard error of their mean, the effective number of clusters, and what they can decide.

The standard error is CR2, which corrects each cluster's residual for its influence on the mean, with Satterthwaite's
degrees of freedom. For a mean both have a closed form. With h the cluster's share of the cases and E the sum of its
residuals,

    error² = Σ E² / (1 - h) / n²        degrees = 1 / (Σ h² + (Σ a)² - Σ a²)  with  a = h² / (1 - h)

Sources: R. M. Bell and D. F. McCaffrey, "Bias reduction in standard errors for linear regression with multi-stage
samples", 2002; J. E. Pustejovsky and E. Tipton, "Small-sample methods for cluster-robust variance estimation and
hypothesis testing in fixed effects models", 2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

NEGLIGIBLE = 1e-9
"""The share of a mean up to which a standard error or deviation counts as rounding."""


@dataclass(frozen=True, slots=True)
class Clusters:
    """Cases by cluster.

    Args:
        sums: Sum of the values of each cluster.
        counts: Cases of each cluster.
        error: CR2 standard error of the mean of all cases; 0 if all clusters have the same mean, None with fewer
            than two.
        degrees: Satterthwaite's degrees of freedom of the error; 0 with fewer than two clusters.
    """

    sums: tuple[float, ...]
    counts: tuple[int, ...]
    error: float | None
    degrees: float

    @property
    def effective_count(self) -> float:
        """The number of clusters of equal size with the same information: (Σ n)² / Σ n²."""
        return effective_number(self.counts)

    @property
    def largest_share(self) -> float:
        """The share of the cases in the largest cluster."""
        return max(self.counts) / sum(self.counts)


def in_clusters(values: Sequence[float], clusters: Sequence[Hashable] | None) -> Clusters:
    """Return values by cluster, and the standard error of their mean.

    Args:
        values: One per case; at least one.
        clusters: The cluster of each case; None if every case is its own cluster, which gives the usual standard
            error.
    """
    n = len(values)
    mean = math.fsum(values) / n
    if clusters is None:
        squares = math.fsum([(value - mean) ** 2 for value in values])
        error = math.sqrt(n / (n - 1) * squares) / n if n > 1 else None
        return Clusters(tuple(values), (1,) * n, 0.0 if is_negligible(error, mean) else error, n - 1)
    members: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        members.setdefault(cluster, []).append(value)
    sums, counts = tuple(map(math.fsum, members.values())), tuple(map(len, members.values()))
    error, degrees = cr2_error(
        (len(values_of_cluster), 1, math.fsum([value - mean for value in values_of_cluster]) ** 2)
        for values_of_cluster in members.values()
    )
    return Clusters(sums, counts, 0.0 if is_negligible(error, mean) else error, degrees)


def is_negligible(spread: float | None, mean: float) -> bool:
    """Whether a standard error or deviation is 0, or so small compared with the mean that it is only rounding."""
    return spread is not None and spread <= NEGLIGIBLE * abs(mean)


def cr2_error(groups: Iterable[tuple[float, int, float]]) -> tuple[float | None, float]:
    """Return the CR2 standard error of a mean and its degrees of freedom; None and 0 with fewer than two clusters.

    Args:
        groups: Clusters by size, or single clusters: the cases of a cluster, the number of such clusters, and the sum
            of their squared residuals. A cluster's residual is the sum of value - mean.
    """
    groups = list(groups)
    if sum(number for _, number, _ in groups) < 2:
        return None, 0.0
    n = math.fsum([size * number for size, number, _ in groups])
    squares = math.fsum([squared * (n / (n - size)) for size, _, squared in groups])
    pulls = [(number, size * size / (n * (n - size))) for size, number, _ in groups]
    shares = math.fsum([number * (size / n) ** 2 for size, number, _ in groups])
    pull, of_squares = (math.fsum([number * pull**power for number, pull in pulls]) for power in (1, 2))
    return math.sqrt(squares) / n, 1 / (shares + pull**2 - of_squares)


def effective_number(counts: Iterable[int]) -> float:
    """Return the number of clusters of equal size with the same information as these sizes: (Σ n)² / Σ n²."""
    sizes = list(counts)
    return sum(sizes) ** 2 / sum(size * size for size in sizes)


def can_decide(units: int, alpha: float) -> bool:
    """Whether a sign-flip test of so many cases, or clusters, with a sum other than 0 can be below a level."""
    return min(1.0, math.ldexp(2.0, -units)) < alpha


def least_units(alpha: float) -> int:
    """Return the least number of cases, or clusters, with a sum other than 0 for a sign-flip test below a level.

    That is ⌈1 + log₂(1 / α)⌉: six at 5 %, eight at 1 %.
    """
    units = 1
    while not can_decide(units, alpha):
        units += 1
    return units
