"""Whether two runs err differently often: errors that are not random choose the cases that are left to compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.comparison.model import ErrorComparison
from assay.statistics.paired import mcnemar_p
from assay.statistics.thresholds import meets

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


def compared_errors(
    a: NDArray[np.int_],
    b: NDArray[np.int_],
    rows: Sequence[tuple[int, float]],
    labels: tuple[str, str],
    *,
    alpha: float,
) -> ErrorComparison | None:
    """Return the comparison of the errors of two runs; None where there are none.

    Args:
        a: Rows with an error of each case, in A.
        b: Rows with an error of the same cases, in B.
        rows: Of A and B, the number of rows, and the share of them from which errors may move a difference.
        labels: Of A and B.
        alpha: Level of the test.
    """
    if not a.any() and not b.any():
        return None
    counts = int(a.sum()), int(b.sum())
    a_only, b_only = int(((a > 0) & (b == 0)).sum()), int(((a == 0) & (b > 0)).sum())
    p, _ = mcnemar_p(a_only, b_only)
    # At the bound itself, too: 5 errors of 100 on the bad runs of one side make it better in 9 % of A/A comparisons.
    too_many = any(count and meets(count, share * total) for count, (total, share) in zip(counts, rows, strict=True))
    return ErrorComparison(
        *counts,
        int((a > 0).sum()),
        int((b > 0).sum()),
        a_only,
        b_only,
        p,
        worse="" if p >= alpha else labels[b_only > a_only],
        differ=p < alpha or too_many,
    )
