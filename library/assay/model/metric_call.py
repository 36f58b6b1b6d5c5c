"""What a metric in the user's Python code is asked, what it may return, and what that came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.model.answers.agent_request import AgentRequest
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Case

MAX_REASONING_CHARS = 10_000
"""Longest reason of a metric's value."""
MAX_MESSAGE_CHARS = 4_000
"""Longest message of a metric's error."""

RAISED, TIMEOUT, MALFORMED = "function_raised", "function_timeout", "function_malformed"
"""Why a function gave no value: stable words."""


@dataclass(frozen=True, slots=True)
class MetricResult:
    """What a metric in Python code may return in place of a bare number.

    Args:
        value: A finite number; or True or False, whether the row passes; None where the metric does not apply.
        reason: Why, for people; at most 10,000 characters are kept.
    """

    value: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MetricRequest:
    """One answer that functions on the user's side score.

    Args:
        request_id: Unique per case, repeat and turn; no question has the same.
        metrics: Names of the metrics in the run.
        case: The case up to the turn that is scored, without recorded answers.
        question: The question that was answered.
        response: The answer.
        timeout_s: How long the slowest of the functions may take, in seconds.
    """

    request_id: str
    metrics: tuple[str, ...]
    case: Case
    question: AgentRequest
    response: AgentResponse
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class MetricOutcome:
    """What one function returned or raised; without value and error its metric does not apply to the row.

    Args:
        value: Finite; None where there is none.
        is_boolean: Whether the function returned true or false, as which 1 and 0 stand.
        reasoning: Why, in the function's words.
        error: A stable word for why there is no value; empty where the function returned one, or none.
        message: The error for people.
        traceback: Of an exception, without Assay's frames.
    """

    value: float | None = None
    is_boolean: bool = False
    reasoning: str = ""
    error: str = ""
    message: str = ""
    traceback: str = ""
