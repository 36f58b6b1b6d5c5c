"""Level and power of exact McNemar, enumerated over all tables of disagreeing cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
import scipy  # whose parts are imported when they are named
from benchmarks.error_rates.rates import ALPHA, Rate, Setting

from assay.statistics.paired import McNemar, mcnemar


def _exact_p(test: McNemar) -> float:
    return test.p


def _mid_p(test: McNemar) -> float:
    return test.mid_p


def settings() -> Iterator[Setting]:
    """Return the settings of the table."""
    for cases, disagreeing in ((25, 0.25), (100, 0.25), (500, 0.25), (100, 0.05), (100, 0.5)):
        yield _setting(cases, disagreeing, 0.0)
    for cases, difference in ((100, 0.1), (200, 0.1), (500, 0.1), (50, 0.2)):
        yield _setting(cases, 0.25, difference)


def _setting(cases: int, disagreeing: float, difference: float) -> Setting:
    def measure(_: np.random.Generator, __: int) -> Sequence[Rate]:
        name = "power" if difference else "false verdicts"
        exact = verdict_probability(cases, disagreeing, difference)
        mid_p = verdict_probability(cases, disagreeing, difference, p=_mid_p)
        return Rate(name, exact, at_most=None if difference else ALPHA), Rate(f"{name}, mid-p", mid_p)

    return Setting("mcnemar", {"cases": cases, "disagreeing": disagreeing, "difference": difference}, measure)


def verdict_probability(
    cases: int,
    disagreeing: float,
    difference: float,
    *,
    alpha: float = ALPHA,
    p: Callable[[McNemar], float] = _exact_p,
) -> float:
    """Return the probability that p is below alpha.

    Args:
        cases: Number of independent cases.
        disagreeing: Share of the cases that exactly one variant has right, above 0.
        difference: True difference of the two rates.
        alpha: The level.
        p: The p-value of the test that decides.
    """
    counts = np.arange(cases + 1)
    fewest = np.array([most_losses(m, alpha, p) for m in range(cases + 1)])
    won = (disagreeing + difference) / (2 * disagreeing)
    # -1 means that no table with so many disagreeing cases is significant: no count is below 0.
    decided = scipy.stats.binom.cdf(fewest, counts, won) + scipy.stats.binom.sf(counts - fewest - 1, counts, won)
    return float(scipy.stats.binom.pmf(counts, cases, disagreeing) @ decided)


@cache
def most_losses(m: int, alpha: float = ALPHA, p: Callable[[McNemar], float] = _exact_p) -> int:
    """Return the largest smaller count of m cases whose p-value is below alpha; -1 if there is none."""
    low, high = -1, m // 2
    while low < high:  # p grows with the smaller count
        middle = (low + high + 1) // 2
        low, high = (middle, high) if p(mcnemar(0, middle, m - middle, 1)) < alpha else (low, middle - 1)
    return low
