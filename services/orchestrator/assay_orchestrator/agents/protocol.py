"""The protocol of adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from assay.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay.model.answers.agent_response import AgentRequest, AgentResponse
    from assay.model.case import Case


class NotAskedError(Exception):
    """The run is being paused, and this question was not sent: it is asked when the run is resumed."""


class UnmappedAgentError(InvalidInputError):
    """No reply of the agent could be mapped so far: the spec is wrong, and further questions would waste money."""

    reason = "AGENT_REPLY_UNMAPPED"


class Agent(Protocol):
    """An agent that answers questions."""

    async def answer(self, request: AgentRequest, case: Case) -> AgentResponse:
        """Return the answer; a failure is an answer with status ERROR, never an exception.

        Raises:
            NotAskedError: The run is being paused and the question was not sent.
        """

    async def aclose(self) -> None:
        """Close the connections."""


@runtime_checkable
class WaitingAgent(Protocol):
    """An agent whose questions may wait until calls in flight leave enough of their team's quota."""

    async def answer_after_waiting(
        self, request: AgentRequest, case: Case, before: Callable[[], Awaitable[None]]
    ) -> AgentResponse:
        """Return the answer, as `Agent.answer` does.

        Args:
            request: The question.
            case: Its case.
            before: Called after the wait, before the question is sent; an exception from it ends the question.
        """
