"""LangChain messages: those that a runnable added, and the answer in the last of them."""

from __future__ import annotations

import dataclasses
import typing
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    MessageLikeRepresentation,
    SystemMessage,
    convert_to_messages,
)

from assay.agent_host.frameworks.conversations import earlier_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay.model.answers.agent_request import AgentRequest

MESSAGES = "messages"
_REFUSALS = ("content_filter", "refusal", "SAFETY", "PROHIBITED_CONTENT")
"""Stop reasons of OpenAI, Anthropic and Google models that gave no answer."""


def question_message(text: str) -> HumanMessage:
    """Return the message of a question, with an id for recognising it later."""
    return HumanMessage(text, id=_new_id())


def history_messages(request: AgentRequest) -> list[BaseMessage]:
    """Return the history of a request as messages, with ids for recognising them later."""
    kinds = {"user": HumanMessage, "assistant": AIMessage, "system": SystemMessage}
    return [kinds[message.role](message.content, id=_new_id()) for message in earlier_messages(request)]


def with_ids(messages: Iterable[BaseMessage]) -> list[BaseMessage]:
    """Return messages that all have an id: one without would look new wherever it reappears."""
    return [message if message.id is not None else message.model_copy(update={"id": _new_id()}) for message in messages]


def messages_in(value: object) -> list[BaseMessage]:
    """Return a value's messages if it is a message or a list of them; otherwise none."""
    if isinstance(value, BaseMessage):
        return [value]
    if isinstance(value, list | tuple) and value and all(isinstance(item, BaseMessage) for item in value):
        return list(value)
    return []


def state_messages(value: object) -> list[BaseMessage]:
    """Return the messages of a state field, including pairs or mappings, which some reducers leave unconverted."""
    messages: list[BaseMessage] = []
    for item in value if isinstance(value, list | tuple) else [value]:
        try:
            messages += convert_to_messages([typing.cast("MessageLikeRepresentation", item)])
        except (ValueError, TypeError, NotImplementedError):
            continue  # anything that is not a message is not part of the answer
    return messages


def new_messages(messages: Iterable[BaseMessage], earlier: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages that were not there before, compared by id, or by content without one."""
    known = {message.id for message in earlier if message.id is not None}
    nameless = deque(message for message in earlier if message.id is None)
    new = []
    for message in messages:
        if message.id is not None:
            if message.id not in known:
                new.append(message)
        elif message in nameless:
            nameless.remove(message)
        else:
            new.append(message)
    return new


def refusal_of(message: BaseMessage) -> str | None:
    """Return the model's refusal text; None if it did not refuse."""
    if not isinstance(message, AIMessage) or message.tool_calls:
        return None
    for block in message.content if isinstance(message.content, list) else ():
        part = block.get("value", block) if isinstance(block, dict) and block.get("type") == "non_standard" else block
        if isinstance(part, dict) and part.get("type") == "refusal":
            return str(message.text) or str(part.get("refusal") or "")
    if refusal := message.additional_kwargs.get("refusal"):
        return str(message.text) or str(refusal)
    details = message.response_metadata
    stops = (details.get("finish_reason"), details.get("stop_reason"))
    return str(message.text) if any(stop in _REFUSALS for stop in stops) else None


def fields_of_schema(kind: Any) -> dict[str, Any]:
    """Return the fields of a mapping type, data class or model with their types; empty for other types."""
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    elif hasattr(kind, "__required_keys__"):  # a TypedDict, also one of typing_extensions
        names = list(kind.__annotations__)
    else:
        return {name: field.annotation for name, field in getattr(kind, "model_fields", {}).items()}
    try:
        types = typing.get_type_hints(kind)
    except (NameError, TypeError):  # for names that only a type checker knows
        types = {}
    return {name: types.get(name) for name in names}


def holds_messages(kind: Any) -> bool:
    """Return whether a value of a type contains messages, such as a list of them."""
    parts = typing.get_args(kind)
    return any((isinstance(part, type) and issubclass(part, BaseMessage)) or holds_messages(part) for part in parts)


def _new_id() -> str:
    return f"assay-{uuid.uuid4().hex}"
