"""The verdicts of a comparison."""

from __future__ import annotations

from enum import StrEnum


class ComparisonVerdict(StrEnum):
    """The verdict of a paired test."""

    B_BETTER = "b_better"
    A_BETTER = "a_better"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    NO_DATA = "no_data"
    WITHHELD = "withheld"
    """Figures without a verdict: the runs must not be compared, or cases were chosen after the run."""
