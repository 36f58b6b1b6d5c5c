"""The parts of another tool's record, and what they become in a plain one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from assay.datasets.fields import ALIASES, gives_away, is_blank
from assay.datasets.json_reader import folded
from assay.datasets.records import BadRecordError, shown

__all__ = [
    "Parts",
    "answer_of",
    "called_tool",
    "conversation",
    "listed",
    "messages_of",
    "place_inputs",
    "recorded_in",
    "retrieved_items",
    "snake",
    "text_of",
    "texts_of",
]

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_OWN = frozenset(
    alias for name, found in ALIASES.items() if name not in ("input", "turns", "references") for alias in found
)
_TELLING = ("solution", "correct", "gold")
_ROLES = {
    "system": "system", "developer": "system", "user": "user", "human": "user", "assistant": "assistant",
    "ai": "assistant", "model": "assistant", "agent": "assistant", "tool": "tool", "function": "tool",
}  # fmt: skip
_TOOL_NAMES = ("name", "tool_name", "toolName")
_ARGUMENTS = ("arguments", "args", "input_parameters", "inputParameters", "tool_input", "toolInput", "input")
_PLAIN_CALL = {*_TOOL_NAMES, *_ARGUMENTS, "id", "type", "function"}
_ANSWERS = ("response", "output", "answer", "content", "result")
_RESULTS = ("output", "result", "tool_output", "toolOutput", "response")


def snake(name: str) -> str:
    """Return a field name as formats compare it: `expectedOutput` and `Expected Output` as `expected_output`."""
    return folded(_HUMP.sub("_", name))


class Parts:
    """The fields of one record, taken one by one; `finish` finds a place for what is left.

    Args:
        record: The record.
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record = record
        self._names: dict[str, str] = {}
        for key in record:
            self._names.setdefault(snake(key), key)
        self._taken: set[str] = set()
        self._details: dict[str, Any] = {}

    def take(self, *names: str) -> Any:
        """Return the value of the first of these fields that holds something; None where none does."""
        for name in names:
            key = self._names.get(name)
            if key is not None and not is_blank(self._record[key]):
                self._taken.add(key)
                return self._record[key]
        return None

    def has(self, *names: str) -> bool:
        """Return whether one of these fields holds something."""
        return any(name in self._names and not is_blank(self._record[self._names[name]]) for name in names)

    def name(self, *names: str) -> str:
        """Return the record's own name of the first of these fields that it has, for messages."""
        return next((self._names[name] for name in names if name in self._names), names[0])

    def mapping(self, *names: str) -> dict[str, Any]:
        """Return the object in a field; the empty one where there is none.

        Raises:
            BadRecordError: It holds something else.
        """
        value = self.take(*names)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise BadRecordError(f"must be an object, not {shown(value)}", self.name(*names))
        return dict(value)

    def texts(self, *names: str) -> list[str]:
        """Return the texts in a field; one text is a list of one.

        Raises:
            BadRecordError: It holds something else.
        """
        return texts_of(self.take(*names), self.name(*names))

    def tools(self, *names: str, where: str = "") -> list[dict[str, Any]]:
        """Return the expected calls of tools in a field; what else it says about them is kept under `expected`.

        Args:
            names: The field's names.
            where: Where the record itself stands, for messages.

        Raises:
            BadRecordError: Some item names no tool.
        """
        items, field = listed(self.take(*names)), f"{where}{self.name(*names)}"
        if any(isinstance(item, Mapping) and not item.keys() <= _PLAIN_CALL for item in items):
            self._details[self.name(*names)] = items
        return [_expected_tool(item, f"{field}[{index}]") for index, item in enumerate(items)]

    def rest(self) -> dict[str, Any]:
        """Return the fields that hold something and were not taken, and details of tools."""
        left = {name: value for name, value in self._record.items() if name not in self._taken}
        return self._details | {name: value for name, value in left.items() if value not in (None, "", [], {})}

    def refuse(self, *names: str, why: str) -> None:
        """Refuse the record if one of these fields holds something.

        Raises:
            BadRecordError: It does.
        """
        for name in names:
            value = self.take(name)
            if value is not None and value not in ([], {}):
                raise BadRecordError(why, self.name(name))

    def finish(self, plain: dict[str, Any], metadata: object = None) -> dict[str, Any]:
        """Return the plain record without what is empty, completed by the fields that were not taken.

        Fields with names of Assay's own are kept by these, what would give the answer away goes to `expected`,
        which agents do not see, and everything else to the metadata.

        Args:
            plain: The plain record so far.
            metadata: What the tool itself calls metadata.
        """
        kept: dict[str, Any] = {}
        expected = self._details | dict(plain.pop("expected", None) or {})
        for name, value in _pairs(metadata):
            (expected if tells(name) else kept).setdefault(name, value)
        plain = {name: value for name, value in plain.items() if value is not None and value not in ("", [], {})}
        for name, value in self._record.items():
            if name in self._taken or is_blank(value):
                continue
            if name == "expected" and isinstance(value, Mapping):
                expected = {**value, **expected}
            elif tells(name):
                expected.setdefault(name, value)
            elif name == "metadata":
                kept |= {key: item for key, item in _pairs(value) if key not in kept}
            elif folded(name) in _OWN and name not in plain:
                plain[name] = value
            else:
                kept.setdefault(name, value)
        return plain | ({"expected": expected} if expected else {}) | ({"metadata": kept} if kept else {})


def tells(name: str) -> bool:
    """Return whether a field of this name would give the answer away."""
    plain = snake(name)
    return plain not in _OWN and (gives_away(plain) or plain.startswith(_TELLING))


def _pairs(value: object) -> list[tuple[str, Any]]:
    if is_blank(value):
        return []
    return list(value.items()) if isinstance(value, Mapping) else [("metadata", value)]


def listed(value: Any) -> list[Any]:
    """Return the items of a list, one value as a list of one, nothing as an empty list."""
    if is_blank(value):
        return []
    return value if isinstance(value, list) else [value]


def text_of(value: object, field: str) -> str:
    """Return a text or the digits of a number, also of a list of text parts.

    Raises:
        BadRecordError: It is something else.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list) and value and all(_is_text_part(item) for item in value):
        return "".join(item if isinstance(item, str) else str(item["text"]) for item in value)
    raise BadRecordError(f"must be a text, not {shown(value)}", field)


def _is_text_part(item: object) -> bool:
    return isinstance(item, str) or (
        isinstance(item, Mapping)
        and item.get("type", "text") in ("text", "input_text", "output_text")
        and "text" in item
    )


def texts_of(value: object, field: str) -> list[str]:
    """Return a list's items as texts; one text is a list of one.

    Raises:
        BadRecordError: Some item is no text.
    """
    items = listed(value)
    many = isinstance(value, list)
    return [
        text_of(item, f"{field}[{index}]" if many else field) for index, item in enumerate(items) if item is not None
    ]


def messages_of(value: object, field: str) -> list[dict[str, Any]]:
    """Return messages with Assay's names of roles; their calls of tools stay under `tool_calls`.

    Raises:
        BadRecordError: It is no list of messages.
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
    content = item.get("content", item.get("value"))
    message: dict[str, Any] = {
        "role": _ROLES[role.lower()],
        "content": "" if is_blank(content) or content == [] else text_of(content, f"{field}.content"),
    }
    for name in ("name", "tool_call_id"):
        if isinstance(item.get(name), str) and item[name]:
            message[name] = item[name]
    if item.get("tool_calls"):
        message["tool_calls"] = listed(item["tool_calls"])
    return message


def conversation(value: object, field: str) -> dict[str, Any]:
    """Return `input` and `history` of a list of messages of which the last one asks; or `input` of a text.

    Raises:
        BadRecordError: It is neither, or the last message is an answer.
    """
    if not isinstance(value, list):
        return {} if is_blank(value) else {"input": text_of(value, field)}
    messages = messages_of(value, field)
    if not messages or messages[-1]["role"] not in ("user", "system"):
        raise BadRecordError("must end with the message that is to be answered, of the role user", field)
    return {"input": messages[-1]["content"], "history": [without_calls(message) for message in messages[:-1]]}


def without_calls(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message as history holds it: without the calls that it makes."""
    return {name: value for name, value in message.items() if name != "tool_calls"}


def place_inputs(value: object, field: str) -> dict[str, Any]:
    """Return what the inputs of a record are: `input` with `parameters`, or `variables`.

    One text is the input; of several values, the one with a name by which an input is recognised; where there is
    none, all of them are variables. A list of messages is a conversation.

    Raises:
        BadRecordError: They are neither an object nor a text.
    """
    if not isinstance(value, Mapping):
        return conversation(value, field)
    values = {str(name): item for name, item in value.items() if item is not None}
    if len(values) == 1 and isinstance(next(iter(values.values())), str):
        return {"input": next(iter(values.values()))}
    names = {snake(name): name for name in reversed(values)}
    found = next((names[alias] for alias in ALIASES["input"] if alias in names), None)
    if found is not None and isinstance(values[found], str | int | float):
        return {
            "input": text_of(values[found], f"{field}.{found}"),
            "parameters": {name: item for name, item in values.items() if name != found},
        }
    if "messages" in values and isinstance(values["messages"], list):
        rest = {name: item for name, item in values.items() if name != "messages"}
        return conversation(values["messages"], f"{field}.messages") | {"parameters": rest}
    return {"variables": values}


def _expected_tool(item: object, field: str) -> dict[str, Any]:
    """Return an expected call of a tool as a plain record has it.

    Raises:
        BadRecordError: It names no tool.
    """
    if isinstance(item, str) and item.strip():
        return {"name": item.strip()}
    name, arguments, _ = _call(item, field)
    return {"name": name} if arguments is None else {"name": name, "arguments": arguments}


def called_tool(item: object, field: str) -> dict[str, Any]:
    """Return a recorded call of a tool as an answer has it.

    Raises:
        BadRecordError: It names no tool.
    """
    if isinstance(item, str) and item.strip():
        return {"name": item.strip()}
    name, arguments, result = _call(item, field)
    call = {"name": name, "arguments": arguments, "result": result}
    return {key: value for key, value in call.items() if value is not None}


def _call(item: object, field: str) -> tuple[str, dict[str, Any] | None, Any]:
    if not isinstance(item, Mapping):
        raise BadRecordError(f"must be a call of a tool: a name, or an object with one, not {shown(item)}", field)
    inner = item.get("function")
    call: Mapping[str, Any] = inner if isinstance(inner, Mapping) else item
    name = next((call[key] for key in _TOOL_NAMES if not is_blank(call.get(key))), None)
    if not isinstance(name, str) or not name.strip():
        raise BadRecordError(f"must name a tool, not {shown(name)}", f"{field}.name")
    key = next((key for key in _ARGUMENTS if not is_blank(call.get(key))), "")
    arguments = call.get(key) if key else None
    if isinstance(arguments, str):
        arguments = _object_in(arguments)
    if arguments is not None and not isinstance(arguments, dict):
        raise BadRecordError(f"must be an object, not {shown(call[key])}", f"{field}.{key}")
    return name.strip(), arguments, next((item[key] for key in _RESULTS if item.get(key) is not None), None)


def _object_in(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def retrieved_items(texts: Sequence[str], ids: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return recorded retrieved items of their contents and ids, either of which may be missing."""
    items: list[dict[str, Any]] = [{"content": text} for text in texts]
    if ids and len(ids) == len(texts):
        return [{"id": name} | item for name, item in zip(ids, items, strict=True)]
    return items or [{"id": name} for name in ids]


def answer_of(value: object, field: str, **beside: Any) -> dict[str, Any] | None:
    """Return a recorded answer; None where there is neither an answer nor anything beside it.

    Args:
        value: The answer's text, or an object with the fields of an answer.
        field: Where it stands.
        beside: Further fields of an answer; None and empty lists are left out.

    Raises:
        BadRecordError: It is no text.
    """
    found = {name: item for name, item in beside.items() if item is not None and item != []}
    if is_blank(value) and not found:
        return None
    if isinstance(value, Mapping):
        return {**found, **value}
    return {"text": "" if is_blank(value) else text_of(value, field)} | found


def recorded_in(value: object, field: str) -> dict[str, Any] | None:
    """Return the recorded answer of an output: a text, or an object of any shape with the text somewhere in it.

    Raises:
        BadRecordError: No text in it is clearly the answer's.
    """
    if not isinstance(value, Mapping):
        return answer_of(value, field)
    if isinstance(value.get("text"), str):
        return dict(value)
    texts = {name: item for name, item in value.items() if isinstance(item, str)}
    name = next((name for name in _ANSWERS if name in texts), None)
    if name is None and len(texts) == 1:
        name = next(iter(texts))
    if name is None:
        message = _last_message(value)
        if message is None:
            raise BadRecordError(
                f"must hold the answer's text under one of {', '.join(_ANSWERS)}, not {shown(value)}", field
            )
        return {"text": message, "output": dict(value)}
    return {"text": texts[name], "output": dict(value)} if len(value) > 1 else {"text": texts[name]}


def _last_message(value: Mapping[str, Any]) -> str | None:
    choices = value.get("choices")
    messages = (
        [item.get("message") for item in choices if isinstance(item, Mapping)] if isinstance(choices, list) else []
    )
    found = messages or value.get("messages")
    last = found[-1] if isinstance(found, list) and found else None
    content = last.get("content") if isinstance(last, Mapping) else None
    return content if isinstance(content, str) else None
