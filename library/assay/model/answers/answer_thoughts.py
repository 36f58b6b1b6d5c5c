"""Separating a model's thoughts from the text of its answer, so that they are stored but not scored."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentStatus
from assay.text.inline_thoughts import split_thoughts

if TYPE_CHECKING:
    from assay.model.answers.agent_response import AgentResponse


def with_thoughts_apart(response: AgentResponse) -> AgentResponse:
    """Return the response with thoughts at the beginning of its text moved to `thoughts`.

    A response of nothing but thoughts is an error of type `empty`, unless it has tool calls or structured parts.
    """
    thoughts, text = split_thoughts(response.text)
    if text == response.text:
        return response
    thoughts = "\n".join(filter(None, (response.thoughts, thoughts)))
    apart = dataclasses.replace(response, text=text, thoughts=thoughts)
    has_parts = bool(response.tool_calls or response.sql) or response.output is not None or response.retrieved
    if text.strip() or has_parts or response.status is not AgentStatus.SUCCESS:
        return apart
    reason = f" (it stopped with {response.finish_reason[:100]!r})" if response.finish_reason else ""
    message = f"the answer holds thoughts alone{reason}"
    error = AgentError(AgentErrorKind.RAISED, message, type="empty")
    return dataclasses.replace(apart, status=AgentStatus.ERROR, error=error)
