"""What an agent raised, as an answer: a sentence, the traceback, and whether asking again may help."""

from __future__ import annotations

import asyncio
import os

from assay.agent_host.argument import argument_hint
from assay.agent_host.threads import TooManyHangError
from assay.agent_host.tracebacks import user_traceback
from assay.model.agent_response import AgentErrorKind, AgentResponse, MalformedAnswerError, clean_text, error_response
from assay.model.response_limits import AnswerTooLargeError
from assay.runtime.redaction import Redactor, secret_values

# Errors of the agent's code: the same question raises them again.
_DETERMINISTIC = (TypeError, LookupError, AttributeError, NameError, ImportError, SyntaxError, NotImplementedError,
                  AssertionError, ArithmeticError, RecursionError)  # fmt: skip


class Failures:
    """Makes answers of exceptions, without the keys and passwords of this process's environment."""

    def __init__(self) -> None:
        self._secrets: frozenset[str] = frozenset()
        self._redactor = Redactor()

    def of(self, problem: BaseException) -> AgentResponse:
        """Return the answer of an agent that raised."""
        match problem:
            case AnswerTooLargeError():
                return error_response(AgentErrorKind.TOO_LARGE, str(problem))
            case MalformedAnswerError():
                return self._malformed(str(problem))
            case TooManyHangError():
                return error_response(AgentErrorKind.TIMEOUT, str(problem))
            case asyncio.CancelledError():
                return error_response(AgentErrorKind.RAISED, "the agent cancelled itself", type="CancelledError")
        return error_response(
            AgentErrorKind.RAISED,
            self.redacted(_described(problem)),
            type=type(problem).__name__,
            retryable=isinstance(problem, Exception) and not isinstance(problem, _DETERMINISTIC),
            traceback=user_traceback(problem, self.redacted),
        )

    def of_unreadable(self, problem: Exception) -> AgentResponse:
        """Return the answer of an agent that returned what is no answer."""
        if isinstance(problem, MalformedAnswerError | AnswerTooLargeError):
            return self.of(problem)
        return self._malformed(_described(problem))

    def _malformed(self, text: str) -> AgentResponse:
        message = f"the answer of the agent cannot be read: {self.redacted(text)}"
        return error_response(AgentErrorKind.MALFORMED, message)

    def redacted(self, text: str) -> str:
        """Return a text without those keys and passwords."""
        # Looked up each time: an agent may read its keys from a file when it is first called.
        found = secret_values(os.environ)
        if found != self._secrets:
            self._secrets, self._redactor = found, Redactor(found)
        return self._redactor.redact_long(text)


def _described(problem: BaseException) -> str:
    try:
        text = clean_text(str(problem))
    except (Exception, SystemExit):  # noqa: BLE001 - even its __str__ is the user's code
        text = "(its message cannot be shown)"
    name = type(problem).__name__
    described = f"{name}: {text}" if text else name
    if isinstance(problem, BaseExceptionGroup):
        described += f": {_described(problem.exceptions[0])}"  # the group itself says only how many there are
    hint = argument_hint(problem, text)
    return f"{described} ({hint})" if hint else described
