"""What tests read from answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.model.answers.agent_response import AgentResponse, ToolCall


def calls(response: AgentResponse) -> tuple[ToolCall, ...]:
    """Return the tool calls of an answer, which reports them."""
    assert response.tool_calls is not None
    return response.tool_calls
