"""Estimates after planned looks: the difference and its interval, adjusted for the looks.

A comparison that stops when z reaches a bound stops too often when chance has raised the difference, so the plain
difference is too large on average. The results are therefore ordered by stage: a stop for B at an earlier look ranks
above a stop at a later look, and within a look by z. The median-unbiased estimate is the difference at which results
above and below the observed one are equally likely; the interval contains the differences at which the observed result
is not among the most extreme. So it excludes 0 if a look decides, up to the rounding of bounds.

Functions import numpy and scipy when they are called.

Sources: A. Tsiatis, G. Rosner and C. Mehta, "Exact confidence intervals following a group sequential test", 1984;
C. Jennison and B. Turnbull, "Group Sequential Methods with Applications to Clinical Trials", 2000, chapters 8 and 19;
the recursion: P. Armitage, C. McPherson and B. Rowe, "Repeated significance tests on accumulating data", 1969.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from assay.statistics.sequential import LOOK_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Sequence

_NODES = 48
_NODES_A_DEVIATION = 2  # of the narrowest step between two looks
_MOST_NODES = 1_000
_PRECISION = 1e-9


@dataclass(frozen=True, slots=True)
class StagewiseEstimate:
    """A difference after planned looks.

    Args:
        difference: The median-unbiased estimate.
        interval: The interval at level 1 - alpha, with alpha/2 on each side.
    """

    difference: float
    interval: tuple[float, float]


def stagewise_estimate(
    z: float, standard_error: float, looks: Sequence[float], *, alpha: float = 0.05
) -> StagewiseEstimate:
    """Return the estimated difference of a comparison with planned looks.

    Args:
        z: The statistic of the last look, which stopped the comparison or ended it.
        standard_error: The standard error of the difference at that look, above 0.
        looks: The information at each look up to it, such as its pairs of values; at most five.
        alpha: The interval has level 1 - alpha.

    Raises:
        ValueError: There is no look with information, there are more than five, or information is lost between looks.
    """
    stages = _Stages(looks)
    middle, low, high = (standard_error * _drift(share, z, stages) for share in (0.5, alpha / 2, 1 - alpha / 2))
    return StagewiseEstimate(middle, (low, high))


def _drift(share: float, z: float, stages: _Stages) -> float:
    """Return the expected z of the last look for which a result at least as extreme as z has the chance `share`."""
    from scipy.optimize import brentq

    def excess(drift: float) -> float:
        return stages.share_above(z, drift) - share

    low = high = z + NormalDist().inv_cdf(share)  # the root itself where the first look is the last
    step = 1.0
    while excess(low) > 0:
        low, step = low - step, 2 * step
    step = 1.0
    while excess(high) < 0:
        high, step = high + step, 2 * step
    return low if low == high else float(brentq(excess, low, high, xtol=_PRECISION))


class _Stages:
    """The looks of a comparison up to its last, with the information of the last look as the unit.

    Sums are S = z·√information. Their density without a stop is computed once, without a difference; with a drift θ
    each sum is exp(θ·S - θ²·information/2) times as likely.
    """

    def __init__(self, looks: Sequence[float]) -> None:
        import numpy as np
        from scipy.special import roots_legendre

        if not 0 < len(looks) <= len(LOOK_BOUNDS) or looks[-1] <= 0 or list(looks) != sorted(looks):
            raise ValueError(f"one to {len(LOOK_BOUNDS)} looks of growing information are needed, not {list(looks)}")
        # Looks without new values are one look: it stops by the smallest of their bounds, and by z as they do.
        bounds = dict(zip(looks[:-1], LOOK_BOUNDS, strict=False))
        stops = [(look / looks[-1], bound) for look, bound in bounds.items() if 0 < look < looks[-1]]
        begins, ends = [0.0, *(share for share, _ in stops)], [*(share for share, _ in stops), 1.0]
        narrowest = math.sqrt(min(end - begin for begin, end in zip(begins, ends, strict=True)))
        sums, density = np.zeros(1), np.ones(1)  # at the start, all of them are 0
        self._stages = [(sums, density)]
        self._begins, self._ends = begins, ends
        self._bounds = [bound * math.sqrt(share) for share, bound in stops]
        for begin, end, bound in zip(begins, ends, self._bounds, strict=False):
            count = min(_NODES + math.ceil(_NODES_A_DEVIATION * 2 * bound / narrowest), _MOST_NODES)
            nodes, weights = roots_legendre(count)
            moved = (bound * nodes[:, None] - sums) / math.sqrt(end - begin)
            kernel = np.exp(-moved * moved / 2) / math.sqrt(2 * math.pi * (end - begin))
            sums, density = bound * nodes, bound * weights * (kernel @ density)
            self._stages.append((sums, density))

    def share_above(self, z: float, drift: float) -> float:
        """Return the chance of a result at least as extreme as z at the last look, by the drift of z there."""
        import numpy as np
        from scipy.special import ndtr

        above = 0.0
        for (sums, density), begin, end, bound in zip(
            self._stages, self._begins, self._ends, [*self._bounds, z], strict=True
        ):
            likely = density * np.exp(drift * sums - drift * drift * begin / 2)
            above += float(likely @ ndtr((sums + drift * (end - begin) - bound) / math.sqrt(end - begin)))
        return above
