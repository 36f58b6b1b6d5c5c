"""Adjustment of p-values for several tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted to control the chance of any false alarm among the tests.

    Source: S. Holm, "A simple sequentially rejective multiple test procedure", 1979.
    """
    count = len(p_values)
    adjusted = [0.0] * count
    largest = 0.0
    for rank, index in enumerate(sorted(range(count), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted to control the expected share of false alarms among the alarms.

    Source: Y. Benjamini and Y. Hochberg, "Controlling the false discovery rate", 1995.
    """
    count = len(p_values)
    adjusted = [0.0] * count
    smallest = 1.0
    for rank, index in reversed(list(enumerate(sorted(range(count), key=p_values.__getitem__), start=1))):
        smallest = min(smallest, count / rank * p_values[index])
        adjusted[index] = smallest
    return adjusted
