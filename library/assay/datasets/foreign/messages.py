"""Reading messages and inputs of other tools' records as the question of a plain record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.datasets.fields.aliases import is_blank, names_of
from assay.datasets.fields.field_names import folded
from assay.datasets.foreign.parts import listed, text_of
from assay.datasets.records import BadRecordError, shown

_ROLES = {
    "system": "system", "developer": "system", "user": "user", "human": "user", "assistant": "assistant",
    "ai": "assistant", "model": "assistant", "agent": "assistant", "tool": "tool", "function": "tool",
}  # fmt: skip
_FIELDS = frozenset({"role", "type", "from", "name", "id", "tool_call_id", "content", "value", "data", "parts"})
"""The fields that a message without a text may have; a text under another name would be lost."""
_CALL_PARTS = ("tool_use", "tool_call", "function_call")


def messages_of(value: object, field: str) -> list[dict[str, Any]]:
    """Return messages with Assay's role names and their tool calls under `tool_calls`.

    Raises:
        BadRecordError: The value is not a list of messages.
    """
    if not isinstance(value, list):
        raise BadRecordError(f"must be a list of messages, not {shown(value)}", field)
    return [_message(item, f"{field}[{index}]") for index, item in enumerate(value)]


def _message(item: object, field: str) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        raise BadRecordError(f"must be a message with role and content, not {shown(item)}", field)
    role = item.get("role") or item.get("type") or item.get("from")
    if not isinstance(role, str) or role.lower() not in _ROLES:
        raise BadRecordError(f"must be a message with a role such as user or assistant, not {shown(role)}", field)
    content, calls = _split(_content(item))
    message: dict[str, Any] = {
        "role": _ROLES[role.lower()],
        "content": "" if is_blank(content) or content == [] else text_of(content, f"{field}.content"),
    }
    for name in ("name", "tool_call_id"):
        if isinstance(item.get(name), str) and item[name]:
            message[name] = item[name]
    calls += [call for key in ("tool_calls", "function_call") for call in listed(item.get(key))]
    if calls:
        message["tool_calls"] = calls
    elif content is None and any(value and name not in _FIELDS for name, value in item.items()):
        raise BadRecordError(f"must be a message with role and content, not {shown(item)}", field)
    return message


def _split(content: Any) -> tuple[Any, list[Any]]:
    """Return a message's text, and the tool calls among its parts."""
    if not isinstance(content, list):
        return content, []
    calls = [part for part in content if isinstance(part, Mapping) and part.get("type") in _CALL_PARTS]
    return [part for part in content if part not in calls], calls


def _content(message: Mapping[str, Any]) -> Any:
    """Return a message's content, under any of the tools' names for it."""
    inner = message.get("data")
    if isinstance(inner, Mapping) and "content" not in message:
        return inner.get("content")
    content = message.get("content", message.get("value", message.get("parts")))
    if isinstance(content, Mapping):
        content = [content]
    return [{"text": part} if isinstance(part, str) else part for part in content] if _is_parts(content) else content


def _is_parts(content: object) -> bool:
    return isinstance(content, list) and any(isinstance(part, str) for part in content)


def conversation(value: object, field: str) -> dict[str, Any]:
    """Return `input` and `history` from a list of messages that ends with a question, or `input` from a text.

    Raises:
        BadRecordError: The value is neither, or the last message is an answer.
    """
    if not isinstance(value, list):
        return {} if is_blank(value) else {"input": text_of(value, field)}
    messages = messages_of(value, field)
    if not messages or messages[-1]["role"] not in ("user", "system"):
        raise BadRecordError("must end with the message that is to be answered, of the role user", field)
    return {"input": messages[-1]["content"], "history": messages[:-1]}


def place_inputs(value: object, field: str) -> dict[str, Any]:
    """Return the inputs of a record as `input` with `parameters`, or as `variables`.

    A single text is the input. Of several values, the one with a known name for inputs is; without one, all of them are
    variables. A list of messages is a conversation.

    Raises:
        BadRecordError: The value is neither an object nor a text.
    """
    if not isinstance(value, Mapping):
        return conversation(value, field)
    values = {str(name): item for name, item in value.items() if item is not None}
    if len(values) == 1 and isinstance(next(iter(values.values())), str):
        return {"input": next(iter(values.values()))}
    names = {folded(name): name for name in reversed(values)}
    key = next((names[alias] for alias in names_of("input") if alias in names), None)
    if key is not None and isinstance(values[key], str | int | float):
        return {
            "input": text_of(values[key], f"{field}.{key}"),
            "parameters": {name: item for name, item in values.items() if name != key},
        }
    talk = "messages" if "messages" in values else key
    if talk is not None and (is_talk(values[talk]) or (talk == "messages" and isinstance(values[talk], list))):
        rest = {name: item for name, item in values.items() if name != talk}
        return conversation(values[talk], f"{field}.{talk}") | {"parameters": rest}
    return {"variables": values}


def is_talk(value: object) -> bool:
    """Return whether a value is a list of messages."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, Mapping) and item.keys() & {"content", "value", "data"} for item in value)
    )
