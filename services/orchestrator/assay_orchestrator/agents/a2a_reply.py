"""Reads A2A messages and tasks as answers, and A2A errors as failures."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    MalformedAnswerError,
    clean_text,
    error_response,
    response_from_json,
)
from assay.model.answers.response_fields import as_items, shown
from assay.model.answers.response_limits import check_bounds
from assay.model.answers.response_text import find_text_key
from assay.parsing.names import kind_of
from assay_orchestrator.agents.a2a_adk import is_function_part, is_thought, tool_calls_of
from assay_orchestrator.agents.a2a_stops import INPUT_REQUIRED, stops_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.answers.interrupts import Interrupt

_STATE = "TASK_STATE_"
_COMPLETED = f"{_STATE}COMPLETED"
_FAILED = {
    f"{_STATE}FAILED": "the task failed",
    f"{_STATE}REJECTED": "the agent rejected the task",
    f"{_STATE}CANCELED": "the task was cancelled at the agent",
    f"{_STATE}AUTH_REQUIRED": "the agent needs further credentials: set them in agent.headers",
}
ENDED_STATES = frozenset({_COMPLETED, INPUT_REQUIRED, *_FAILED})
"""States in which no further work of the agent is expected."""

_BY_AGREEMENT = ("usage", "sources", "tool_calls", "model")
"""Fields of an answer that A2A does not define: they are read from the metadata of messages and tasks."""
_INTERNAL_ERROR, _NO_METHOD, _NO_VERSION = -32603, -32601, -32009


def state_of(task: Mapping[str, Any]) -> str:
    """Return the state of a task.

    Raises:
        MalformedAnswerError: It has none.
    """
    status = task.get("status")
    state = status.get("state") if isinstance(status, dict) else None
    if not isinstance(state, str) or not state.startswith(_STATE):
        raise MalformedAnswerError(f"the task has no state of A2A 1.0: {shown(state)}")
    return state


def waiting_for(result: Any) -> tuple[Interrupt, ...]:
    """Return the interrupts in a result of SendMessage; empty if it waits for nothing.

    Raises:
        MalformedAnswerError: Its interrupts cannot be read.
        AnswerTooLargeError: It exceeds the size of an answer.
    """
    check_bounds(result)
    return stops_of(result, _explanation(result["task"]) if _task_of(result) else "")


def task_id_of(result: Any) -> str:
    """Return the id of the task in a result of SendMessage; empty without one."""
    return str(_task_of(result).get("id") or "")


def response_from_result(result: Any, *, may_continue: bool) -> AgentResponse:
    """Return the answer in a result of SendMessage.

    Args:
        result: A message, or a task that expects no further work of the agent.
        may_continue: Whether the case has a further turn, which gives the agent the input it asks for.

    Raises:
        MalformedAnswerError: It is neither a message nor a task.
        AnswerTooLargeError: It exceeds the size of an answer.
    """
    check_bounds(result)
    if not isinstance(result, dict):
        raise MalformedAnswerError(f"the result must be an object with a message or a task, not {kind_of(result)}")
    message, task = result.get("message"), result.get("task")
    if isinstance(message, dict):
        return _answer(_found([message], message))
    if not isinstance(task, dict):
        raise MalformedAnswerError(f"the result has neither message nor task, but {', '.join(map(shown, result))}")
    state, status_message = state_of(task), task["status"].get("message")
    artifacts = task.get("artifacts")
    holders = [artifact for artifact in artifacts if isinstance(artifact, dict)] if isinstance(artifacts, list) else []
    fields = _found([*holders, *([status_message] if isinstance(status_message, dict) and not holders else [])], task)
    if "tool_calls" not in fields and (calls := tool_calls_of(task)):
        fields["tool_calls"] = calls
    if state == _COMPLETED:
        return _answer(fields)
    explanation = _explanation(task)
    if state == INPUT_REQUIRED and may_continue:
        return response_from_json(fields | {"text": explanation or fields["text"]})
    if state == INPUT_REQUIRED:
        return response_from_json(fields | {"status": AgentStatus.INTERRUPTED.value})
    why = f"{_FAILED[state]}{': ' + explanation if explanation else ''}"
    kind = state.removeprefix(_STATE).lower()
    return response_from_json(fields | {"error": {"message": why, "type": kind}})


def _answer(fields: dict[str, Any]) -> AgentResponse:
    """Return the answer of a finished agent; an empty answer is an error, as for a model."""
    response = response_from_json(fields)
    has_parts = response.output is not None or response.sources or response.tool_calls
    if response.text.strip() or has_parts or response.status is not AgentStatus.SUCCESS:
        return response
    error = AgentError(AgentErrorKind.RAISED, "the agent returned an empty answer", type="empty")
    return dataclasses.replace(response, status=AgentStatus.ERROR, error=error)


def failure_of(error: Any) -> AgentResponse:
    """Return the failed answer for a JSON-RPC error."""
    data = error if isinstance(error, dict) else {}
    code, message = data.get("code"), clean_text(str(data.get("message") or "(no explanation)"))
    hint = {
        _NO_METHOD: "; the agent may speak another version of A2A than 1.0",
        _NO_VERSION: "; the agent does not speak A2A 1.0",
    }.get(code if isinstance(code, int) else 0, "")
    explanation = f"the agent replied with error {shown(code)}: {message[:1000]}{hint}"
    return error_response(AgentErrorKind.RAISED, explanation, type=str(code)[:200], retryable=code == _INTERNAL_ERROR)


def _task_of(result: Any) -> dict[str, Any]:
    task = result.get("task") if isinstance(result, dict) else None
    return task if isinstance(task, dict) else {}


def _explanation(task: Mapping[str, Any]) -> str:
    """Return the text of a task's status."""
    status = task.get("status")
    message = status.get("message") if isinstance(status, dict) else None
    return str(_found([message], {})["text"]) if isinstance(message, dict) else ""


def _text_of(holder: Mapping[str, Any]) -> str:
    """Return the text of a message or an artifact.

    Parts that join with white space are pieces of one text, as an agent appends them while its model writes; others are
    separate texts.
    """
    parts = as_items(holder.get("parts"), "parts")
    texts = [part["text"] for part in parts if _is_text(part) and not is_thought(part)]
    are_pieces = any(before[-1:].isspace() or after[:1].isspace() for before, after in itertools.pairwise(texts))
    return ("" if are_pieces else "\n").join(texts)


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _found(holders: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an answer: texts are joined, the first structured part is its output."""
    parts = [part for holder in holders for part in as_items(holder.get("parts"), "parts") if isinstance(part, dict)]
    agreed: dict[str, Any] = {}
    for metadata in [part.get("metadata") for part in (result, *holders)]:
        if isinstance(metadata, dict):
            agreed = {name: metadata[name] for name in _BY_AGREEMENT if metadata.get(name) is not None} | agreed
    links = [{"uri": part["url"], "title": part.get("filename")} for part in parts if isinstance(part.get("url"), str)]
    ids = {"context_id": result.get("contextId"), "task_id": result.get("id")}
    output = next((part["data"] for part in parts if "data" in part and not is_function_part(part)), None)
    text = "\n".join(filter(None, map(_text_of, holders)))
    if not text and isinstance(output, dict) and (key := find_text_key(output)) is not None:
        text = str(output[key])
    thoughts = "".join(part["text"] for part in parts if _is_text(part) and is_thought(part))
    return {
        "text": text,
        "output": output,
        **({"thoughts": thoughts} if thoughts else {}),
        "sources": links or None,
        "metadata": {name: value for name, value in ids.items() if isinstance(value, str)},
        **agreed,
    }
