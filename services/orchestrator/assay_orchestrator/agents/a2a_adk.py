"""Function calls of Google ADK in A2A messages: waiting calls, their responses, and the tools that an agent called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.agent_host.failures import UnusableDecisionError
from assay.model.answers.adk_events import Stop
from assay.model.answers.agent_response import response_to_json
from assay.model.answers.response_fields import as_items
from assay_orchestrator.agents.adk_events import trace_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.model.answers.approvals import Decision

_TYPE, _CALL, _RESPONSE = "adk_type", "function_call", "function_response"
_CONFIRMATION = "adk_request_confirmation"


def is_function_part(part: Mapping[str, Any]) -> bool:
    """Return whether a part is a function call or its response, not output of the agent."""
    return _type_of(part) in (_CALL, _RESPONSE)


def is_thought(part: Mapping[str, Any]) -> bool:
    """Return whether a part is a thought of the model, not text of the answer."""
    return _mapping(part, "metadata").get("adk_thought") is True


def waiting_calls(message: Mapping[str, Any]) -> list[Stop]:
    """Return the function calls of a message that wait for a response."""
    return [
        Stop(str(call.get("id") or ""), str(call.get("name") or ""), _mapping(call, "args"))
        for part, call in _functions(message, _CALL)
        if _mapping(part, "metadata").get("adk_is_long_running") is True
    ]


def response_part(call: Stop, decision: Decision) -> dict[str, Any]:
    """Return the message part with the response to a call.

    Raises:
        UnusableDecisionError: The agent cannot carry out the decision; the message says why.
    """
    if call.edits(decision) is not None:
        raise UnusableDecisionError(
            f"approvals edit the arguments of {call.interrupt.tool}, and an ADK agent behind a server runs a call as "
            "it is: approve or deny it, or name the agent itself as the target"
        )
    response = {"id": call.id, "name": call.name, "response": call.response(decision)}
    return {"data": response, "metadata": {_TYPE: _RESPONSE}}


def tool_calls_of(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls of an agent since the last question in a task's history, in the form of an answer in JSON."""
    turn: list[Mapping[str, Any]] = []
    for message in filter(lambda item: isinstance(item, dict), as_items(task.get("history"), "history")):
        is_question = message.get("role") == "ROLE_USER" and not list(_functions(message, _RESPONSE))
        turn = [] if is_question else [*turn, message]
    calls: list[dict[str, Any]] = response_to_json(trace_of(list(_events(turn)), {}))["tool_calls"]
    return calls


def _events(messages: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield messages as ADK events, each once; a placeholder before a call's confirmation is not its response."""
    seen: set[Any] = set()
    for index, message in enumerate(messages):
        if message.get("messageId") in seen:
            continue  # the server repeats the interrupt of a task
        seen.add(message.get("messageId"))
        calls = [{"functionCall": call} for _, call in _functions(message, _CALL)]
        returned = [{"functionResponse": data} for _, data in _functions(message, _RESPONSE)]
        unconfirmed: dict[str, Any] = {call_id: {} for call_id in _confirmed_later(messages, index)}
        yield {"content": {"parts": [*calls, *returned]}, "actions": {"requestedToolConfirmations": unconfirmed}}


def _confirmed_later(messages: Sequence[Mapping[str, Any]], index: int) -> Iterator[str]:
    """Yield the ids of the calls whose confirmation was requested but had not arrived at a message."""
    last = next((at for at in range(index, len(messages)) if messages[at].get("role") == "ROLE_USER"), len(messages))
    first = next((at for at in range(index, 0, -1) if messages[at - 1].get("role") == "ROLE_USER"), 0)
    for message in messages[first:last]:
        for _, call in _functions(message, _CALL):
            if call.get("name") == _CONFIRMATION:
                yield str(_mapping(_mapping(call, "args"), "originalFunctionCall").get("id"))


def _functions(message: Mapping[str, Any], kind: str) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
    """Yield the parts of a message that are function calls, or responses, with their data."""
    for part in as_items(message.get("parts"), "parts"):
        if isinstance(part, dict) and _type_of(part) == kind:
            yield part, _mapping(part, "data")


def _type_of(part: Mapping[str, Any]) -> object:
    return _mapping(part, "metadata").get(_TYPE)


def _mapping(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}
