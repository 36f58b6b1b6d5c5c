"""Agreement of two raters: accuracy, Cohen's kappa, weighted kappa, Spearman, and the confusion table."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from assay.statistics.figure import CONSTANT, NOTHING, ONE_LABEL, Figure, rate

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


def accuracy(first: Sequence[Hashable], other: Sequence[Hashable]) -> Figure:
    """Return the share of items on which two raters give the same label, with its Wilson interval.

    Args:
        first: A label per item.
        other: The other rater's labels, in the same order.
    """
    return rate(sum(a == b for a, b in zip(first, other, strict=True)), len(first))


def cohen_kappa(first: Sequence[Hashable], other: Sequence[Hashable]) -> Figure:
    """Return Cohen's kappa, (p_o - p_e) / (1 - p_e): agreement beyond what these labels give by chance.

    Not computed if both raters only give one and the same label, since chance then explains everything.

    Source: J. Cohen, "A coefficient of agreement for nominal scales", 1960.
    """
    n = len(first)
    if missing := _missing(first, other):
        return missing
    ours, theirs = Counter(first), Counter(other)
    # In whole numbers until the end: n² (1 - p_e) and n² (p_o - p_e).
    by_chance = sum(count * theirs[label] for label, count in ours.items())
    observed = n * sum(a == b for a, b in zip(first, other, strict=True))
    return Figure((observed - by_chance) / (n * n - by_chance), n)


def weighted_kappa(first: Sequence[float], other: Sequence[float]) -> Figure:
    """Return kappa with quadratic weights, 1 - Σ(a_i - b_i)²/n / (Σ_ij (a_i - b_j)²/n²): near misses count as such.

    Args:
        first: A finite score per item.
        other: The other rater's scores, in the same order, on the same scale.

    Source: J. Cohen, "Weighted kappa: nominal scale agreement with provision for scaled disagreement", 1968.
    """
    if missing := _missing(first, other):
        return missing
    n = len(first)
    centre = math.fsum([*first, *other]) / (2 * n)  # without it the squares below would cancel out
    widest = max(*first, *other) - min(*first, *other)  # whose square may be too small for a float
    a, b = ([(value - centre) / widest for value in ratings] for ratings in (first, other))
    observed = math.fsum(((x - y) / widest) ** 2 for x, y in zip(first, other, strict=True)) / n
    squares = (math.fsum(x * x for x in a) + math.fsum(y * y for y in b)) / n
    expected = squares - 2 * (math.fsum(a) / n) * (math.fsum(b) / n)
    return Figure(min(1.0, 1 - observed / expected), n)


def spearman(first: Sequence[float], other: Sequence[float]) -> Figure:
    """Return Spearman's rank correlation, with mean ranks for ties; not computed if one side never varies.

    Source: C. Spearman, "The proof and measurement of association between two things", 1904.
    """
    n = len(first)
    if n != len(other):
        raise ValueError("two raters have an equal number of labels")
    if n < 2:
        return Figure(None, n, reason=NOTHING)
    if len(set(first)) == 1 or len(set(other)) == 1:
        return Figure(None, n, reason=CONSTANT)
    middle = (n + 1) / 2
    a, b = [rank - middle for rank in midranks(first)], [rank - middle for rank in midranks(other)]
    product = math.fsum(x * y for x, y in zip(a, b, strict=True))
    size = math.sqrt(math.fsum(x * x for x in a) * math.fsum(y * y for y in b))
    return Figure(max(-1.0, min(1.0, product / size)), n)


def midranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value from 1; equal values share the mean of their ranks."""
    counts = Counter(values)
    ranks: dict[float, float] = {}
    below = 0
    for value in sorted(counts):
        ranks[value] = below + (counts[value] + 1) / 2
        below += counts[value]
    return [ranks[value] for value in values]


def confusion(judge: Sequence[str], people: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the counts of the judge's labels (inner) for each label of people (outer).

    Args:
        judge: A label per item.
        people: The labels of people, in the same order.
    """
    table: dict[str, dict[str, int]] = {}
    for label, right in zip(judge, people, strict=True):
        row = table.setdefault(right, {})
        row[label] = row.get(label, 0) + 1
    return table


def _missing(first: Sequence[Hashable], other: Sequence[Hashable]) -> Figure | None:
    if len(first) != len(other):
        raise ValueError("two raters have an equal number of labels")
    if not first:
        return Figure(None, 0, reason=NOTHING)
    if len({*first, *other}) == 1:
        return Figure(None, len(first), reason=ONE_LABEL)
    return None
