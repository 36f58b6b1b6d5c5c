"""The first question of a run goes alone: where its reply cannot be mapped, no other question is asked."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from assay_orchestrator.agents.protocol import UnmappedAgentError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from assay.model.answers.agent_response import AgentResponse

MAPPING = "mapping"
"""The type of the error of a reply that came whole, and in which agent.response finds no answer."""


class DryRun:
    """Checks the mapping of an agent's replies on the first one.

    A reply that could be mapped shows that the mapping is right: later ones that cannot be are errors of their rows. A
    first question that fails otherwise shows nothing, and ends the wait: the next reply that comes is checked.

    Args:
        is_right: Whether the run has answers already, which show that the mapping is right.
    """

    def __init__(self, *, is_right: bool = False) -> None:
        self._first = asyncio.Lock()
        self._has_asked = self._is_right = is_right
        self._problem = ""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[bool]:
        """Wait until the first question is answered, or be it; the context is whether it waited.

        Raises:
            UnmappedAgentError: Its reply could not be mapped.
        """
        has_waited = not self._has_asked
        if not self._has_asked:
            async with self._first:
                if not self._has_asked:
                    try:
                        yield False
                    finally:
                        self._has_asked = True
                    return
        if self._problem:
            raise UnmappedAgentError(self._problem)
        yield has_waited

    def check(self, response: AgentResponse) -> AgentResponse:
        """Return an answer, unless it shows that the mapping is wrong.

        Raises:
            UnmappedAgentError: The reply could not be mapped, nor has any been.
        """
        error = response.error
        if error is not None and error.type == MAPPING and not self._is_right:
            self._problem = f"{error.message}. Correct agent.response and start the run again: no other case is asked"
            raise UnmappedAgentError(self._problem)
        self._is_right |= error is None  # also of an agent that waits for a person
        return response
