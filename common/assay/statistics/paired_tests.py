"""Exact tests of paired outcomes: McNemar for wins against losses, sign flips for differences of scores."""

from __future__ import annotations

import itertools
import math
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_EXACT = 16
_DRAWS = 20_000
_TOLERANCE = 1e-12


def mcnemar_exact(losses: int, wins: int) -> float:
    """Return the p-value of wins against losses, min(1, 2·P(X ≤ min)) with X ~ Binomial(losses + wins, ½).

    Source: Q. McNemar, "Note on the sampling error of the difference between correlated proportions", 1947.
    """
    decided = losses + wins
    tail = sum(math.comb(decided, count) for count in range(min(losses, wins) + 1))
    return min(1.0, 2 * tail / (1 << decided))


def sign_flip(differences: Sequence[float], *, seed: int = 0) -> float:
    """Return the share of sign assignments of the non-zero differences whose |sum| is at least the observed one.

    Args:
        differences: One an item, finite. Up to 16 that are not 0 are tried in full; of more, 20,000 assignments
            are drawn.
        seed: Of the drawing.

    Source: R. A. Fisher, "The Design of Experiments", 1935.
    """
    sizes = [abs(difference) for difference in differences if difference]
    observed = abs(math.fsum(differences)) - _TOLERANCE
    if not sizes:
        return 1.0
    if len(sizes) <= _MAX_EXACT:
        # Turning all signs changes no size, so the first one may stay.
        hits = sum(
            abs(math.fsum(map(_times, sizes, (1, *signs)))) >= observed
            for signs in itertools.product((1, -1), repeat=len(sizes) - 1)
        )
        return hits / (1 << len(sizes) - 1)
    generator = random.Random(seed)  # noqa: S311  # resampling, no secret
    hits = 0
    for _ in range(_DRAWS):
        bits = generator.getrandbits(len(sizes))
        hits += abs(math.fsum(-size if bits >> index & 1 else size for index, size in enumerate(sizes))) >= observed
    return (1 + hits) / (1 + _DRAWS)


def _times(size: float, sign: int) -> float:
    return size * sign
