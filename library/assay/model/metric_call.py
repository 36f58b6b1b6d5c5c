"""Requests to metrics in the user's Python code, their results and their outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.model.answers.agent_request import AgentRequest
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Case

MAX_REASONING_CHARS = 10_000
"""Maximum length of a metric's reasoning."""
MAX_MESSAGE_CHARS = 4_000
"""Maximum length of a metric's error message."""

RAISED, TIMEOUT, MALFORMED = "function_raised", "function_timeout", "function_malformed"
"""Stable codes for why a function returned no value."""


@dataclass(frozen=True, slots=True)
class MetricResult:
    """A result that a Python metric may return instead of a plain number.

    Args:
        value: A finite number; True or False for a passing or failing row; None if the metric does not apply.
        reasoning: An explanation for readers; 10,000 characters are kept.
    """

    value: float | None
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class MetricRequest:
    """An answer to be scored by functions on the user's side.

    Args:
        request_id: Unique per case, repeat and turn, and different from ids of questions.
        metrics: Names of the metrics in the run.
        case: The case up to the turn that is scored, without recorded answers.
        question: The question.
        response: The answer.
        timeout_s: Timeout of the slowest function, in seconds.
    """

    request_id: str
    metrics: tuple[str, ...]
    case: Case
    question: AgentRequest
    response: AgentResponse
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class MetricOutcome:
    """The outcome of a function; with neither value nor error, its metric does not apply to the row.

    Args:
        value: A finite number; None if there is none.
        is_boolean: Whether the function returned true or false, stored as 1 and 0.
        reasoning: The function's explanation.
        error: A stable code for the missing value; empty if the function returned a value or none.
        message: The error message for the user.
        traceback: The traceback of an exception, without Assay's frames.
    """

    value: float | None = None
    is_boolean: bool = False
    reasoning: str = ""
    error: str = ""
    message: str = ""
    traceback: str = ""
