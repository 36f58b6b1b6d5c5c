"""Converting an agent's exception into an answer: a sentence, the traceback, and whether a retry may help."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from typing import TYPE_CHECKING

from assay.agent_host.argument import argument_hint
from assay.agent_host.concurrency.tasks import TaskExitError
from assay.agent_host.concurrency.threads import CallRaisedError, TooManyHangError
from assay.agent_host.tracebacks import user_traceback
from assay.model.answers.agent_response import (
    AgentErrorKind,
    AgentResponse,
    MalformedAnswerError,
    clean_text,
    error_response,
)
from assay.model.answers.response_limits import AnswerTooLargeError
from assay.model.answers.retrying import http_status_of, may_pass
from assay.process.redaction import Redactor, secret_values

if TYPE_CHECKING:
    from collections.abc import Callable


class SessionLostError(Exception):
    """The object that answered the conversation's earlier turns is gone; the message says what to do."""


class TooManyStopsError(Exception):
    """The agent requested another decision after every decision; the message says what to do."""


class UnusableDecisionError(Exception):
    """The agent cannot resume with the scripted decision; the message says what to decide."""


class Failures:
    """Converts exceptions into answers, without keys and passwords from this process's environment.

    Args:
        hint: Returns advice for an exception and its text; empty if there is none.
    """

    def __init__(self, hint: Callable[[BaseException, str], str] = argument_hint) -> None:
        self._hint = hint
        self._secrets: frozenset[str] = frozenset()
        self._redactor = Redactor()

    def of(self, problem: BaseException) -> AgentResponse:
        """Return the answer for an agent that raised."""
        match problem:
            case AnswerTooLargeError():
                return error_response(AgentErrorKind.TOO_LARGE, str(problem))
            case MalformedAnswerError():
                return self._malformed(str(problem))
            case TooManyHangError():
                return error_response(AgentErrorKind.TIMEOUT, str(problem))
            case SessionLostError():
                return error_response(AgentErrorKind.RAISED, str(problem), type="SessionLost")
            case TooManyStopsError():
                return error_response(AgentErrorKind.RAISED, str(problem), type="TooManyStops")
            case UnusableDecisionError():
                return error_response(AgentErrorKind.RAISED, str(problem), type="UnusableDecision")
            case CallRaisedError():
                return self.of(problem.cause)
            case asyncio.CancelledError():
                return error_response(AgentErrorKind.RAISED, "the agent cancelled itself", type="CancelledError")
            case TaskExitError(__cause__=BaseException() as cause):
                return self.of(cause)
        status = http_status_of(problem) if isinstance(problem, Exception) else None
        return error_response(
            AgentErrorKind.RAISED if status is None else AgentErrorKind.HTTP_STATUS,
            self.described(problem),
            type=type(problem).__name__,
            http_status=status,
            retryable=may_pass(problem),
            traceback=user_traceback(problem, self.redacted),
        )

    def of_unreadable(self, problem: Exception) -> AgentResponse:
        """Return the answer for an agent whose return value is not an answer."""
        if isinstance(problem, MalformedAnswerError | AnswerTooLargeError):
            return self.of(problem)
        return self._malformed(_described(problem, self._hint))

    def described(self, problem: BaseException) -> str:
        """Return an exception's message as one sentence."""
        return self.redacted(_described(problem, self._hint))

    def _malformed(self, text: str) -> AgentResponse:
        message = f"the answer of the agent cannot be read: {self.redacted(text)}"
        return error_response(AgentErrorKind.MALFORMED, message)

    def redacted_answer(self, response: AgentResponse) -> AgentResponse:
        """Return an answer without this process's keys and passwords in its errors and its tools' errors."""
        if response.error is not None:
            message = self.redacted(response.error.message)
            response = dataclasses.replace(response, error=dataclasses.replace(response.error, message=message))
        if any(call.is_error for call in response.tool_calls or ()):
            calls = tuple(
                dataclasses.replace(call, result_json=self.redacted(call.result_json)) if call.is_error else call
                for call in response.tool_calls or ()
            )
            response = dataclasses.replace(response, tool_calls=calls)
        return response

    def redacted(self, text: str) -> str:
        """Return a text without those keys and passwords."""
        # Looked up each time: an agent may read its keys from a file at its first call.
        secrets = secret_values(os.environ)
        if secrets != self._secrets:
            self._secrets, self._redactor = secrets, Redactor(secrets)
        return self._redactor.redact_long(text)


def _described(problem: BaseException, hint_of: Callable[[BaseException, str], str]) -> str:
    try:
        text = clean_text(str(problem))
    except (Exception, SystemExit):  # noqa: BLE001 - even its __str__ is the user's code
        text = "(its message cannot be shown)"
    name = type(problem).__name__
    described = f"{name}: {text}" if text else name
    if isinstance(problem, BaseExceptionGroup):
        described += f": {_described(problem.exceptions[0], hint_of)}"  # the group itself says only how many there are
    hint = hint_of(problem, text)
    return f"{described} ({hint})" if hint else described
