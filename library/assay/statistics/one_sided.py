"""One-sided bounds of a paired difference, which the largest allowed drop is compared with: a non-inferiority test.

As for equivalence, equal cases do not show that a large loss is rare. Of rates, the exact limits of both kinds of
disagreement are combined, so that a bound is wrong in at most 5 % of comparisons by exact enumeration, whatever is
rare. Of scores, two of the largest losses and one of the largest gains that the scale allows are added on the side of
the bound; with one of each, as for equivalence, a rare large loss makes it wrong in up to 9 %.

Functions import scipy when they are called.

Sources: R. Newcombe, "Improved confidence intervals for the difference between binomial proportions based on paired
data", 1998, with the limits of C. Clopper and E. Pearson, 1934, in place of Wilson's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay.statistics.clusters import in_clusters
from assay.statistics.equivalence import widened_interval
from assay.statistics.paired import t_interval

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


def rate_bounds(b: int, c: int, n: int, *, alpha: float = 0.05) -> tuple[float, float]:
    """Return what a difference of paired rates is not below, and not above, each at 1 - alpha on one side.

    Args:
        b: Cases that A alone has right.
        c: Cases that B alone has right.
        n: All cases, at least 1.
        alpha: Level of each of the two bounds.
    """
    return _lower_bound(b, c, n, alpha), -_lower_bound(c, b, n, alpha)


def _lower_bound(lost: int, won: int, n: int, alpha: float) -> float:
    from scipy import special

    most = float(special.betaincinv(lost + 1, n - lost, 1 - alpha)) if lost < n else 1.0
    least = float(special.betaincinv(won, n - won + 1, alpha)) if won else 0.0
    rate_lost, rate_won = lost / n, won / n
    up, down = most - rate_lost, rate_won - least
    spread = (1 - rate_lost) * (1 - rate_won)
    # Both are shares of the same cases, and the more are lost, the fewer can be won.
    likeness = math.sqrt(rate_lost * rate_won / spread) if spread else 0.0
    return max(-1.0, rate_won - rate_lost - math.sqrt(up * up + down * down + 2 * likeness * up * down))


def score_bounds(
    differences: Sequence[float],
    bounds: tuple[float, float],
    *,
    alpha: float = 0.05,
    clusters: Sequence[Hashable] | None = None,
) -> tuple[float, float] | None:
    """Return what a mean difference is not below, and not above, each at 1 - alpha on one side.

    Without a scale no loss can be named that is too rare to be seen: then the spread of the differences is all there is
    to know.

    Args:
        differences: B - A of each case, at least one.
        bounds: The least and the greatest value of the metric, infinite if there is none.
        alpha: Level of each of the two bounds.
        clusters: What each case shares with others; clusters of mean size are then added.

    Returns:
        None with one case, or cluster, and for a metric without a scale whose differences have no spread.
    """
    grouped, width = in_clusters(differences, clusters), bounds[1] - bounds[0]
    if len(grouped.counts) < 2:
        return None
    if not 0 < width < math.inf:
        mean = math.fsum(differences) / len(differences)
        return t_interval(mean, grouped.error, grouped.degrees, alpha=2 * alpha)
    below, above = widened_interval(grouped, width, alpha, losses=2), widened_interval(grouped, width, alpha, gains=2)
    return None if below is None or above is None else (max(-width, below[0]), min(width, above[1]))
