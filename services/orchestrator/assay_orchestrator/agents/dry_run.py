"""The first question of a run goes alone: if its reply cannot be mapped, no other question is asked."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from assay_orchestrator.agents.protocol import UnmappedAgentError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from assay.model.answers.agent_response import AgentResponse

MAPPING = "mapping"
"""The error type of a complete reply in which agent.response matches no answer."""


class DryRun:
    """Checks the mapping of an agent's replies on the first one.

    A mapped reply proves the mapping: later replies that cannot be mapped are errors of their rows. A first question
    that fails otherwise proves nothing, and ends the wait: the next reply is checked.

    Args:
        is_right: Whether the run already has answers, which prove the mapping.
    """

    def __init__(self, *, is_right: bool = False) -> None:
        self._first = asyncio.Lock()
        self._has_asked = self._is_right = is_right
        self._problem = ""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[bool]:
        """Wait until the first question is answered, or become it; the context value is whether it waited.

        Raises:
            UnmappedAgentError: The first reply could not be mapped.
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
            UnmappedAgentError: The reply could not be mapped, and no earlier reply has been.
        """
        error = response.error
        if error is not None and error.type == MAPPING and not self._is_right:
            self._problem = f"{error.message}. Correct agent.response and start the run again: no other case is asked"
            raise UnmappedAgentError(self._problem)
        self._is_right |= error is None  # also of an agent that waits for a person
        return response
