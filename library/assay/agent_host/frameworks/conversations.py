"""Conversations with an agent of a framework: what it remembers of earlier turns, or else what was said."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from assay.model.answers.agent_request import Message
from assay.model.answers.agent_response import clean_text

if TYPE_CHECKING:
    from assay.model.answers.agent_request import AgentRequest

MemoryT = TypeVar("MemoryT")

_ROLES = ("system", "user", "assistant")
_MAX_KEPT = 2000  # twice as many as there are questions at once; where it was dropped, the texts are left


class Conversations(Generic[MemoryT]):
    """Keeps what an agent remembers between the turns of a conversation, such as its messages with their tool calls.

    What is kept belongs to a session and to what was said in it. So a repeated turn continues from where its first
    attempt did, and a turn that brings a history of its own, or that a resumed run asks in another process, finds
    nothing: its agent is given the texts of the history.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, tuple[Message, ...]], MemoryT] = OrderedDict()

    def find(self, request: AgentRequest) -> MemoryT | None:
        """Return what was kept after the turn before; None at the beginning, or where the history is another."""
        return self._kept.get((request.session_id, request.history))

    def keep(self, request: AgentRequest, text: str, memory: MemoryT) -> None:
        """Keep what the agent remembers after an answer.

        Args:
            request: The turn.
            text: The text of the answer.
            memory: What to continue from; it is never changed.
        """
        said = (Message("user", request.input), Message("assistant", clean_text(text)))
        self._kept[request.session_id, (*request.history, *said)] = memory
        if len(self._kept) > _MAX_KEPT:
            self._kept.popitem(last=False)


def earlier_messages(request: AgentRequest) -> list[Message]:
    """Return the history of a request, without its empty messages.

    Raises:
        TypeError: A message has a role that no framework takes as a text.
    """
    for message in request.history:
        if message.role not in _ROLES:
            raise TypeError(
                f"the history holds a message with the role {message.role!r}; an agent of a framework receives "
                f"messages of {', '.join(_ROLES)} only"
            )
    return [message for message in request.history if message.content.strip()]


def question_of(request: AgentRequest) -> str:
    """Return the text that an agent is asked.

    Raises:
        TypeError: The case has variables in place of a text, which would ask the agent nothing.
    """
    if not request.input and request.variables:
        raise TypeError("the case has variables and no text, which this agent is asked with: give the case an `input`")
    return request.input
