"""Maps failed gRPC calls to answers: the kind of failure of each status, and whether a retry may help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import grpc.aio

from assay.model.answers.agent_response import AgentErrorKind, error_response
from assay.model.answers.response_fields import excerpt
from assay.rpc.status import retry_after_s

if TYPE_CHECKING:
    from assay.model.answers.agent_response import AgentResponse

_Code = grpc.StatusCode
_UNREACHABLE = (_Code.UNAVAILABLE, _Code.CANCELLED, _Code.ABORTED)
_REFUSED = {
    _Code.UNIMPLEMENTED: "the service does not implement this method: register AgentService of agent.proto; with "
    "stream: true also AnswerStream",
    _Code.UNAUTHENTICATED: "the service rejected the credentials: check agent.metadata",
    _Code.PERMISSION_DENIED: "the service does not permit the call: check agent.metadata",
}
# The agent raised, in any language, or the connection broke: another attempt may help.
_PASSING = (_Code.UNKNOWN, _Code.INTERNAL, _Code.RESOURCE_EXHAUSTED)


def failed_call(error: grpc.aio.AioRpcError, target: str, timeout_s: float, took_s: float) -> AgentResponse:
    """Return the answer of a failed call.

    Args:
        error: The gRPC error.
        target: The service.
        timeout_s: The deadline of the call, in seconds.
        took_s: How long it took, in seconds.
    """
    code = error.code()
    description = described(error)
    if code is _Code.DEADLINE_EXCEEDED:
        message = f"no answer within {timeout_s:g} s" if took_s >= timeout_s * 0.99 else description
        return error_response(AgentErrorKind.TIMEOUT, message, type=code.name, retryable=True)
    if code is _Code.RESOURCE_EXHAUSTED and "larger than max" in description:
        message = f"a message is larger than its receiver accepts; an answer may have 4 MiB: {description}"
        return error_response(AgentErrorKind.TOO_LARGE, message, type=code.name)
    if code in _UNREACHABLE:
        message = f"{target} cannot be reached, or broke the connection: {description}"
        return error_response(
            AgentErrorKind.UNREACHABLE, message, type=code.name, retryable=True, retry_after_s=retry_after_s(error)
        )
    if code in _REFUSED:
        return error_response(AgentErrorKind.UNREACHABLE, f"{_REFUSED[code]}: {description}", type=code.name)
    return error_response(
        AgentErrorKind.RAISED,
        description,
        type=code.name,
        retryable=code in _PASSING,
        retry_after_s=retry_after_s(error),
    )


def described(error: grpc.aio.AioRpcError) -> str:
    """Return code and message of a failed call in one line."""
    details = error.details()
    return f"{error.code().name}: {excerpt(details.encode('utf-8', 'replace'))}" if details else error.code().name
