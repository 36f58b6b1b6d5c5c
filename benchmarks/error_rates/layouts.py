"""Cluster sizes, and differences that are correlated within a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from benchmarks.error_rates.rates import Values

Draw = Callable[[np.random.Generator, int], tuple[Values, Values]]
"""Draws values of A and B from a generator and a number of comparisons, one comparison per row."""

ORDINARY = (60, 30, 20, 15, 12, 10, 8, 7, 6, 6)
"""Sizes of the categories of an ordinary dataset."""


def one_large(clusters: int) -> tuple[int, ...]:
    """Return one cluster of 200 cases and others of 5."""
    return (200, *(5,) * (clusters - 1))


def two_large(clusters: int) -> tuple[int, ...]:
    """Return two clusters of 100 cases and others of 3."""
    return (100, 100, *(3,) * (clusters - 2))


def geometric(clusters: int) -> tuple[int, ...]:
    """Return sizes that grow by a constant factor from 1 to 40."""
    return tuple(round(40 ** (place / (clusters - 1))) for place in range(clusters))


def tagged(cases: int, others: int) -> tuple[int, ...]:
    """Return one tag, and cases without it as clusters of one."""
    return (cases, *(1,) * others)


def equal(clusters: int) -> tuple[int, ...]:
    """Return clusters of 5 cases."""
    return (5,) * clusters


def keys(sizes: Sequence[int]) -> list[str]:
    """Return the cluster of each case."""
    return [f"c{number}" for number, size in enumerate(sizes) for _ in range(size)]


def scores(sizes: Sequence[int], icc: float, difference: float = 0.0) -> Draw:
    """Return normal differences with standard deviation 1 and intra-cluster correlation `icc`."""

    def draw(rng: np.random.Generator, trials: int) -> tuple[Values, Values]:
        b = difference + latent(rng, trials, sizes, icc)
        return np.zeros_like(b), b

    return draw


def rates(sizes: Sequence[int], icc: float, rate: float = 0.7, difference: float = 0.0) -> Draw:
    """Return 0 and 1 of two independent runs, each with a shared cluster effect on a latent normal scale."""
    from statistics import NormalDist

    def draw(rng: np.random.Generator, trials: int) -> tuple[Values, Values]:
        a, b = (latent(rng, trials, sizes, icc) for _ in range(2))
        bounds = [NormalDist().inv_cdf(mean) for mean in (rate, rate + difference)]
        return (a < bounds[0]).astype(float), (b < bounds[1]).astype(float)

    return draw


def rare(sizes: Sequence[int], disagreeing: float = 0.03) -> Draw:
    """Return 0 and 1 that differ in few independent cases, equally often for better and for worse."""

    def draw(rng: np.random.Generator, trials: int) -> tuple[Values, Values]:
        a = rng.random((trials, sum(sizes))) < 0.7
        changes = rng.random(a.shape) < disagreeing
        a = np.where(changes, rng.random(a.shape) < 0.5, a)
        return a.astype(float), (a ^ changes).astype(float)

    return draw


def latent(rng: np.random.Generator, trials: int, sizes: Sequence[int], icc: float) -> Values:
    """Return standard normal values with correlation `icc` within a cluster."""
    shared = np.repeat(rng.standard_normal((trials, len(sizes))), sizes, axis=1)
    return math.sqrt(icc) * shared + math.sqrt(1 - icc) * rng.standard_normal((trials, sum(sizes)))
