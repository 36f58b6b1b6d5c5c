"""Wrong "equivalent": B is worse by exactly the margin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import scipy  # whose parts are imported when they are named
from benchmarks.error_rates.comparing import compare
from benchmarks.error_rates.layouts import Draw, keys
from benchmarks.error_rates.mcnemar_tables import most_losses
from benchmarks.error_rates.rates import Flags, Rate, Setting, Values, counted
from numpy.typing import NDArray

from assay.comparison.model import ComparisonVerdict, MetricComparison
from assay.statistics.equivalence import rate_equivalence

LIMIT, LIMIT_OF_FEW_RATES, FEW = 0.1, 0.05, 50
_UNIT = (0.0, 1.0)


def settings() -> Iterator[Setting]:
    """Return scores of which few lose much, clusters that turn as a whole, and equal runs with dense noise."""
    for share, loss in ((0.02, 1.0), (0.05, 1.0), (0.1, 0.5)):
        for cases in (5, 6, 10, 15, 20, 30, 50, 100, 200, 500, 1_000):
            name = {"values": f"{100 * share:g} % of the scores lose {loss:g}", "cases": cases}
            draw, quick = losing(cases, share, loss), 200 if cases in (5, 20) else 0
            yield _wrong(name, draw, share * loss, limit=LIMIT if cases >= FEW else 0.0, quick=quick)
    for clusters in (5, 6, 10, 20, 30, 50, 100):
        name = {"values": "0 and 1 in clusters of 4, 5 % of which turn", "cases": 4 * clusters}
        draw = losing(clusters, 0.05, 1.0, size=4)
        limit = LIMIT if 4 * clusters >= FEW else LIMIT_OF_FEW_RATES
        yield _wrong(name, draw, 0.05, limit=limit, clusters=keys((4,) * clusters))
    for cases in (5, 10, 30, 100):
        yield _wrong({"values": "dense noise", "cases": cases}, dense(cases, 0.2, 0.05), 0.05, limit=LIMIT)
    for cases, spread, margin in ((50, 0.1, 0.05), (100, 0.1, 0.05), (50, 0.2, 0.1), (100, 0.2, 0.1)):
        yield _right(cases, spread, margin)


def rate_settings() -> Iterator[Setting]:
    """Return 0 and 1, enumerated, at the share of disagreeing cases that is worst for each size."""
    for margin in (0.02, 0.05, 0.1):
        for cases in (10, 20, 30, 49, 50, 80, 100, 200, 500):
            yield _enumerated(cases, margin)


def _wrong(
    name: dict[str, Any],
    draw: Draw,
    margin: float,
    *,
    limit: float,
    clusters: Sequence[str] | None = None,
    quick: int = 0,
) -> Setting:
    def measure(rng: np.random.Generator, trials: int) -> Sequence[Rate]:
        a, b = draw(rng, trials)
        compared = compare(a, b, clusters=clusters, bounds=_UNIT, is_binary=clusters is not None, margin=margin)
        return (counted("wrong equivalent", _equivalent(compared), at_most=limit),)

    return Setting("equivalence", {**name, "margin": margin}, measure, trials=2_000, quick=quick)


def _right(cases: int, spread: float, margin: float) -> Setting:
    def measure(rng: np.random.Generator, trials: int) -> Sequence[Rate]:
        a, b = dense(cases, spread, 0.0)(rng, trials)
        return (counted("right equivalent", _equivalent(compare(a, b, bounds=_UNIT, margin=margin))),)

    name = {"values": f"equal runs, noise {spread:g}", "cases": cases, "margin": margin}
    return Setting("equivalence", name, measure, trials=1_000)


def _equivalent(compared: Sequence[MetricComparison]) -> Flags:
    return np.array([result.verdict is ComparisonVerdict.EQUIVALENT for result in compared])


def losing(units: int, share: float, loss: float, *, size: int = 1) -> Draw:
    """Return cases that all are perfect in A, of which a share of the units, whole clusters of a size, lose in B."""

    def draw(rng: np.random.Generator, trials: int) -> tuple[Values, Values]:
        loses = np.repeat(rng.random((trials, units)) < share, size, axis=1)
        return np.ones(loses.shape), np.where(loses, 1 - loss, 1.0)

    return draw


def dense(cases: int, spread: float, loss: float) -> Draw:
    """Return scores whose differences are normal."""

    def draw(rng: np.random.Generator, trials: int) -> tuple[Values, Values]:
        a = np.full((trials, cases), 0.5)
        return a, a - loss + rng.normal(0, spread, a.shape)

    return draw


def _enumerated(cases: int, margin: float) -> Setting:
    def measure(_: np.random.Generator, __: int) -> Sequence[Rate]:
        # From the margin on, the least share of disagreeing cases that allows such a difference.
        shares = np.linspace(margin, 0.5, 31).tolist()
        worst, at = max((equivalent_probability(cases, margin, share), share) for share in shares)
        limit = LIMIT if cases >= FEW else LIMIT_OF_FEW_RATES
        return Rate("wrong equivalent", worst, at_most=limit), Rate("disagreeing", at)

    return Setting("equivalence-rates", {"cases": cases, "margin": margin}, measure, quick=int(cases < FEW))


def equivalent_probability(cases: int, margin: float, disagreeing: float) -> float:
    """Return the probability of "equivalent" where B is worse by the margin."""
    tables = _equivalent_tables(cases, margin)
    if not len(tables):
        return 0.0
    shares = ((disagreeing + margin) / 2, (disagreeing - margin) / 2, 1 - disagreeing)
    return float(scipy.stats.multinomial.pmf(tables, cases, shares).sum())


@cache
def _equivalent_tables(cases: int, margin: float) -> NDArray[np.int64]:
    """Return the cases lost, won and equal of every table that is called equivalent."""
    tables = [
        (lost, won, cases - lost - won)
        for lost in range(cases + 1)
        for won in range(cases + 1 - lost)
        if says_equivalent(lost, won, cases, margin)
    ]
    return np.array(tables, dtype=np.int64)


def says_equivalent(lost: int, won: int, cases: int, margin: float) -> bool:
    """Whether a comparison of 0 and 1 is called equivalent: inside of the margin, and not significant."""
    low, high = rate_equivalence(lost, won, cases)
    return -margin < low and high < margin and min(lost, won) > most_losses(lost + won)
