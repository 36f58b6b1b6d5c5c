"""How far two judgements of the very same differ by chance: the same prompt run and judged twice, caches off."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.statistics.figure import NOTHING, Figure, rate

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """What identical inputs differ by.

    Args:
        flip_rate: Cases whose two verdicts differ.
        gap: Absolute difference of the two pass rates.
    """

    flip_rate: Figure
    gap: Figure


def noise_floor(one: Sequence[bool | None], other: Sequence[bool | None]) -> NoiseFloor:
    """Return how far two judgements of the same cases differ.

    Args:
        one: The first verdict of each case; None where there is none. Such cases are left out.
        other: The second verdict, in the same order.
    """
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if a is not None and b is not None]
    if not pairs:
        return NoiseFloor(rate(0, 0), Figure(None, 0, reason=NOTHING))
    passed = [sum(pair[side] for pair in pairs) for side in (0, 1)]
    gap = abs(passed[0] - passed[1]) / len(pairs)
    return NoiseFloor(rate(sum(a != b for a, b in pairs), len(pairs)), Figure(gap, len(pairs)))


def expected_gap(n: int, turn_rate: float) -> float:
    """Return the expected |difference| of two pass rates of the same n cases.

    Args:
        n: Cases, at least 1.
        turn_rate: Chance that one verdict is not the case's usual one, from 0 to 1; two verdicts on a case then
            differ with the chance 2·t·(1 - t).
    """
    differ = 2 * turn_rate * (1 - turn_rate)
    return math.fsum(
        math.comb(n, k) * differ**k * (1 - differ) ** (n - k) * _mean_distance(k) for k in range(n + 1)
    ) / n  # fmt: skip


def _mean_distance(steps: int) -> float:
    """Return the expected |sum| of so many steps of +1 or -1."""
    return sum(math.comb(steps, up) * abs(2 * up - steps) for up in range(steps + 1)) / (1 << steps)
