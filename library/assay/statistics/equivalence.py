"""The interval that a margin is compared with to show equivalence, by two one-sided tests.

Equal or nearly equal differences do not show that a large loss is rare: twenty equal cases are quite likely even if one
case in twenty is lost. So the interval covers the differences plus one largest gain and one largest loss of the scale,
like the interval of Bonett and Price for two rates. With fewer than 50 cases that is not enough: for rates the interval
then also covers the exact limits of the cases lost and won, and scores have none. Without a scale there is none either.

Sources: D. Schuirmann, "A comparison of the two one-sided tests procedure", 1987; D. Bonett and R. Price, "Adjusted
Wald confidence interval for a difference of binomial proportions based on paired data", 2012; C. Clopper and
E. Pearson, "The use of confidence or fiducial limits", 1934.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay.statistics.clusters import cr2_error, in_clusters
from assay.statistics.intervals import upper_rate
from assay.statistics.paired import bonett_price, t_interval

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from assay.statistics.clusters import Clusters

LEAST_CASES = 50
"""The cases, or clusters, from which on the added gain and loss keep a wrong "equivalent" below 10 %."""


def rate_equivalence(b: int, c: int, n: int, *, alpha: float = 0.05) -> tuple[float, float]:
    """Return the interval of a difference of paired rates at level 1 - 2 alpha.

    Args:
        b: Cases that only A has right.
        c: Cases that only B has right.
        n: All cases.
        alpha: Level of each of the two one-sided tests.
    """
    low, high = bonett_price(b, c, n, alpha=2 * alpha)
    if n >= LEAST_CASES:
        return low, high
    return min(low, -upper_rate(b, n, level=1 - alpha)), max(high, upper_rate(c, n, level=1 - alpha))


def score_equivalence(
    differences: Sequence[float],
    bounds: tuple[float, float],
    *,
    alpha: float = 0.05,
    clusters: Sequence[Hashable] | None = None,
) -> tuple[float, float] | None:
    """Return the interval of the mean difference at level 1 - 2 alpha, with one largest gain and loss added.

    Args:
        differences: B - A of each case.
        bounds: The least and the greatest value of the metric, infinite if there is none.
        alpha: Level of each of the two one-sided tests.
        clusters: The cluster of each case; with clusters, two clusters of mean size are added.

    Returns:
        None for a metric without a scale, and with fewer than 50 cases, or clusters.
    """
    if len(differences) < LEAST_CASES or not 0 < bounds[1] - bounds[0] < math.inf:
        return None
    grouped = in_clusters(differences, clusters)
    return widened_interval(grouped, bounds[1] - bounds[0], alpha) if len(grouped.counts) >= LEAST_CASES else None


def widened_interval(
    grouped: Clusters, width: float, alpha: float, *, gains: int = 1, losses: int = 1
) -> tuple[float, float] | None:
    """Return the t interval of a mean at level 1 - 2 alpha, with largest gains and losses of mean size added.

    Args:
        grouped: The differences by cluster.
        width: The range of the metric.
        alpha: Level of each side.
        gains: The number of added gains.
        losses: The number of added losses.
    """
    size = math.fsum(grouped.counts) / len(grouped.counts)
    added = (*(width * size for _ in range(gains)), *(-width * size for _ in range(losses)))
    sums, counts = (*grouped.sums, *added), (*grouped.counts, *(size for _ in added))
    mean = math.fsum(sums) / math.fsum(counts)
    error, degrees = cr2_error(
        (count, 1, (total - mean * count) ** 2) for total, count in zip(sums, counts, strict=True)
    )
    return t_interval(mean, error, degrees, alpha=2 * alpha)
