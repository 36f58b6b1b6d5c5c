"""Whether the errors of two runs may bias their difference: errors that are not random select the compared cases.

Errors on rows that would have been bad make a run look better long before a test shows that it fails more often. So
errors also count as different if one run alone errs on √n / 4 more of n cases than the other, or if as many rows of a
run have an error as its `max_agent_errors`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay.comparison.model import ErrorComparison
from assay.statistics.paired import mcnemar_p
from assay.statistics.thresholds import meets

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

_PULL = (
    4  # a surplus of √n / 4 errors on a run's worst rows raises the rate of false "better" from 2.5 % to at most 7 %
)


def compared_errors(
    a: NDArray[np.int_],
    b: NDArray[np.int_],
    rows: Sequence[tuple[int, float]],
    labels: tuple[str, str],
    *,
    alpha: float,
) -> ErrorComparison | None:
    """Return the comparison of the errors of two runs; None if there are none.

    Args:
        a: The number of rows with an error of each case in A.
        b: The number of rows with an error of the same cases in B.
        rows: For A and B, the number of rows, and the share of errors from which they may move a difference.
        labels: The labels of A and B.
        alpha: Level of the test.
    """
    if not a.any() and not b.any():
        return None
    counts = int(a.sum()), int(b.sum())
    a_only, b_only = int(((a > 0) & (b == 0)).sum()), int(((a == 0) & (b > 0)).sum())
    p, _ = mcnemar_p(a_only, b_only)
    many = any(count and meets(count, share * total) for count, (total, share) in zip(counts, rows, strict=True))
    return ErrorComparison(
        *counts,
        int((a > 0).sum()),
        int((b > 0).sum()),
        a_only,
        b_only,
        p,
        worse="" if p >= alpha else labels[b_only > a_only],
        differ=p < alpha or many or abs(a_only - b_only) > math.sqrt(len(a)) / _PULL,
    )
