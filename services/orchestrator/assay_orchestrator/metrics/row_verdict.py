"""Whether a row passes, and one sentence for people on why it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.answers import AgentStatus
from assay.results import Score, ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.answers import AgentResponse

__all__ = ["row_reason", "row_verdict"]


def row_verdict(status: AgentStatus, scores: Sequence[Score]) -> bool | None:
    """Return a row's verdict from the verdicts of its metrics.

    An agent error fails. Else one failed metric fails the row; a metric that could not be computed on
    Assay's side leaves it undecided; one that passed passes it; without any it is undecided.
    """
    if status is AgentStatus.ERROR or any(score.passed is False for score in scores):
        return False
    if any(score.status is ScoreStatus.ERROR for score in scores):
        return None
    return True if any(score.passed for score in scores) else None


def row_reason(response: AgentResponse, scores: Sequence[Score]) -> str:
    """Return why a row failed or could not be decided; empty for a row without complaint."""
    if response.status is AgentStatus.ERROR:
        error = response.error
        return f"agent error ({error.kind.value}): {error.message}" if error is not None else "agent error"
    complaints = [_complaint(score) for score in scores if score.passed is False]
    complaints += [
        f"{score.metric} could not be computed: {score.reason}" for score in scores if score.status is ScoreStatus.ERROR
    ]
    return "; ".join(complaints)


def _complaint(score: Score) -> str:
    if score.reason:
        return f"{score.metric} failed: {score.reason}"
    if score.metric == "exact_match":
        return "exact_match: differs from the reference"
    return f"{score.metric} {score.value:.4g} misses its threshold"
