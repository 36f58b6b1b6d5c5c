"""Sums that do not depend on the order of their terms, so that a repeated fold gives the same bits."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_LARGEST = 2.0**960
"""Terms up to this size cannot overflow, however many there are."""
_COLLECTED = 64


class ExactSum:
    """A running sum without rounding error.

    It collects terms and replaces them by a few numbers with exactly their sum (`exact_parts`). From the first term
    near the largest float on, it continues with fractions, which are slower and do not overflow.
    """

    def __init__(self) -> None:
        self._terms: list[float] = []
        self._whole: Fraction | None = None
        self.count = 0

    def add(self, term: float, weight: float = 1.0) -> None:
        """Add one finite term, `weight` times."""
        self.count += 1
        product = term * weight
        is_small = -_LARGEST <= product <= _LARGEST
        if self._whole is None and is_small:
            self._terms.append(product)
            if len(self._terms) >= _COLLECTED:
                self._terms = exact_parts(self._terms)
        else:
            self._whole = self.exact + (Fraction(product) if is_small else Fraction(term) * Fraction(weight))

    @property
    def exact(self) -> Fraction:
        """The sum."""
        return self._whole if self._whole is not None else sum(map(Fraction, self._terms), Fraction())

    @property
    def total(self) -> float:
        """The sum, rounded once, and at most the largest float."""
        if self._whole is None:
            return math.fsum(self._terms)
        try:
            return float(self._whole)
        except OverflowError:
            return sys.float_info.max if self._whole > 0 else -sys.float_info.max

    @property
    def mean(self) -> float | None:
        """The mean; None without terms."""
        if self._whole is not None:
            return float(self._whole / self.count)
        return self.total / self.count if self.count else None


def exact_parts(values: Sequence[float]) -> list[float]:
    """Return few numbers with exactly the sum of others.

    Raises:
        OverflowError: The sum, or a part of it, is larger than a float.
    """
    terms, parts = list(values), list[float]()
    while (total := math.fsum(terms)) != 0:
        parts.append(total)
        terms.append(-total)
    return parts


def exact_mean(values: Sequence[float]) -> float:
    """Return the finite mean of at least one finite number, however large the numbers are."""
    try:
        return math.fsum(values) / len(values)
    except OverflowError:
        return float(sum(map(Fraction, values), Fraction()) / len(values))
