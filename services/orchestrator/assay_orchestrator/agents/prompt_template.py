"""Builds the messages for a model from a case and the spec's templates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.model.answers.agent_response import Message, clean_text
from assay.specs.prompt_template import FilledTooLargeError, case_values, fill, missing_variables

if TYPE_CHECKING:
    from assay.model.answers.agent_response import AgentRequest
    from assay.model.case import Case
    from assay.specs.prompt_options import PromptOptions

_ROLES = ("system", "user", "assistant")


class ConversationError(ValueError):
    """Case and templates do not form a conversation; `type` is the cause, "template" or "history"."""

    def __init__(self, message: str, type: str) -> None:  # noqa: A002 - the name that it has in an AgentError
        super().__init__(message)
        self.type = type


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages for a model.

    Args:
        system: The system text; empty without one.
        messages: With the roles system, user and assistant; the last is the user's.
    """

    system: str
    messages: tuple[Message, ...]


def build_conversation(options: PromptOptions, request: AgentRequest, case: Case) -> Conversation:
    """Return the system text, the earlier messages, and the filled prompt.

    Raises:
        ConversationError: A variable has no value, a filled template is too large, or the history has messages that
            cannot be sent.
    """
    values = case_values(case, request.input)
    missing = missing_variables(options.templates, values)
    if missing:
        raise ConversationError(f"the prompt does not fit the case: {'; '.join(missing)}", "template")
    for message in request.history:
        if message.role not in _ROLES:
            raise ConversationError(
                f"the history has a message with the role {message.role!r}; a prompt is sent with messages of "
                f"{', '.join(_ROLES)} only",
                "history",
            )
    try:
        question = request.input if options.prompt is None else fill(options.prompt, values)
        system = clean_text(fill(options.system, values)) if options.system else ""
    except FilledTooLargeError as problem:
        raise ConversationError(str(problem), "template") from None
    history = [Message(message.role, message.content) for message in request.history if message.content.strip()]
    return Conversation(
        system=system,
        messages=tuple(Message(turn.role, clean_text(turn.content)) for turn in (*history, Message("user", question))),
    )
