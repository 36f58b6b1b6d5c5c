"""Calls of tools, as the tools write them: those that are due, and those that were made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from assay.datasets.fields import is_blank
from assay.datasets.records import BadRecordError, shown

_TOOL_NAMES = ("name", "tool_name", "toolName")
_ARGUMENTS = ("arguments", "args", "input_parameters", "inputParameters", "tool_input", "toolInput", "input")
PLAIN_CALL = {*_TOOL_NAMES, *_ARGUMENTS, "id", "type", "function"}
_RESULTS = ("output", "result", "tool_output", "toolOutput", "response")


def expected_tool(item: object, field: str) -> dict[str, Any]:
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
