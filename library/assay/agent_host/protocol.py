"""What the host of an agent needs of it, whatever kind of agent it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from assay.model.answers.agent_request import AgentRequest
    from assay.model.answers.agent_response import AgentResponse


class Caller(Protocol):
    """Asks an agent on the user's side."""

    async def call(self, request: AgentRequest) -> AgentResponse:
        """Return the agent's answer, with the time it took; never raises but when cancelled."""

    async def aclose(self) -> None:
        """Let go of threads and processes; a further call starts new ones."""
