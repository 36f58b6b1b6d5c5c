"""Dead letters: rows that failed in the maximum number of attempts."""

from __future__ import annotations

import dataclasses

from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, error_response


def interrupted(count: int) -> AgentResponse:
    """Return the answer of a row on which the orchestrator was killed in every allowed attempt."""
    return error_response(
        AgentErrorKind.DEAD_LETTER,
        f"the orchestrator was killed {count} times while it worked on this row, the last times on this row alone: it "
        "is not retried",
    )


def exhausted(response: AgentResponse, attempt_count: int) -> AgentResponse:
    """Return the failure of a row's last attempt as a dead letter."""
    error = response.error
    assert error is not None, "only failures are wrapped"
    last = error_response(
        AgentErrorKind.DEAD_LETTER,
        f"failed in {attempt_count} attempts; the last: {error.kind.value}: {error.message}",
        traceback=error.traceback,
    )
    return dataclasses.replace(response, error=last.error)


def unreadable(problem: str) -> AgentResponse:
    """Return the answer of a row whose stored case cannot be read."""
    return error_response(
        AgentErrorKind.DEAD_LETTER,
        f"the stored case cannot be read ({problem[:500]}): the agent was not asked; upload the dataset again",
    )
