"""The connections of prompt agents to their providers, and what goes wrong on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.model.agent_response import MalformedAnswerError
from assay.model.response_limits import AnswerTooLargeError, check_bounds
from assay.providers.http_client import ReplyRules
from assay_orchestrator.agents.http_body import MAX_BODY_BYTES
from assay_orchestrator.agents.provider import ProviderStatusError, UnreachableError
from assay_orchestrator.scoring.reply_mapping import excerpt

if TYPE_CHECKING:
    import httpx2

_RULES = ReplyRules(MalformedAnswerError, AnswerTooLargeError, excerpt, MAX_BODY_BYTES)
connection_to = _RULES.client


def failure_of(problem: Exception, status: int | None, reply: httpx2.Response | None) -> Exception:
    """Return what an exception of a provider's package is here.

    Args:
        problem: The exception.
        status: The HTTP status, where there was a reply.
        reply: The reply, where there was one.
    """
    if status is not None and reply is not None:
        return ProviderStatusError(status, reply.headers, _RULES.error_in(reply.content))
    cause = problem.__cause__ or problem
    if isinstance(cause, AnswerTooLargeError | MalformedAnswerError):
        return cause
    return UnreachableError(str(cause) or "the connection broke", type(cause).__name__)


def read_json(body: bytes) -> dict[str, Any]:
    """Return the object that a reply is.

    Raises:
        MalformedAnswerError: It is none.
        AnswerTooLargeError: It is too large.
    """
    data = _RULES.json_in(body)
    check_bounds(data)
    return _RULES.require_object(data, body)
