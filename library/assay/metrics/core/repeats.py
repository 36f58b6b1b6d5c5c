"""Figures over repeats of cases: pass@k, pass^k and the sources of variance.

    pass@k = 1 - C(n - c, k) / C(n, k)     at least one of k runs succeeds
    pass^k = C(c, k) / C(n, k)             all k do

for a case with n runs of which c passed; the aggregate is the mean over cases with at least k decided runs. Its
95 % interval is that of a mean of shares over cases in clusters (`assay.statistics.clustered_mean`).
Rows without a verdict are left out and counted. Source of pass@k: Chen et al., "Evaluating Large Language
Models Trained on Code", 2021.

Variance of the verdicts, for cases with K >= 2 decided runs: within = mean over cases of the runs' variance,
between = variance of the case means - within / K, at least 0 (K: the mean number of runs), both with n - 1;
se = sqrt(variance of the case means / cases). noise_share is the part of se² that is noise between runs, at most 1:
chance may make the means more alike than that noise alone would. Above one half, more runs per case help more than
more cases, and `advice` says so.
"""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING

from assay.model.interval import Interval
from assay.model.run import RepeatRate, RepeatSummary, RepeatVariance
from assay.statistics.clustered_mean import ClusteredMean

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.model.run import RowResult

    _Kind = tuple[int | None, int, int]
    """The cluster of a case, its decided runs, and those of them that passed."""

_MORE_RUNS = "Most of the uncertainty is between runs of the same case: more runs per case help more than more cases."


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Return the chance that at least one of k runs passes; None if k exceeds n.

    Args:
        n: Runs of the case.
        c: Passed runs.
        k: Runs drawn without replacement, at least 1.
    """
    return None if k > n else (math.comb(n, k) - math.comb(n - c, k)) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """Return the chance that all of k runs pass; None if k exceeds n. Arguments as for `pass_at_k`."""
    return None if k > n else math.comb(c, k) / math.comb(n, k)


class RepeatsFold:
    """Folds rows in dataset order, the repeats of a case one after the other.

    It counts cases by cluster, decided runs and passed runs: a few numbers, however many cases share nothing, from
    which everything is computed exactly.
    """

    def __init__(self) -> None:
        self._index: int | None = None
        self._cluster: int | None = None
        self._runs = self._decided = self._passed = 0
        self._most_runs = self._undecided = 0
        self._cases: Counter[_Kind] = Counter()

    def add(self, row: RowResult, cluster: int | None = None) -> None:
        """Add a row.

        Args:
            row: The row.
            cluster: The cluster of its case, not negative; None or a negative number if the case shares nothing.
        """
        if row.case_index != self._index:
            if self._index is not None:
                self._cases[self._cluster, self._decided, self._passed] += 1
            self._index = row.case_index
            self._cluster = None if cluster is None or cluster < 0 else cluster
            self._runs = self._decided = self._passed = 0
        self._runs += 1
        self._most_runs = max(self._most_runs, self._runs)
        self._undecided += row.passed is None
        self._decided += row.passed is not None
        self._passed += row.passed is True

    def _with_open_case(self) -> Counter[_Kind]:
        kind = (self._cluster, self._decided, self._passed)
        return self._cases + (Counter() if self._index is None else Counter({kind: 1}))

    def result(self) -> RepeatSummary | None:
        """Return the figures; None if every case was run once."""
        if self._most_runs < 2:
            return None
        in_clusters, cases = self._with_open_case(), Counter[tuple[int, int]]()
        for (_, n, c), count in in_clusters.items():
            cases[n, c] += count
        rates = [
            RepeatRate(
                k,
                _mean_chance(cases, k, pass_at_k),
                _interval(in_clusters, k, pass_at_k),
                _mean_chance(cases, k, pass_hat_k),
                _interval(in_clusters, k, pass_hat_k),
            )
            for k in range(1, max(n for n, _ in cases) + 1)
        ]
        return RepeatSummary(self._most_runs, cases.total(), self._undecided, rates, _variance(cases))


def _mean_chance(
    cases: Counter[tuple[int, int]], k: int, chance: Callable[[int, int, int], float | None]
) -> float | None:
    chances = [(value, count) for (n, c), count in cases.items() if (value := chance(n, c, k)) is not None]
    total = sum(count for _, count in chances)
    return math.fsum(value * count for value, count in sorted(chances)) / total if total else None


def _interval(cases: Counter[_Kind], k: int, chance: Callable[[int, int, int], float | None]) -> Interval | None:
    mean, runs = ClusteredMean(), 0
    for (cluster, n, c), count in cases.items():
        if (value := chance(n, c, k)) is not None:
            mean.take(value, cluster, times=count)
            runs += n * count
    return Interval.of(mean.interval(of_shares=True, most=runs))


def _variance(cases: Counter[tuple[int, int]]) -> RepeatVariance | None:
    repeated = [(n, c, count) for (n, c), count in sorted(cases.items()) if n >= 2]
    total = sum(count for _, _, count in repeated)
    if total < 2:
        return None
    mean = sum(Fraction(c, n) * count for n, c, count in repeated) / total
    of_means = sum((Fraction(c, n) - mean) ** 2 * count for n, c, count in repeated) / (total - 1)
    within = sum(Fraction(c * (n - c), n * (n - 1)) * count for n, c, count in repeated) / total
    noise = within * total / sum(n * count for n, _, count in repeated)
    noise_share = min(Fraction(1), noise / of_means) if of_means else None
    return RepeatVariance(
        within=float(within),
        between=float(max(Fraction(0), of_means - noise)),
        standard_error=math.sqrt(of_means / total),
        noise_share=None if noise_share is None else float(noise_share),
        advice=_MORE_RUNS if noise_share is not None and noise_share > Fraction(1, 2) else "",
    )
