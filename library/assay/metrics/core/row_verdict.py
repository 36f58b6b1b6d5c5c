"""The verdict of a row, and a sentence on why it does not pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.metrics.core.explanations import score_message
from assay.model.answers.agent_response import AgentErrorKind, AgentStatus
from assay.model.answers.interrupts import waiting_text
from assay.model.run import Score, ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.answers.agent_response import AgentResponse
    from assay.model.run import RowResult

_FAILED = "agent error ({kind})"
_TIMED_OUT = _FAILED.format(kind=AgentErrorKind.TIMEOUT.value)


def row_verdict(status: AgentStatus, scores: Sequence[Score]) -> bool | None:
    """Return a row's verdict from the verdicts of its metrics.

    An agent error fails the row, even if the agent waits for a person. Otherwise a failed metric fails it. A deciding
    metric that Assay could not compute, or a check that was not made, leaves it undecided. A passed metric passes it;
    without deciding metrics it is undecided.
    """
    if status.is_failed or any(score.passed is False for score in scores):
        return False
    if any(_leaves_undecided(score) for score in scores):
        return None
    return True if any(score.passed for score in scores) else None


def row_message(response: AgentResponse, scores: Sequence[Score]) -> str:
    """Return why a row failed or is undecided; empty if there is no complaint."""
    if response.status is AgentStatus.INTERRUPTED:
        return f"{response.status}: {waiting_text(response.interrupts)}"
    if response.is_failed:
        error = response.error
        return f"{_FAILED.format(kind=error.kind.value)}: {error.message}" if error is not None else "agent error"
    complaints = [_complaint(score) for score in scores if score.passed is False]
    complaints += [_doubt(score) for score in scores if _leaves_undecided(score)]
    return "; ".join(complaints)


def is_unanswered(score: Score) -> bool:
    """Return whether a score has no value because an agent error left no answer."""
    return score.value is None and (score.status is not ScoreStatus.ERROR or score.reason == "agent_error")


def timed_out(row: RowResult) -> bool:
    """Return whether a stored row is an agent error by timeout."""
    return row.status.is_failed and row.message.startswith(_TIMED_OUT)


def _leaves_undecided(score: Score) -> bool:
    if score.passed is not None:
        return False
    return bool(score.detail.get("undecided")) or (
        score.status is ScoreStatus.ERROR and not score.detail.get("advisory")
    )


def _doubt(score: Score) -> str:
    what = "is undecided" if score.detail.get("undecided") else "could not be computed"
    return f"{score.metric} {what}: {score_message(score)}"


def _complaint(score: Score) -> str:
    failed = [str(turn["turn_index"] + 1) for turn in score.detail.get("turns", ()) if turn.get("passed") is False]
    where = f" (turn{'s' if len(failed) > 1 else ''} {', '.join(failed)})" if failed else ""
    return f"{score.metric}: {score_message(score) or 'the answer differs from the reference'}{where}"
