"""Tool calls in other tools' formats: expected calls and recorded ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.datasets.records import BadRecordError, shown
from assay.model.answers.response_names import call_parts


def expected_tool(item: object, field: str) -> dict[str, Any]:
    """Return an expected tool call for a plain record.

    Raises:
        BadRecordError: The item does not name a tool.
    """
    if isinstance(item, str) and item.strip():
        return {"name": item.strip()}
    name, arguments, _ = _call(item, field)
    return {"name": name} if arguments is None else {"name": name, "arguments": arguments}


def called_tool(item: object, field: str) -> dict[str, Any]:
    """Return a recorded tool call for an answer.

    Raises:
        BadRecordError: The item does not name a tool.
    """
    if isinstance(item, str) and item.strip():
        return {"name": item.strip()}
    name, arguments, result = _call(item, field)
    call = {"name": name, "arguments": arguments, "result": result}
    return {key: value for key, value in call.items() if value is not None}


def _call(item: object, field: str) -> tuple[str, dict[str, Any] | None, Any]:
    if not isinstance(item, Mapping):
        raise BadRecordError(f"must be a call of a tool: a name, or an object with one, not {shown(item)}", field)
    call = call_parts(item)
    if not isinstance(call.name, str) or not call.name.strip():
        raise BadRecordError(f"must name a tool, not {shown(call.name)}", f"{field}.name")
    if call.arguments is not None and not isinstance(call.arguments, dict):
        raise BadRecordError(f"must be an object, not {shown(call.arguments)}", f"{field}.{call.arguments_key}")
    return call.name.strip(), call.arguments, call.result
