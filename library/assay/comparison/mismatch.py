"""Why runs must not be compared."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MismatchReason(StrEnum):
    """Why runs must not be compared."""

    METRIC_VERSION = "metric_version"
    """A metric, or its value of a conversation or a row, is defined differently."""
    EMBEDDER = "embedder"
    JUDGE = "judge"
    OVERLAP = "overlap"
    """Too few cases are common to both runs."""
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A reason why runs must not be compared.

    Args:
        reason: Why, as a word.
        message: A sentence on what differs and what to do.
    """

    reason: MismatchReason
    message: str
