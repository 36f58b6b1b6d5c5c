"""Comparisons of drawn values, decided as `assay compare` decides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from benchmarks.error_rates.rates import ALPHA, Flags, Values

from assay.comparison.metric_pairs import PairedValues, compare_values
from assay.comparison.model import ComparisonSettings, ComparisonVerdict, MetricComparison
from assay.comparison.verdicts import decided
from assay.statistics.sign_flips import sign_flips

BATCH = 100  # comparisons per batch of random signs
DECIDED = (ComparisonVerdict.A_BETTER, ComparisonVerdict.B_BETTER)
NAMES = ("a", "b")
UNBOUNDED = (-math.inf, math.inf)


def compare(
    a: Values,
    b: Values,
    *,
    clusters: Sequence[str] | None = None,
    is_binary: bool = False,
    bounds: tuple[float, float] = UNBOUNDED,
    seed: int = 0,
    **settings: Any,
) -> list[MetricComparison]:
    """Return the comparison of each row of two matrices, by a metric for which higher is better.

    Args:
        a: Values of A, one comparison a row and one case a column.
        b: Those of B.
        clusters: Cluster of each case.
        is_binary: Whether the values are 0 and 1, of one run each.
        bounds: The least and the greatest value of the metric.
        seed: Seed of the random signs of the first batch; each batch draws new signs.
        **settings: Further fields of `ComparisonSettings`.
    """
    pairs = [_pair(*row, clusters, is_binary=is_binary, bounds=bounds) for row in zip(a, b, strict=True)]
    if is_binary and clusters is None:  # the comparison depends only on the table of 0 and 1
        tables = list(zip((a > b).sum(axis=1), (a < b).sum(axis=1), (a * b).sum(axis=1), strict=True))
        different = dict(zip(tables, pairs, strict=True))
        by_table = dict(zip(different, compare_pairs(list(different.values()), **settings), strict=True))
        return [by_table[table] for table in tables]
    return compare_pairs(pairs, seed=seed, cluster="category" if clusters else "", **settings)


def compare_pairs(pairs: Sequence[PairedValues], *, seed: int = 0, **settings: Any) -> list[MetricComparison]:
    """Return the comparison of each pair of runs.

    Args:
        pairs: Their values.
        seed: Seed of the random signs of the first batch; each batch draws new signs.
        **settings: Fields of `ComparisonSettings`.
    """
    compared: list[MetricComparison] = []
    for begin in range(0, len(pairs), BATCH):
        batch, some = ComparisonSettings(seed=seed + begin, **settings), pairs[begin : begin + BATCH]
        for comparison, pair in zip(compare_values(some, batch), some, strict=True):
            compared += decided([comparison], [pair], batch, None, [NAMES])
    return compared


def _pair(
    a: Values, b: Values, clusters: Sequence[str] | None, *, is_binary: bool, bounds: tuple[float, float]
) -> PairedValues:
    return PairedValues("score", True, True, is_binary=is_binary, bounds=bounds, a=a, b=b, clusters=clusters)


def decisions(compared: Sequence[MetricComparison]) -> Flags:
    """Return which comparisons decide that one run is better."""
    return np.array([result.verdict in DECIDED for result in compared])


def flips_decide(sums: Values) -> Flags:
    """Return which sign-flip tests are significant: the test of `compare` without its other figures.

    Args:
        sums: Differences of cases, or their sums by cluster; one comparison a row.
    """
    significant: list[bool] = []
    for begin in range(0, len(sums), BATCH):
        significant += [test.p < ALPHA for test in sign_flips(list(sums[begin : begin + BATCH]), seed=begin)]
    return np.array(significant)


def covered(compared: Sequence[MetricComparison], difference: float) -> Flags:
    """Return which intervals contain the true difference; a missing interval excludes nothing and counts."""
    return np.array([result.interval is None or _holds(result.interval, difference) for result in compared])


def _holds(interval: tuple[float, float], value: float) -> bool:
    return interval[0] - 1e-9 <= value <= interval[1] + 1e-9
