"""Converting an agent's answer into a message; an answer that cannot be sent becomes an error that says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.model.answers.agent_response import AgentErrorKind, MalformedAnswerError, error_response
from assay.model.answers.response_limits import MAX_ANSWER_BYTES
from assay.wire.agent import response_to_wire

if TYPE_CHECKING:
    from assay.agent.v1 import agent_pb2
    from assay.model.answers.agent_response import AgentResponse


def answer_to_wire(response: AgentResponse) -> agent_pb2.AgentResponse:
    """Return the message for an answer, or for an error if it is not valid JSON or exceeds 2 MiB."""
    try:
        message = response_to_wire(response)
    except (MalformedAnswerError, ValueError) as problem:
        sentence = f"the answer of the agent cannot be read: {problem}"
        return response_to_wire(error_response(AgentErrorKind.MALFORMED, sentence))
    # Escapes make JSON larger than the measured texts.
    if message.ByteSize() > MAX_ANSWER_BYTES:
        limit_mib = MAX_ANSWER_BYTES // 1024 // 1024
        return response_to_wire(error_response(AgentErrorKind.TOO_LARGE, f"the answer is larger than {limit_mib} MiB"))
    return message
