"""The word that a comparison comes to."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What a paired test decides."""

    B_BETTER = "b_better"
    A_BETTER = "a_better"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    NO_DATA = "no_data"
    WITHHELD = "withheld"
    """The runs must not be compared, or cases were chosen after looking: figures without a verdict."""
