"""Messages and tasks of A2A read as answers, and its errors as failures."""

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
    f"{_STATE}AUTH_REQUIRED": "the agent wants further credentials: give them with agent.headers",
}
ENDED_STATES = frozenset({_COMPLETED, INPUT_REQUIRED, *_FAILED})
"""States in which a task waits for nothing that the agent does."""

_BY_AGREEMENT = ("usage", "sources", "tool_calls", "model")
"""Fields of an answer that A2A has no place for: they are read from the metadata of messages and tasks."""
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
    """Return what a result of SendMessage waits for; none where it does not.

    Raises:
        MalformedAnswerError: Its interrupts cannot be read.
        AnswerTooLargeError: It is larger than an answer may be.
    """
    check_bounds(result)
    return stops_of(result, _explanation(result["task"]) if _task_of(result) else "")


def task_id_of(result: Any) -> str:
    """Return the id of the task that a result of SendMessage is; empty where it has none."""
    return str(_task_of(result).get("id") or "")


def response_from_result(result: Any, *, may_continue: bool) -> AgentResponse:
    """Return the answer that a result of SendMessage is.

    Args:
        result: A message, or a task that waits for nothing that the agent does.
        may_continue: Whether the case has a further turn, which gives the agent the input that it wants.

    Raises:
        MalformedAnswerError: It is neither.
        AnswerTooLargeError: It is larger than an answer may be.
    """
    check_bounds(result)
    if not isinstance(result, dict):
        raise MalformedAnswerError(f"the result must be an object with a message or a task, not {kind_of(result)}")
    message, task = result.get("message"), result.get("task")
    if isinstance(message, dict):
        return _answer(_found([message], message))
    if not isinstance(task, dict):
        raise MalformedAnswerError(f"the result has neither message nor task, but {', '.join(map(shown, result))}")
    state, said = state_of(task), task["status"].get("message")
    artifacts = task.get("artifacts")
    holders = [each for each in artifacts if isinstance(each, dict)] if isinstance(artifacts, list) else []
    found = _found([*holders, *([said] if isinstance(said, dict) and not holders else [])], task)
    if "tool_calls" not in found and (calls := tool_calls_of(task)):
        found["tool_calls"] = calls
    if state == _COMPLETED:
        return _answer(found)
    explanation = _explanation(task)
    if state == INPUT_REQUIRED and may_continue:
        return response_from_json(found | {"text": explanation or found["text"]})
    if state == INPUT_REQUIRED:
        return response_from_json(found | {"status": AgentStatus.INTERRUPTED.value})
    why = f"{_FAILED[state]}{': ' + explanation if explanation else ''}"
    kind = state.removeprefix(_STATE).lower()
    return response_from_json(found | {"error": {"message": why, "type": kind}})


def _answer(found: dict[str, Any]) -> AgentResponse:
    """Return the answer of an agent that has finished; one that says nothing is an error, as a model's is."""
    response = response_from_json(found)
    has_parts = response.output is not None or response.sources or response.tool_calls
    if response.text.strip() or has_parts or response.status is not AgentStatus.SUCCESS:
        return response
    error = AgentError(AgentErrorKind.RAISED, "the agent answered without a word", type="empty")
    return dataclasses.replace(response, status=AgentStatus.ERROR, error=error)


def failure_of(error: Any) -> AgentResponse:
    """Return the failed answer that an error of JSON-RPC is."""
    data = error if isinstance(error, dict) else {}
    code, message = data.get("code"), clean_text(str(data.get("message") or "(no explanation)"))
    hint = {
        _NO_METHOD: "; the agent may speak another version of A2A than 1.0",
        _NO_VERSION: "; the agent does not speak A2A 1.0",
    }.get(code if isinstance(code, int) else 0, "")
    said = f"the agent replied with error {shown(code)}: {message[:1000]}{hint}"
    return error_response(AgentErrorKind.RAISED, said, type=str(code)[:200], retryable=code == _INTERNAL_ERROR)


def _task_of(result: Any) -> dict[str, Any]:
    task = result.get("task") if isinstance(result, dict) else None
    return task if isinstance(task, dict) else {}


def _explanation(task: Mapping[str, Any]) -> str:
    """Return the text of a task's status."""
    status = task.get("status")
    said = status.get("message") if isinstance(status, dict) else None
    return str(_found([said], {})["text"]) if isinstance(said, dict) else ""


def _text_of(holder: Mapping[str, Any]) -> str:
    """Return the text of a message or an artifact.

    Parts that white space separates are pieces of one text, as an agent appends them while its model writes; others
    are texts of their own.
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
    metadata = [each.get("metadata") for each in (result, *holders)]
    agreed: dict[str, Any] = {}
    for each in metadata:
        if isinstance(each, dict):
            agreed = {name: each[name] for name in _BY_AGREEMENT if each.get(name) is not None} | agreed
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
