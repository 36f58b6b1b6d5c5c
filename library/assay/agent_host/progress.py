"""The progress of an agent, kept for the rows of calls that fail or time out."""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from assay.model.answers.agent_response import AgentResponse, response_to_json
from assay.model.answers.response_fields import MalformedAnswerError
from assay.model.answers.response_limits import AnswerTooLargeError, check_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_current: ContextVar[Progress | None] = ContextVar("assay_progress", default=None)


def report_progress(trace: Callable[[], AgentResponse]) -> None:
    """Register how to read the agent's progress in the current call.

    Args:
        trace: Returns the tool calls, usage and model so far; called only if the call fails or times out.
    """
    if (progress := _current.get()) is not None:
        progress.trace = trace


class Progress:
    """The progress of an agent in a call.

    Attributes:
        trace: Returns the progress; None if the agent has registered nothing.
    """

    def __init__(self) -> None:
        self.trace: Callable[[], AgentResponse] | None = None

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Let code in the block, in its tasks and threads too, report to this object."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def completed(self, failure: AgentResponse, max_bytes: int) -> AgentResponse:
        """Return a failure completed by the agent's progress before it.

        Args:
            failure: The status and error of the call.
            max_bytes: Maximum size of an answer; for a larger one, only usage and model are kept.
        """
        if self.trace is None:
            return failure
        try:
            trace = self.trace()
            check_bounds(response_to_json(trace), max_bytes)
        except (AnswerTooLargeError, MalformedAnswerError):
            trace = AgentResponse(usage=trace.usage, model=trace.model)
        except Exception as problem:  # noqa: BLE001 - the boundary of a case: what a framework kept may be of any kind
            if (error := failure.error) is None:
                return failure
            message = f"{error.message[:3500]} (what the agent did before cannot be read: {type(problem).__name__})"
            return dataclasses.replace(failure, error=dataclasses.replace(error, message=message))
        return dataclasses.replace(trace, status=failure.status, error=failure.error)
