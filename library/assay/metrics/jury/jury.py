"""Juries: what several judges say about one answer, as one verdict.

    scores: the mean of the valid ones; labels: the one that most valid judges gave, none where two lead together

A judge without a valid verdict (None) is left out. With fewer than two valid ones there is no jury, and the row is
an error, never the word of a single judge.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

LEAST_JUDGES = 2
TOO_FEW_JUDGES = "too_few_judges"
NO_MAJORITY = "no_majority"


@dataclass(frozen=True, slots=True)
class JuryVerdict(Generic[T]):
    """What a jury says.

    Args:
        value: The verdict; None where there is none.
        n_valid: Judges with a valid verdict.
        reason: TOO_FEW_JUDGES or NO_MAJORITY where there is no verdict, else empty.
    """

    value: T | None
    n_valid: int
    reason: str = ""

    @property
    def is_error(self) -> bool:
        """Whether the row is an error: a jury that is divided has spoken, one of a single judge has not."""
        return self.reason == TOO_FEW_JUDGES


def jury_score(scores: Sequence[float | None]) -> JuryVerdict[float]:
    """Return the mean of the valid scores.

    Args:
        scores: One per judge, on one scale; None or a number that is not finite where it gave no valid verdict.
    """
    valid = [score for score in scores if score is not None and math.isfinite(score)]
    if len(valid) < LEAST_JUDGES:
        return JuryVerdict(None, len(valid), TOO_FEW_JUDGES)
    return JuryVerdict(math.fsum(valid) / len(valid), len(valid))


def jury_label(labels: Sequence[str | None]) -> JuryVerdict[str]:
    """Return the label that more valid judges gave than any other.

    Args:
        labels: One per judge; None where it gave no valid verdict.
    """
    valid = [label for label in labels if label is not None]
    if len(valid) < LEAST_JUDGES:
        return JuryVerdict(None, len(valid), TOO_FEW_JUDGES)
    (first, most), *others = Counter(valid).most_common(2)
    if others and others[0][1] == most:
        return JuryVerdict(None, len(valid), NO_MAJORITY)
    return JuryVerdict(first, len(valid))
