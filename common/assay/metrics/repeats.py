"""What several runs of each case tell: pass@k, pass^k, and where the variance comes from.

    pass@k = 1 - C(n - c, k) / C(n, k)     at least one of k runs succeeds
    pass^k = C(c, k) / C(n, k)             all k do

for a case with n runs of which c passed; the aggregate is the mean over cases with at least k decided runs.
Rows without a verdict are left out and counted. Source of pass@k: Chen et al., "Evaluating Large Language
Models Trained on Code", 2021.

Variance of the verdicts, for cases with K >= 2 decided runs: within = mean over cases of the runs' variance,
between = variance of the case means - within / K, at least 0 (K: the mean number of runs), both with n - 1;
SE = sqrt(variance of the case means / cases). noise_share is the part of SE² that is noise between runs.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from assay.metrics.exact_sum import ExactSum

if TYPE_CHECKING:
    from assay.results import CaseResult

__all__ = ["RepeatsFold", "pass_at_k", "pass_hat_k"]

_MORE_RUNS = "most of the uncertainty is between runs of the same case: more runs a case help more than more cases"
_MORE_CASES = "most of the uncertainty is between cases: more cases help more than more runs a case"


def pass_at_k(n: int, c: int, k: int) -> float | None:
    """Return the chance that at least one of k runs passes; None where k is more than n.

    Args:
        n: Runs of the case.
        c: Those that passed.
        k: How many are drawn without putting back, at least 1.
    """
    return None if k > n else 1 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float | None:
    """Return the chance that all of k runs pass; None where k is more than n. Arguments as for `pass_at_k`."""
    return None if k > n else math.comb(c, k) / math.comb(n, k)


class RepeatsFold:
    """Takes rows in dataset order, the runs of a case one after the other; keeps one case at a time."""

    def __init__(self) -> None:
        self._index: int | None = None
        self._runs = self._decided = self._passed = 0
        self._most_runs = self._cases = self._undecided = 0
        self._at: dict[int, ExactSum] = {}
        self._hat: dict[int, ExactSum] = {}
        self._within, self._means, self._squares, self._counts = ExactSum(), ExactSum(), ExactSum(), ExactSum()

    def add(self, row: CaseResult) -> None:
        """Take one more row."""
        if row.case_index != self._index:
            self._close()
            self._index = row.case_index
        self._runs += 1
        self._decided += row.passed is not None
        self._passed += row.passed is True

    def _close(self) -> None:
        if self._index is None:
            return
        n, c = self._decided, self._passed
        self._cases += 1
        self._most_runs = max(self._most_runs, self._runs)
        self._undecided += self._runs - n
        for k in range(1, n + 1):
            self._at.setdefault(k, ExactSum()).add(1 - math.comb(n - c, k) / math.comb(n, k))
            self._hat.setdefault(k, ExactSum()).add(math.comb(c, k) / math.comb(n, k))
        if n >= 2:
            mean = c / n
            self._within.add(n * mean * (1 - mean) / (n - 1))
            self._means.add(mean)
            self._squares.add(mean * mean)
            self._counts.add(n)
        self._runs = self._decided = self._passed = 0

    def result(self) -> dict[str, Any]:
        """Return `runs_per_case`, `cases`, `undecided`, `pass_at_k`, `pass_hat_k` and `variance` as a JSON object.

        It is empty where every case was run once.
        """
        self._close()
        self._index = None
        if self._most_runs < 2:
            return {}
        return {
            "runs_per_case": self._most_runs,
            "cases": self._cases,
            "undecided": self._undecided,
            "pass_at_k": {str(k): total.mean for k, total in sorted(self._at.items())},
            "pass_hat_k": {str(k): total.mean for k, total in sorted(self._hat.items())},
            "variance": self._variance(),
        }

    def _variance(self) -> dict[str, Any] | None:
        cases = self._means.count
        if cases < 2:
            return None
        runs, within = self._counts.total / cases, self._within.total / cases
        of_means = max(0.0, (self._squares.total - self._means.total**2 / cases) / (cases - 1))
        noise_share = within / runs / of_means if of_means > 0 else None
        return {
            "within": within,
            "between": max(0.0, of_means - within / runs),
            "standard_error": math.sqrt(of_means / cases),
            "noise_share": noise_share,
            "advice": "" if noise_share is None else _MORE_RUNS if noise_share > 0.5 else _MORE_CASES,
        }
