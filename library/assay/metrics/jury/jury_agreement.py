"""Agreement of a jury's judges on a metric: Krippendorff's alpha without keeping the rows.

    alpha = 1 - (n - 1) * sum over rows of d / (m - 1), divided by (n * sum of x^2 - (sum of x)^2)

Here m is the number of valid scores x of a row, d the sum of their squared pairwise differences, and n the number of
scores in all rows with two or more. The result equals `assay.statistics.krippendorff.alpha` for intervals.

Source: K. Krippendorff, "Computing Krippendorff's alpha-reliability", 2011.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from assay.metrics.jury.jury import LEAST_JUDGES
from assay.model.judging_summary import JuryAgreement
from assay.statistics.exact_sum import ExactSum

if TYPE_CHECKING:
    from collections.abc import Sequence


class AgreementFold:
    """Folds the scores of a jury's judges, in any order of rows.

    Args:
        metric: The metric's name.
    """

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._rows = self._too_few = self._scores = 0
        self._apart, self._sum, self._squares = ExactSum(), ExactSum(), ExactSum()
        self._least, self._most = float("inf"), float("-inf")

    def add(self, scores: Sequence[float | None]) -> None:
        """Add a row: a score per judge, None for an invalid verdict."""
        valid = [score for score in scores if score is not None]
        if len(valid) < LEAST_JUDGES:
            self._too_few += 1
            return
        self._rows += 1
        self._scores += len(valid)
        self._apart.add(sum((a - b) ** 2 for a, b in itertools.combinations(valid, 2)) / (len(valid) - 1))
        for score in valid:
            self._sum.add(score)
            self._squares.add(score * score)
        self._least, self._most = min(self._least, *valid), max(self._most, *valid)

    def result(self) -> JuryAgreement:
        """Return the agreement; without alpha if all scores are equal or there are none."""
        return JuryAgreement(self._metric, self._alpha(), self._rows, self._too_few)

    def _alpha(self) -> float | None:
        if not self._rows or self._least == self._most:
            return None
        expected = self._scores * self._squares.total - self._sum.total**2
        return 1 - (self._scores - 1) * self._apart.total / expected if expected > 0 else None
