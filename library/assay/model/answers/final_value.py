"""Turning an agent's final value into its answer, in process and over the wire."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import AgentResponse, AgentStatus, MalformedAnswerError, response_from_json
from assay.model.answers.response_text import find_text_key

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIELDS = ("status", "sql", "data_rows", "sources", "retrieved", "events", "retrieved_items")
_READ = ("text", "output", "status", "error", "sql", "data_rows", "sources", "retrieved", "interrupts")


def with_value(value: Any, trace: AgentResponse) -> AgentResponse:
    """Return the answer for an agent's final value.

    A text becomes the answer's text. Any other value becomes structured output; from a mapping the text, `status`,
    `sql`, `data_rows`, `sources` and `retrieved` are taken as from any answer. A value without a text is written as
    JSON.

    Args:
        value: A JSON value.
        trace: The rest of the answer: tool calls, usage, model.
    """
    if isinstance(value, str):
        return dataclasses.replace(trace, text=value)
    if not isinstance(value, dict):
        return dataclasses.replace(trace, text=json.dumps(value, ensure_ascii=False), output=value)
    key = find_text_key(value)
    content = value[key] if key is not None else None
    text = str(content) if isinstance(content, str | bool | int | float) else json.dumps(value, ensure_ascii=False)
    read = response_from_json({"text": text, "output": value, **_answer_fields(value)})
    fields = {name: getattr(read, name) for name in _READ if getattr(read, name) not in (None, "", ())}
    return dataclasses.replace(trace, **fields)


def _answer_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of a typed output that an answer also has, if readable; the output's type is the user's own."""
    fields: dict[str, Any] = {}
    for name in _FIELDS:
        if data.get(name) is not None:
            try:
                response_from_json({"text": "", name: data[name]})
            except MalformedAnswerError:
                continue
            fields[name] = data[name]
    if fields.get("status") == AgentStatus.ERROR and isinstance(data.get("error"), str):
        fields["error"] = data["error"]
    return fields
