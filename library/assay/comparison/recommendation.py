"""The ranking of compared runs and the recommendation from it, as plain objects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Confidence(StrEnum):
    """The confidence of a recommendation."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class RankedVariant:
    """A place in the ranking.

    Args:
        label: The run's label.
        run_id: The run.
        score: The classical weighted score; None if the run has none of its metrics.
    """

    label: str
    run_id: str
    score: float | None


@dataclass(frozen=True, slots=True)
class VariantRecommendation:
    """The recommended run, by the classical ranking.

    Args:
        label: The label of the first of the ranking.
        run_id: That run.
        improvements: Metrics on which it is significantly better than the second, by unpaired tests.
        confidence: The agreement of ranking and tests: high with two or more improvements, low without one or with
            a metric on which the second is better.
        note: "ranking_and_tests_disagree", "metrics_differ" or empty.
    """

    label: str
    run_id: str
    improvements: tuple[str, ...]
    confidence: Confidence
    note: str = ""
