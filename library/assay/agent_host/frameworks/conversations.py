"""The memory of a framework agent's conversations: its own state after earlier turns, or else their texts."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from assay.model.answers.agent_request import Message
from assay.model.answers.agent_response import clean_text

if TYPE_CHECKING:
    from assay.model.answers.agent_request import AgentRequest

MemoryT = TypeVar("MemoryT")

_ROLES = ("system", "user", "assistant")
_MAX_KEPT = 2000  # twice the number of concurrent questions; after an eviction the texts remain


class Conversations(Generic[MemoryT]):
    """Keeps an agent's memory between turns of a conversation, such as its messages with their tool calls.

    A memory belongs to a session and the texts exchanged in it. So a repeated turn continues from the same point as its
    first attempt. A turn with its own history, or one that a resumed run asks in another process, has no memory: its
    agent gets the texts of the history.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, tuple[Message, ...]], MemoryT] = OrderedDict()

    def find(self, request: AgentRequest) -> MemoryT | None:
        """Return the memory after the previous turn; None at the beginning, or if the history differs."""
        return self._kept.get((request.session_id, request.history))

    def keep(self, request: AgentRequest, text: str, memory: MemoryT) -> None:
        """Store the agent's memory after an answer.

        Args:
            request: The turn.
            text: The answer's text.
            memory: The state to continue from; it is never changed.
        """
        exchange = (Message("user", request.input), Message("assistant", clean_text(text)))
        self._kept[request.session_id, (*request.history, *exchange)] = memory
        if len(self._kept) > _MAX_KEPT:
            self._kept.popitem(last=False)


def earlier_messages(request: AgentRequest) -> list[Message]:
    """Return the history of a request, without empty messages.

    Raises:
        TypeError: A message has a role that no framework accepts for a text.
    """
    for message in request.history:
        if message.role not in _ROLES:
            raise TypeError(
                f"the history holds a message with the role {message.role!r}; an agent of a framework receives "
                f"messages of {', '.join(_ROLES)} only"
            )
    return [message for message in request.history if message.content.strip()]


def question_of(request: AgentRequest) -> str:
    """Return the question's text.

    Raises:
        TypeError: The case has variables instead of a text, so there is nothing to ask.
    """
    if not request.input and request.variables:
        raise TypeError("the case has variables and no text, which this agent is asked with: give the case an `input`")
    return request.input
