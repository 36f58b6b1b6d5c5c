"""What a task of A2A that is input-required waits for, and the message that gives it the decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.model.adk_events import Stop
from assay.model.approvals import Approval, approvals_to_json
from assay.model.interrupts import DecisionKind, Interrupt, InterruptKind, read_interrupts
from assay.model.response_fields import as_items

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.approvals import Decision

INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"

_APPROVED = "approved"
_ADK_TYPE, _ADK_CALL, _ADK_RESPONSE = "adk_type", "function_call", "function_response"


def stops_of(result: object, explanation: str) -> tuple[Interrupt, ...]:
    """Return what a result of SendMessage waits for; none where it is no task that is input-required.

    An agent of Google ADK names the calls that wait in the parts of its message. Any other may name its interrupts in
    the metadata, by agreement; else it waits for an answer to what it says.

    Args:
        result: With a message, or a task.
        explanation: What the agent says about it.

    Raises:
        MalformedAnswerError: The interrupts in its metadata have another shape.
    """
    task = _mapping(result, "task")
    status = _mapping(task, "status")
    if status.get("state") != INPUT_REQUIRED:
        return ()
    if calls := _adk_stops(result):
        return tuple(call.interrupt for call in calls)
    message = _mapping(status, "message")
    for holder in (message, task):
        if named := _mapping(holder, "metadata").get("interrupts"):
            agreed = read_interrupts(named, "interrupts")
            return tuple(interrupt for interrupt in agreed if not interrupt.decision)
    return (Interrupt(id=str(task.get("id") or ""), kind=InterruptKind.INPUT, message=explanation[:4000]),)


def answering_message(result: object, decisions: Sequence[tuple[Interrupt, Decision]]) -> dict[str, Any]:
    """Return parts and metadata of the message that gives a task its decisions, one part each.

    An agent that named its interrupts in the metadata finds the decisions there, in the form of `approvals`; any other
    reads the parts, as it would read those of a person.

    Args:
        result: Where it stopped.
        decisions: The interrupts of that, in the order of `stops_of`, and what is decided.

    Raises:
        NotImplementedError: The agent cannot do what is decided; the message says why.
    """
    if calls := _adk_stops(result):
        return {"parts": [_adk_part(call, decision) for call, (_, decision) in zip(calls, decisions, strict=True)]}
    agreed = [
        {"id": interrupt.id, **approvals_to_json([Approval(decision, interrupt.tool, 1)])[0]}
        for interrupt, decision in decisions
    ]
    return {"parts": [_part(decision) for _, decision in decisions], "metadata": {"decisions": agreed}}


def is_adk_call(part: Mapping[str, Any]) -> bool:
    """Return whether a part is a function call of Google ADK or a response to one, and no output of the agent."""
    return _mapping(part, "metadata").get(_ADK_TYPE) in (_ADK_CALL, _ADK_RESPONSE)


def _adk_stops(result: object) -> list[Stop]:
    """Return the function calls of Google ADK that wait for their response."""
    message = _mapping(_mapping(_mapping(result, "task"), "status"), "message")
    found = []
    for part in as_items(message.get("parts"), "parts"):
        metadata, call = _mapping(part, "metadata"), _mapping(part, "data")
        if metadata.get(_ADK_TYPE) == _ADK_CALL and metadata.get("adk_is_long_running") is True:
            found.append(Stop(str(call.get("id") or ""), str(call.get("name") or ""), _mapping(call, "args")))
    return found


def _adk_part(call: Stop, decision: Decision) -> dict[str, Any]:
    if call.edits(decision) is not None:
        raise NotImplementedError(
            f"approvals edit the arguments of {call.interrupt.tool}, and an ADK agent behind a server runs a call as "
            "it is: approve or deny it, or name the agent itself as the target"
        )
    response = {"id": call.id, "name": call.name, "response": call.response(decision)}
    return {"data": response, "metadata": {_ADK_TYPE: _ADK_RESPONSE}}


def _mapping(holder: object, name: str) -> dict[str, Any]:
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, dict) else {}


def _part(decision: Decision) -> dict[str, Any]:
    match decision.kind:
        case DecisionKind.APPROVE:
            return {"text": _APPROVED}
        case DecisionKind.DENY:
            return {"text": decision.reason}
        case DecisionKind.EDIT:
            return {"data": decision.arguments}
    return {"text": decision.value} if isinstance(decision.value, str) else {"data": decision.value}
