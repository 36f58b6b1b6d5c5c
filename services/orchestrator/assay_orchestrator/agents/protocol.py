"""What every adapter is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from assay.answers import AgentRequest, AgentResponse
    from assay.cases import Case

__all__ = ["Agent"]


class Agent(Protocol):
    """Something that answers questions."""

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Return the answer; a failure is an answer with status ERROR, never an exception."""

    async def aclose(self) -> None:
        """Let go of connections."""
