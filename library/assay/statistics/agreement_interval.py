"""95 % intervals of agreement between two raters, by the bias-corrected and accelerated bootstrap.

Kappas and alphas are 1 - D_o / D_e: the observed disagreement within items, and the disagreement by chance. Items are
resampled 2,000 times. All figures of a resample follow from a few sums over its items, so 2,000 resamples of hundreds
of items take milliseconds.

If the two raters agree on all n items, no resample can disagree, and the bootstrap would give [1, 1]. The lower end
then assumes the share of disagreements, as distant as the values allow, of which n items show none with a chance of
2.5 % (Clopper and Pearson, 1934).

Source: B. Efron, "Better bootstrap confidence intervals", 1987.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from assay.statistics.intervals import Z_95

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import numpy as np
    from numpy.typing import NDArray

RESAMPLES = 2_000
_LEAST_VALID = 0.9
_AT_A_TIME = 1_000_000  # counts in memory at a time: 8 MB
_TAIL = 0.025
_TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of agreement.

    Args:
        squared: Whether the distance of two values is the square of their difference; otherwise it is 0 or 1.
        pooled: Whether chance draws from the pooled values of both raters, without replacement, as alpha does;
            otherwise from each rater's own values, as kappa does.
    """

    squared: bool
    pooled: bool


KAPPA = Measure(squared=False, pooled=False)
QUADRATIC_KAPPA = Measure(squared=True, pooled=False)
NOMINAL_ALPHA = Measure(squared=False, pooled=True)
INTERVAL_ALPHA = Measure(squared=True, pooled=True)


def agreement_interval(pairs: Sequence[tuple[Hashable, Hashable]], measure: Measure) -> tuple[float, float] | None:
    """Return the 95 % interval of a figure of agreement.

    Args:
        pairs: The values of the two raters for each item; numbers if distances are squared.
        measure: The figure.

    Returns:
        None with fewer than two items, or if more than a tenth of the resamples have no value, since the rest would
        be biased.
    """
    import numpy as np

    counted = Counter(pairs)
    # Sorted, so that the order of the items does not matter.
    kinds = sorted(counted, key=repr)
    counts = np.array([counted[kind] for kind in kinds], dtype=float)
    n = len(pairs)
    if n < 2:
        return None
    features = _features(kinds, measure)
    observed, expected = _disagreement(counts[None, :] @ features, measure)
    if expected[0] <= _TOLERANCE:
        return None
    if observed[0] == 0:
        farthest = 4.0 if measure.squared else 1.0
        return max(-1.0, 1 - (1 - _TAIL ** (1 / n)) * farthest / float(expected[0])), 1.0
    value = 1 - float(observed[0] / expected[0])
    drawn = _drawn(counts, features, measure)
    if len(drawn) < _LEAST_VALID * RESAMPLES:
        return None
    low, high = _levels(drawn, value, _acceleration(counts, features, measure))
    return float(np.quantile(drawn, low)), float(np.quantile(drawn, high))


def _features(kinds: Sequence[tuple[Hashable, Hashable]], measure: Measure) -> NDArray[np.float64]:
    """Return the contribution of each kind of pair to the sums behind a figure.

    The first two columns are 1 and the distance. With squared distances, a, b and a² + b² follow; otherwise, for each
    value, whether the first rater gives it, and then whether the second does.
    """
    import numpy as np

    if measure.squared:
        a, b = (np.array([float(kind[side]) for kind in kinds]) for side in (0, 1))  # type: ignore[arg-type]
        least, most = min(a.min(), b.min()), max(a.max(), b.max())
        # From -1 to 1: squares of values far from 0 would cancel out, and those of tiny ones be no floats.
        a, b = ((ratings - (least + most) / 2) / ((most - least) / 2 or 1.0) for ratings in (a, b))
        return np.stack([np.ones(len(a)), (a - b) ** 2, a, b, a * a + b * b], axis=1)
    values = {value: place for place, value in enumerate(dict.fromkeys(value for kind in kinds for value in kind))}
    features = np.zeros((len(kinds), 2 + 2 * len(values)))
    for row, (first, other) in zip(features, kinds, strict=True):
        row[:2] = 1.0, float(first != other)
        row[2 + values[first]] = row[2 + len(values) + values[other]] = 1.0
    return features


def _disagreement(
    sums: NDArray[np.float64], measure: Measure
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
    """Return the observed and the expected disagreement of each row of sums; both by the formulas of `agreement`."""
    n, apart = sums[:, 0], sums[:, 1]
    if measure.squared:
        a, b, squares = sums[:, 2], sums[:, 3], sums[:, 4]
        pooled = 2 * (squares - (a + b) ** 2 / (2 * n)) / (2 * n - 1)
        expected = pooled if measure.pooled else squares / n - 2 * a * b / n**2
    else:
        width = (sums.shape[1] - 2) // 2
        a, b = sums[:, 2 : 2 + width], sums[:, 2 + width :]
        pooled = ((2 * n) ** 2 - ((a + b) ** 2).sum(axis=1)) / (2 * n * (2 * n - 1))
        expected = pooled if measure.pooled else 1 - (a * b).sum(axis=1) / n**2
    return apart / n, expected.clip(min=0)


def _figures(sums: NDArray[np.float64], measure: Measure) -> NDArray[np.float64]:
    """Return the figure of each row of sums that has one."""
    observed, expected = _disagreement(sums, measure)
    has_value = expected > _TOLERANCE
    return 1 - observed[has_value] / expected[has_value]


def _drawn(counts: NDArray[np.float64], features: NDArray[np.float64], measure: Measure) -> NDArray[np.float64]:
    import numpy as np

    rng, n = np.random.default_rng(0), round(float(counts.sum()))
    step = max(1, _AT_A_TIME // len(counts))
    parts = [
        _figures(rng.multinomial(n, counts / n, size=min(step, RESAMPLES - begin)) @ features, measure)
        for begin in range(0, RESAMPLES, step)
    ]
    return np.concatenate(parts)


def _acceleration(counts: NDArray[np.float64], features: NDArray[np.float64], measure: Measure) -> float:
    """Return the acceleration of the figure's error, by leaving out one item at a time."""
    without = _figures(counts[None, :] @ features - features, measure)
    if len(without) < len(counts):  # a single item makes the difference between the raters' values
        return 0.0
    away = float(counts @ without) / float(counts.sum()) - without
    squares = float(counts @ away**2)
    return float(counts @ away**3) / (6 * squares**1.5) if squares > 0 else 0.0


def _levels(drawn: NDArray[np.float64], value: float, acceleration: float) -> tuple[float, float]:
    """Return the quantiles of the resamples that are the ends of the interval."""
    normal, n = NormalDist(), len(drawn)
    below = float((drawn < value - _TOLERANCE).sum()) + 0.5 * float((abs(drawn - value) <= _TOLERANCE).sum())
    bias = normal.inv_cdf(min(max(below / n, 0.5 / n), 1 - 0.5 / n))

    def level(z: float) -> float:
        shifted = bias + z
        rest = 1 - acceleration * shifted
        return normal.cdf(bias + shifted / rest) if rest > 0 else normal.cdf(math.copysign(math.inf, shifted))

    return level(-Z_95), level(Z_95)
