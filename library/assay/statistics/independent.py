"""Tests of variants as independent samples (chi-square, Fisher, t), and tests over three or more variants.

Functions import numpy and scipy when they are called.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

_LEAST_EXPECTED = 5
_EQUAL = 1e-7
"""Two tables whose likelihoods differ by less, relatively, count as equally likely."""


@dataclass(frozen=True, slots=True)
class SignificanceTest:
    """The outcome of a test.

    Args:
        statistic: Its statistic; None if it could not be made.
        p: Its p-value, which decides; None if it could not be made.
        note: A stable word such as "no_data"; empty without a note.
        other_p: The p-value of the usual test if `p` is that of a better test; None otherwise.
    """

    statistic: float | None
    p: float | None
    note: str = ""
    other_p: float | None = None

    def is_significant(self, alpha: float) -> bool:
        """Whether the test was made and its p-value is below a level."""
        return self.p is not None and self.p < alpha


def chi_square(a: tuple[int, int], b: tuple[int, int]) -> SignificanceTest:
    """Compare the rates of two variants by Pearson's chi-square with Yates' correction.

    If an expected count is below 5, Fisher's exact p-value decides.

    Args:
        a: The numbers of right and of wrong cases of A.
        b: Those of B.
    """
    if not (sum(a) and sum(b)):
        return SignificanceTest(None, None, "no_data")
    if not all(map(sum, zip(a, b, strict=True))):
        return SignificanceTest(0.0, 1.0, "no_variation")
    rows, columns = (sum(a), sum(b)), tuple(map(sum, zip(a, b, strict=True)))
    n = sum(rows)
    deviation = abs(a[0] - rows[0] * columns[0] / n)  # the same in all four cells
    corrected = max(deviation - 0.5, 0.0)
    statistic = corrected * corrected * math.fsum(n / (row * column) for row in rows for column in columns)
    p = math.erfc(math.sqrt(statistic / 2))  # chi-square with one degree of freedom is a squared normal
    if min(rows) * min(columns) >= _LEAST_EXPECTED * n:
        return SignificanceTest(statistic, p)
    return SignificanceTest(statistic, _fisher_exact(a[0], rows[0], columns[0], n), "expected_count_below_5", p)


def _fisher_exact(count: int, row: int, column: int, n: int) -> float:
    """Return Fisher's two-sided p-value: the share of tables that are no more likely than this one.

    Args:
        count: The first cell.
        row: The sum of its row.
        column: The sum of its column.
        n: The sum of the table.
    """
    first, last = max(0, row + column - n), min(row, column)
    mode = (row + 1) * (column + 1) // (n + 2)
    weights = {mode: 1.0}  # relative to the likeliest table, so that none overflows
    for k in range(mode, last):
        weights[k + 1] = weights[k] * ((row - k) * (column - k)) / ((k + 1) * (n - row - column + k + 1))
    for k in range(mode, first, -1):
        weights[k - 1] = weights[k] * (k * (n - row - column + k)) / ((row - k + 1) * (column - k + 1))
    most = weights[count] * (1 + _EQUAL)
    return min(math.fsum(weight for weight in weights.values() if weight <= most) / math.fsum(weights.values()), 1.0)


def t_test(a: Sequence[float], b: Sequence[float]) -> SignificanceTest:
    """Compare two means of independent scores by Student's t with pooled variance; t is that of A - B."""
    if min(len(a), len(b)) < 2:
        return SignificanceTest(None, None, "no_data")
    mean_a, mean_b = math.fsum(a) / len(a), math.fsum(b) / len(b)
    spread = math.fsum((value - mean_a) ** 2 for value in a) + math.fsum((value - mean_b) ** 2 for value in b)
    df = len(a) + len(b) - 2
    error = math.sqrt(spread / df * (1 / len(a) + 1 / len(b)))
    if error == 0:
        return SignificanceTest(None, None, "zero_variance")
    from scipy import special  # scipy.stats takes a second to import

    statistic = (mean_a - mean_b) / error
    return SignificanceTest(statistic, float(2 * special.stdtr(df, -abs(statistic))))


def cochran_q(rows: Sequence[Sequence[int]] | NDArray[np.int_]) -> SignificanceTest:
    """Compare three or more variants on the same cases, which are right (1) or wrong (0).

    Args:
        rows: A row per case, with an entry per variant.

    Source: W. Cochran, "The comparison of percentages in matched samples", 1950.
    """
    import numpy as np

    values = np.asarray(rows, dtype=int)
    k = values.shape[1] if len(values) else 0
    if k < 2:
        return SignificanceTest(None, None, "no_data")
    columns, by_row = values.sum(axis=0).tolist(), values.sum(axis=1)
    total = sum(columns)
    below = k * total - int(by_row @ by_row)
    if below == 0:
        return SignificanceTest(0.0, 1.0, "no_variation")
    from scipy import special

    statistic = (
        (k - 1) * (k * sum(total_of_column * total_of_column for total_of_column in columns) - total * total) / below
    )
    return SignificanceTest(statistic, float(special.chdtrc(k - 1, statistic)))


def friedman(rows: Sequence[Sequence[float]] | NDArray[np.float64]) -> SignificanceTest:
    """Compare three or more variants by their scores on the same cases.

    Args:
        rows: A row per case, with an entry per variant.

    Source: M. Friedman, "The use of ranks to avoid the assumption of normality", 1937; ties as in scipy.
    """
    import numpy as np

    values = np.asarray(rows, dtype=float)
    if len(values) < 2 or values.shape[1] < 3:
        return SignificanceTest(None, None, "no_data")
    if (values == values[:, :1]).all():
        return SignificanceTest(0.0, 1.0, "no_variation")
    from scipy import stats

    result = stats.friedmanchisquare(*values.T)
    return SignificanceTest(float(result.statistic), float(result.pvalue))
