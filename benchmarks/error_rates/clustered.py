"""Verdicts and intervals of clustered cases: clusters of unequal size, and the power lost with equal clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy  # whose parts are imported when they are named
from benchmarks.error_rates.comparing import compare, covered, flips_decide
from benchmarks.error_rates.layouts import (
    ORDINARY,
    Draw,
    equal,
    geometric,
    keys,
    one_large,
    rare,
    rates,
    scores,
    tagged,
    two_large,
)
from benchmarks.error_rates.rates import ALPHA, COVERAGE, Flags, Rate, Setting, Values, averaged, counted

from assay.comparison.model import MetricComparison

_LAYOUTS = {
    "one of 200, others 5": (one_large, (10, 20, 50)),
    "two of 100, others 3": (two_large, (10, 20, 50)),
    "geometric, 1 to 40": (geometric, (10, 12, 20, 50)),
    "equal, 5": (equal, (5, 10, 20, 50)),
}
_SLOWEST = 20  # clusters of which all assignments of signs count; the interval sorts a million means
_QUICK = ("one of 200, others 5", 10)


def settings() -> Iterator[Setting]:
    """Return settings of every layout with every kind of values."""
    for name, (sizes_of, counts) in _LAYOUTS.items():
        for count in counts:
            yield from _layout(name, sizes_of(count), quick=150 if (name, count) == _QUICK else 0)
    yield from _layout("60, 30, 20, 15, 12, 10, 8, 7, 6, 6", ORDINARY)
    yield from _layout("one tag of 100, 100 untagged", tagged(100, 100))
    yield from _layout("one tag of 50, 150 untagged", tagged(50, 150))


def balanced_settings() -> Iterator[Setting]:
    """Return settings of equal clusters with a true difference that t detects in about two of three comparisons."""
    for clusters, difference in ((12, 0.51), (20, 0.375), (40, 0.268)):
        sizes = equal(clusters)
        yield _balanced("scores, ICC 0.4", sizes, scores(sizes, 0.4, difference), difference)
    for clusters, difference in ((12, 0.28), (20, 0.22), (40, 0.15)):
        sizes = equal(clusters)
        yield _balanced("0 and 1, ICC 0.2", sizes, rates(sizes, 0.2, 0.6, difference), difference, is_binary=True)


def _layout(layout: str, sizes: Sequence[int], quick: int = 0) -> Iterator[Setting]:
    for icc in (0.0, 0.1, 0.4, 0.8):
        yield _setting(layout, sizes, f"scores, ICC {icc:g}", scores(sizes, icc), quick=quick if icc == 0.8 else 0)
    for icc in (0.1, 0.4, 0.8):
        name = f"0 and 1, ICC {icc:g}"
        yield _setting(layout, sizes, name, rates(sizes, icc), is_binary=True, quick=quick if icc == 0.4 else 0)
    yield _setting(layout, sizes, "0 and 1, 3 % disagree", rare(sizes), is_binary=True)


def _setting(
    layout: str, sizes: Sequence[int], values: str, draw: Draw, *, is_binary: bool = False, quick: int = 0
) -> Setting:
    def measure(rng: np.random.Generator, trials: int) -> Sequence[Rate]:
        a, b = draw(rng, trials)
        return (
            counted("false verdicts", flips_decide(sums_of(b - a, sizes)), at_most=ALPHA),
            counted("coverage", covered(_some(a, b, sizes, is_binary=is_binary), 0.0), at_least=COVERAGE),
            counted("false verdicts, t with G - 1", t_decides(b - a, sizes)),
        )

    name = {"sizes": layout, "clusters": len(sizes), "values": values}
    return Setting("clusters", name, measure, trials=4_000 if len(sizes) <= 20 else 2_000, quick=quick)


def _balanced(values: str, sizes: Sequence[int], draw: Draw, difference: float, *, is_binary: bool = False) -> Setting:
    def measure(rng: np.random.Generator, trials: int) -> Sequence[Rate]:
        a, b = draw(rng, trials)
        # Sums of 0 and 1 have ties, which make exact p-values coarse; t ignores ties and detects more.
        most = None if is_binary else 0.01
        by_flips, by_t = flips_decide(sums_of(b - a, sizes)), t_decides(b - a, sizes)
        return (
            counted("power", by_flips),
            counted("power, t with G - 1", by_t),
            averaged("power lost", by_t.astype(float) - by_flips, at_most=most),
            counted("coverage", covered(_some(a, b, sizes, is_binary=is_binary), difference), at_least=COVERAGE),
        )

    name = {"values": values, "clusters": len(sizes), "difference": difference}
    return Setting("balanced", name, measure, trials=4_000)


def _some(a: Values, b: Values, sizes: Sequence[int], *, is_binary: bool) -> list[MetricComparison]:
    """Return whole comparisons for a tenth of the trials, at least 100, because intervals take longest."""
    some = min(len(a), max(100, len(a) // (40 if len(sizes) == _SLOWEST else 10)))
    return compare(a[:some], b[:some], clusters=keys(sizes), is_binary=is_binary)


def sums_of(differences: Values, sizes: Sequence[int]) -> Values:
    """Return the sum of the differences of each cluster."""
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    return np.add.reduceat(differences, starts, axis=1)


def t_decides(differences: Values, sizes: Sequence[int]) -> Flags:
    """Return which t-tests with the clustered standard error (CR1, G - 1 degrees) are significant, as in many tools."""
    clusters, n = len(sizes), sum(sizes)
    mean = differences.mean(axis=1)
    sums = sums_of(differences - mean[:, None], sizes)
    error = np.sqrt(clusters / (clusters - 1) * (sums**2).sum(axis=1)) / n
    t = np.divide(mean, error, out=np.zeros_like(mean), where=error > 1e-12)
    significant: Flags = 2 * scipy.special.stdtr(clusters - 1, -np.abs(t)) < ALPHA
    return significant
