"""Coverage of the 95 % interval of a run's pass rate: independent cases, copies, shared documents and repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import scipy  # whose parts are imported when they are named
from benchmarks.error_rates.layouts import latent
from benchmarks.error_rates.rates import COVERAGE, Rate, Setting, Values, counted

from assay.statistics.clustered_mean import ClusteredMean

Rows = Callable[[np.random.Generator, int], tuple[Values, Sequence[int | None]]]
"""Draws verdicts of whole runs, one run per row, and the cluster of each column."""


def settings() -> Iterator[Setting]:
    """Return settings of pass rates: independent cases, copies, shared documents and repeats."""
    for layout, rate, rows in (
        ("20 cases", 0.8, copies(20, 1, 0.8)),
        ("100 cases", 0.8, copies(100, 1, 0.8)),
        ("20 cases, each twice", 0.8, copies(20, 2, 0.8)),
        ("20 cases, each 5 times", 0.8, copies(20, 5, 0.8)),
        ("20 documents of 5, ICC 0.3", 0.8, documents((5,) * 20, 0.3, 0.8)),
        ("20 documents of 5, ICC 0.6", 0.8, documents((5,) * 20, 0.6, 0.8)),
        ("10 documents of 10, ICC 0.3", 0.8, documents((10,) * 10, 0.3, 0.8)),
        ("one document of 100, 20 of 5, ICC 0.3", 0.8, documents((100, *(5,) * 20), 0.3, 0.8)),
        ("20 cases, 3 repeats", 0.9, repeats(20, 3, 0.9)),
        ("50 cases, 3 repeats", 0.97, repeats(50, 3, 0.97)),
        ("20 cases, 5 repeats", 0.97, repeats(20, 5, 0.97)),
    ):
        quick = 150 if layout == "20 cases, each 5 times" else 0
        yield Setting("run-intervals", {"run": layout, "pass rate": rate}, partial(_run, rate, rows), 2_000, quick)


def _run(rate: float, draw: Rows, rng: np.random.Generator, trials: int) -> Sequence[Rate]:
    verdicts, clusters = draw(rng, trials)
    intervals = []
    for row in verdicts.tolist():
        mean = ClusteredMean()
        for value, cluster in zip(row, clusters, strict=True):
            mean.take(value, cluster)
        intervals.append(mean.interval(of_shares=True))
    return (
        counted(
            "coverage",
            [interval is not None and interval[0] <= rate <= interval[1] for interval in intervals],
            at_least=COVERAGE,
        ),
        counted("no interval", [interval is None for interval in intervals]),
    )


def copies(cases: int, times: int, rate: float) -> Rows:
    """Return independent cases, each copied several times with the same verdict."""

    def draw(rng: np.random.Generator, trials: int) -> tuple[Values, Sequence[int | None]]:
        verdicts = np.repeat((rng.random((trials, cases)) < rate).astype(float), times, axis=1)
        return verdicts, [None] * cases if times == 1 else np.repeat(np.arange(cases), times).tolist()

    return draw


def documents(sizes: Sequence[int], icc: float, rate: float) -> Rows:
    """Return cases that are correlated if they share a document."""

    def draw(rng: np.random.Generator, trials: int) -> tuple[Values, Sequence[int | None]]:
        verdicts = latent(rng, trials, sizes, icc) < scipy.stats.norm.ppf(rate)
        return verdicts.astype(float), np.repeat(np.arange(len(sizes)), sizes).tolist()

    return draw


def repeats(cases: int, times: int, rate: float) -> Rows:
    """Return repeats of cases that are easy or hard."""

    def draw(rng: np.random.Generator, trials: int) -> tuple[Values, Sequence[int | None]]:
        chance = np.repeat(rng.beta(4 * rate, 4 * (1 - rate), (trials, cases)), times, axis=1)
        verdicts = (rng.random(chance.shape) < chance).astype(float)
        return verdicts, (-1 - np.repeat(np.arange(cases), times)).tolist()

    return draw
