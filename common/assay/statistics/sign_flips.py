"""The sign-flip permutation test, of many comparisons at once: comparing ten runs makes 45 of them a metric."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

_EXACT_NON_ZERO = 16  # differences up to which all sign assignments are tried
_NORMAL_FROM = 10_000  # differences above which the normal limit replaces the draws
_ASSIGNMENTS = 20_000
_POSITIONS = 256  # differences whose random signs are held at a time: 41 MB
_TOLERANCE = 1e-12


@dataclass(frozen=True, slots=True)
class SignFlip:
    """The outcome of a sign-flip test.

    Args:
        p: Two-sided p-value.
        method: "exact", "random" (20,000 assignments) or "normal_limit".
    """

    p: float
    method: str


def sign_flip(differences: Sequence[float], *, seed: int = 0) -> SignFlip:
    """Return how often random signs of the differences give a sum as large as the one seen.

    All assignments of signs are tried with up to 16 differences that are not 0, 20,000 random ones with up to 10,000;
    with more, the sum is taken as normal.
    """
    return sign_flips([differences], seed=seed)[0]


def sign_flips(comparisons: Sequence[Sequence[float] | NDArray[np.float64]], *, seed: int = 0) -> list[SignFlip]:
    """Return the test of each comparison, as `sign_flip` does; the random signs are drawn once for all.

    Signs belong to a difference's place among the sizes, from the largest, so that neither the order of the cases nor
    the direction of the comparison, nor what else is compared, moves a p-value.

    Source: R. A. Fisher, "The Design of Experiments", 1935.
    """
    import numpy as np

    differences = [np.asarray(each, dtype=float) for each in comparisons]
    sizes = list(map(_sizes, differences))
    sums = [abs(math.fsum(each.tolist())) for each in differences]
    found: dict[int, SignFlip] = {}
    drawn = []
    for index, each in enumerate(sizes):
        if not len(each):
            found[index] = SignFlip(1.0, "exact")
        elif len(each) <= _EXACT_NON_ZERO:
            found[index] = SignFlip(_exact(each, sums[index]), "exact")
        elif len(each) > _NORMAL_FROM:
            ratio = sums[index] / math.sqrt(float(each @ each))
            found[index] = SignFlip(math.erfc(ratio / math.sqrt(2)), "normal_limit")
        else:
            drawn.append(index)
    for index, p in zip(drawn, _random([sizes[i] for i in drawn], [sums[i] for i in drawn], seed), strict=True):
        found[index] = SignFlip(p, "random")
    return [found[index] for index in range(len(sizes))]


def _sizes(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sizes of the differences that are not 0, the largest first."""
    import numpy as np

    return np.sort(np.abs(differences[differences != 0]))[::-1]


def _bound(sizes: NDArray[np.float64], observed: float) -> float:
    """Return the least sum that counts as large: sums in another order differ in their last digits."""
    return observed - _TOLERANCE * max(1.0, float(sizes.sum()))


def _exact(sizes: NDArray[np.float64], observed: float) -> float:
    import numpy as np

    # Turning all signs changes no size of a sum, so that of the largest may stay.
    others = len(sizes) - 1
    signs = 1 - 2 * (np.arange(1 << others)[:, None] >> np.arange(others) & 1)
    hits = int((np.abs(sizes[0] + signs @ sizes[1:]) >= _bound(sizes, observed)).sum())
    return math.ldexp(hits, -others)


def _random(sizes: Sequence[NDArray[np.float64]], observed: Sequence[float], seed: int) -> list[float]:
    import numpy as np

    if not sizes:
        return []
    longest = max(map(len, sizes))
    columns = np.zeros((len(sizes), longest))
    for row, each in zip(columns, sizes, strict=True):
        row[: len(each)] = each
    rng, sums = np.random.default_rng(seed), np.zeros((len(sizes), _ASSIGNMENTS))
    for begin in range(0, longest, _POSITIONS):
        count = min(_POSITIONS, longest - begin)
        bits = np.frombuffer(rng.bytes(count * _ASSIGNMENTS // 8), dtype=np.uint8)
        signs = np.unpackbits(bits).reshape(count, _ASSIGNMENTS) * 2.0 - 1.0
        sums += columns[:, begin : begin + count] @ signs
    bounds = np.array([_bound(each, one) for each, one in zip(sizes, observed, strict=True)])
    hits = (np.abs(sums) >= bounds[:, None]).sum(axis=1)
    return [(1 + int(count)) / (1 + _ASSIGNMENTS) for count in hits]
