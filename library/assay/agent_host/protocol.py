"""The interface between an agent of any kind and its host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from assay.model.answers.agent_request import AgentRequest
    from assay.model.answers.agent_response import AgentResponse


class Caller(Protocol):
    """Asks an agent on the user's side."""

    async def call(self, request: AgentRequest) -> AgentResponse:
        """Return the agent's answer with its duration; raises only when cancelled."""

    async def aclose(self) -> None:
        """Release threads and processes; a later call starts new ones."""
