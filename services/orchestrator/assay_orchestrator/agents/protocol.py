"""What every adapter is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from assay.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay.model.answers.agent_response import AgentRequest, AgentResponse
    from assay.model.case import Case


class NotAskedError(Exception):
    """The run is being paused, and this question has not gone out: it is asked when the run is resumed."""


class UnmappedAgentError(InvalidInputError):
    """No reply of the agent could be mapped so far: the spec is wrong, and further questions would be paid in vain."""

    reason = "AGENT_REPLY_UNMAPPED"


class Agent(Protocol):
    """Something that answers questions."""

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Return the answer; a failure is an answer with status ERROR, never an exception.

        Raises:
            NotAskedError: The run is being paused and the question did not go out.
        """

    async def aclose(self) -> None:
        """Let go of connections."""


@runtime_checkable
class WaitingAgent(Protocol):
    """An agent whose questions may wait before they go out, for what calls in flight leave of their team's quota."""

    async def answer_after_waiting(
        self, request: AgentRequest, case: Case, before: Callable[[], Awaitable[None]]
    ) -> AgentResponse:
        """Return the answer, as `Agent.answer` does.

        Args:
            request: The question.
            case: Its case.
            before: Called once the question has waited, before it goes out; what it raises ends the question.
        """
