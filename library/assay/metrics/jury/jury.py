"""The verdict of a jury on an answer, from the verdicts of its judges.

    scores: the mean of the valid ones; labels: the label of most valid judges, none if two labels tie

A judge without a valid verdict (None) is left out. With fewer than two valid verdicts there is no jury, and the row is
an error: a single judge never decides.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from assay.statistics.exact_sum import exact_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

LEAST_JUDGES = 2
TOO_FEW_JUDGES = "too_few_judges"
NO_MAJORITY = "no_majority"


@dataclass(frozen=True, slots=True)
class JuryVerdict(Generic[T]):
    """The verdict of a jury.

    Args:
        value: The verdict; None if there is none.
        n_valid: Judges with a valid verdict.
        reason: TOO_FEW_JUDGES or NO_MAJORITY without a verdict, else empty.
    """

    value: T | None
    n_valid: int
    reason: str = ""

    @property
    def is_error(self) -> bool:
        """Whether the row is an error: a divided jury has decided, a single judge has not."""
        return self.reason == TOO_FEW_JUDGES


def jury_score(scores: Sequence[float | None]) -> JuryVerdict[float]:
    """Return the mean of the valid scores.

    Args:
        scores: One per judge, on one scale; None or a number that is not finite for an invalid verdict.
    """
    valid = [score for score in scores if score is not None and math.isfinite(score)]
    if len(valid) < LEAST_JUDGES:
        return JuryVerdict(None, len(valid), TOO_FEW_JUDGES)
    return JuryVerdict(exact_mean(valid), len(valid))


def jury_label(labels: Sequence[str | None]) -> JuryVerdict[str]:
    """Return the label of more valid judges than any other label.

    Args:
        labels: One per judge; None for an invalid verdict.
    """
    valid = [label for label in labels if label is not None]
    if len(valid) < LEAST_JUDGES:
        return JuryVerdict(None, len(valid), TOO_FEW_JUDGES)
    (first, most), *others = Counter(valid).most_common(2)
    if others and others[0][1] == most:
        return JuryVerdict(None, len(valid), NO_MAJORITY)
    return JuryVerdict(first, len(valid))
