"""ADK's eval sets, its older eval files, and its test files, which each hold one conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.datasets.fields.aliases import is_blank
from assay.datasets.foreign.parts import Parts, listed, text_of
from assay.datasets.records import BadRecordError, shown

NAME = "adk"

FIELDS = {"id": "eval_id | name | the file's name", "turns": "conversation | data | the file's list"}
"""The format's own field names, by canonical field."""

_TURN_MARKS = {
    "expected_tool_use", "expected_intermediate_agent_responses", "expected_intermediate_agent_response",
}  # fmt: skip
_SET_MARKS = {"conversation_scenario", "eval_set_id", "eval_cases"}
_RECORDED_WITH = ("invocation_id", "creation_timestamp")


def matches(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Return whether a record is a case of an eval set or eval file, or a turn of a test file.

    Args:
        record: The record by snake-case names.
        keys: Its field names.
    """
    conversation, data = record.get("conversation"), record.get("data")
    return bool(
        keys & _SET_MARKS
        or _any_has(conversation, "user_content", "userContent")
        or ("name" in keys and _any_has(data, "query"))
        or ("query" in keys and keys & _TURN_MARKS)
    )


def _any_has(items: object, *names: str) -> bool:
    return isinstance(items, list) and any(
        isinstance(item, Mapping) and any(name in item for name in names) for item in items
    )


def may_be_turns(records: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether records hold only fields that a turn of a test file may hold too.

    Args:
        records: Records by snake-case names.
    """
    return bool(records) and all(record.keys() == {"query", "reference"} for record in records)


def is_turn(record: Mapping[str, Any]) -> bool:
    """Return whether a record is a turn of the conversation in a test file."""
    parts = Parts(record)
    return parts.has("query") and not parts.has("data", "conversation")


def convert(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record of a case.

    Raises:
        BadRecordError: The record cannot be read.
    """
    parts = Parts(record)
    if is_turn(record):
        return joined([record], "")
    parts.refuse("conversation_scenario", why="lets a model play the user, which is not done: write the turns out")
    parts.refuse("eval_cases", why="is a whole eval set: use it as the file, not as a record")
    if parts.has("data"):
        return _old_case(parts)
    field = parts.name("conversation")
    turns = parts.take("conversation")
    if not isinstance(turns, list) or not turns:
        raise BadRecordError(f"must be a list of turns, not {shown(turns)}", field)
    session = parts.mapping("session_input")
    expected: dict[str, Any] = {
        name: value for name in ("final_session_state", "rubrics") if not is_blank(value := parts.take(name))
    }
    read = [_turn(turn, f"{field}[{index}]") for index, turn in enumerate(turns)]
    kept = [rest for _, rest in read]
    if any(kept):
        expected["turns"] = kept
    plain: dict[str, Any] = {
        "id": parts.take("eval_id"),
        "turns": [turn for turn, _ in read],
        "parameters": _state(session),
        "expected": expected,
    }
    return parts.finish(plain, {"session_input": session} if session else None)


def _turn(turn: object, field: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the plain turn, and the recorded events between question and answer."""
    if not isinstance(turn, Mapping):
        raise BadRecordError(f"must be a turn with user_content, not {shown(turn)}", field)
    parts = Parts(turn)
    between = parts.mapping("intermediate_data")
    inner = Parts(between)
    if not inner.has("tool_uses"):
        between["tool_uses"] = _events_calls(inner.take("invocation_events"))
        inner = Parts(between)
    final = parts.take("final_response")
    answer = "" if final is None else _content_text(final, f"{field}.{parts.name('final_response')}")
    plain = {
        "input": _content_text(parts.take("user_content"), f"{field}.{parts.name('user_content')}"),
        "references": [answer] if answer else [],
        "expected_tools": _exact(inner.tools("tool_uses", where=f"{field}.{parts.name('intermediate_data')}.")),
    }
    for name in _RECORDED_WITH:
        parts.take(name)
    return {name: value for name, value in plain.items() if value or name == "input"}, inner.rest() | parts.rest()


def _exact(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return expected calls compared as ADK does: by name and exact arguments, none meaning no arguments."""
    return [{"arguments": {}, **tool, "match": "exact"} for tool in tools]


def _content_text(content: object, field: str) -> str:
    """Return the joined text of a content's parts, without the model's thoughts."""
    if isinstance(content, str):
        return content
    parts = content.get("parts") if isinstance(content, Mapping) else None
    if not isinstance(parts, list):
        raise BadRecordError(f"must be a content with parts, not {shown(content)}", field)
    texts = []
    for index, part in enumerate(parts):
        if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
            if isinstance(part, Mapping) and not {key for key, value in part.items() if value is not None} - {
                "thought"
            }:
                continue
            raise BadRecordError(f"must be a part with text, not {shown(part)}", f"{field}.parts[{index}]")
        if not part.get("thought"):
            texts.append(part["text"])
    return "".join(texts)


def _events_calls(events: object) -> list[Any]:
    """Return the tool calls in recorded events, in order."""
    calls = []
    for event in listed(events):
        content = event.get("content") if isinstance(event, Mapping) else None
        for part in listed(content.get("parts")) if isinstance(content, Mapping) else []:
            call = (part.get("function_call") or part.get("functionCall")) if isinstance(part, Mapping) else None
            if call:
                calls.append(call)
    return calls


def _state(session: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a session's initial state, which the agent starts from."""
    state = session.get("state")
    return {"state": state} if state else {}


def _old_case(parts: Parts) -> dict[str, Any]:
    field = parts.name("data")
    session = parts.mapping("initial_session")
    plain = joined(listed(parts.take("data")), parts.take("name"), field)
    plain |= {"parameters": _state(session)}
    return parts.finish(plain, {"initial_session": session} if session else None)


def joined(turns: Sequence[object], name: object, field: str = "") -> dict[str, Any]:
    """Return the plain record of a conversation.

    Args:
        turns: Records of its turns.
        name: Its id; empty to derive one.
        field: The path of the turns.

    Raises:
        BadRecordError: A turn cannot be read.
    """
    if not turns:
        raise BadRecordError("holds no turns", field)
    read, kept = [], []
    for index, turn in enumerate(turns):
        place = f"{field}[{index}]"
        if not isinstance(turn, Mapping) or is_blank(turn.get("query")):
            raise BadRecordError(f"must be a turn with a query, not {shown(turn)}", place)
        parts = Parts(turn)
        plain = {
            "input": text_of(parts.take("query"), f"{place}.query"),
            "references": parts.texts("reference"),
            "expected_tools": _exact(parts.tools("expected_tool_use", where=f"{place}.")),
        }
        read.append({key: value for key, value in plain.items() if value})
        kept.append(parts.rest())
    return {"id": name, "turns": read, "expected": {"turns": kept} if any(kept) else {}}
