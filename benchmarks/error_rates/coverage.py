"""Coverage of the 95 % intervals of differences that other themes do not show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial

import numpy as np
import scipy  # whose parts are imported when they are named
from benchmarks.error_rates.comparing import compare, covered
from benchmarks.error_rates.layouts import Draw, equal, keys, one_large, rates, scores, tagged
from benchmarks.error_rates.rates import COVERAGE, Rate, Setting, Values, counted

from assay.statistics.paired import bonett_price


def settings() -> Iterator[Setting]:
    """Return rates of two runs, enumerated, and clusters that are too few for a verdict."""
    for cases in (10, 25, 50, 100, 200):
        for difference in (0.0, 0.1):
            name = {
                "interval": "Bonett-Price, worst share of disagreeing cases",
                "cases": cases,
                "difference": difference,
            }
            yield Setting("coverage", name, partial(_bonett_price, cases, difference), quick=int(cases == 25))
    for layout, sizes in (
        ("3 of 5 cases", equal(3)),
        ("5 of 5 cases", equal(5)),
        ("one of 200, 4 of 5", one_large(5)),
        ("one of 40, 4 untagged", tagged(40, 4)),
    ):
        for values, draw in (("scores, ICC 0.4", scores(sizes, 0.4)), ("0 and 1, ICC 0.4", rates(sizes, 0.4))):
            name = {"interval": f"CR2, {values}", "clusters": layout, "difference": 0.0}
            yield Setting("coverage", name, partial(_few_clusters, sizes, draw, "0 and 1" in values), trials=2_000)


def _bonett_price(cases: int, difference: float, _: np.random.Generator, __: int) -> Sequence[Rate]:
    tables = _tables(cases)
    lost, won, low, high = tables.T
    holds = (low <= difference) & (difference <= high)
    coverages = []
    for disagreeing in np.linspace(max(difference, 0.02), 0.6, 30):
        shares = ((disagreeing - difference) / 2, (disagreeing + difference) / 2, 1 - disagreeing)
        counts = np.stack([lost, won, cases - lost - won], axis=1)
        coverages.append((float(scipy.stats.multinomial.pmf(counts, cases, shares)[holds].sum()), float(disagreeing)))
    worst, at = min(coverages)
    return Rate("coverage", worst, at_least=COVERAGE), Rate("disagreeing", at)


@cache
def _tables(cases: int) -> Values:
    return np.array(
        [(lost, won, *bonett_price(lost, won, cases)) for lost in range(cases + 1) for won in range(cases + 1 - lost)]
    )


def _few_clusters(
    sizes: Sequence[int], draw: Draw, is_binary: bool, rng: np.random.Generator, trials: int
) -> Sequence[Rate]:
    a, b = draw(rng, trials)
    compared = compare(a, b, clusters=keys(sizes), is_binary=is_binary)
    return (
        counted("coverage", covered(compared, 0.0), at_least=COVERAGE),
        counted("no interval", [result.interval is None for result in compared]),
    )
