"""The interrupts of an input-required A2A task, and the message that answers them with decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.model.answers.approvals import Approval, approvals_to_json
from assay.model.answers.interrupts import DecisionKind, Interrupt, InterruptKind, read_interrupts
from assay_orchestrator.agents.a2a_adk import response_part, waiting_calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.answers.approvals import Decision

INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"

_APPROVED = "approved"


def stops_of(result: object, explanation: str) -> tuple[Interrupt, ...]:
    """Return the interrupts in a result of SendMessage; empty unless it is an input-required task.

    An agent of Google ADK names waiting calls in the parts of its message. Any other agent may name its interrupts in
    the metadata, by agreement; otherwise it waits for an answer to its message.

    Args:
        result: A result with a message or a task.
        explanation: The agent's own explanation.

    Raises:
        MalformedAnswerError: The interrupts in its metadata have another shape.
    """
    task = _mapping(result, "task")
    status = _mapping(task, "status")
    if status.get("state") != INPUT_REQUIRED:
        return ()
    message = _mapping(status, "message")
    if calls := waiting_calls(message):
        return tuple(call.interrupt for call in calls)
    for holder in (message, task):
        if named := _mapping(holder, "metadata").get("interrupts"):
            agreed = read_interrupts(named, "interrupts")
            if waiting := tuple(interrupt for interrupt in agreed if not interrupt.decision):
                return waiting
    return (Interrupt(id=str(task.get("id") or ""), kind=InterruptKind.INPUT, message=explanation[:4000]),)


def answering_message(result: object, decisions: Sequence[tuple[Interrupt, Decision]]) -> dict[str, Any]:
    """Return parts and metadata of the message that gives a task its decisions, one part each.

    An agent that named its interrupts in the metadata reads the decisions there, in the form of `approvals`; any other
    reads the parts, as if a person had written them.

    Args:
        result: The result with the interrupts.
        decisions: The interrupts in the order of `stops_of`, with their decisions.

    Raises:
        UnusableDecisionError: The agent cannot carry out a decision; the message says why.
    """
    if calls := waiting_calls(_mapping(_mapping(_mapping(result, "task"), "status"), "message")):
        return {"parts": [response_part(call, decision) for call, (_, decision) in zip(calls, decisions, strict=True)]}
    agreed = [
        {"id": interrupt.id, **approvals_to_json([Approval(decision, interrupt.tool, 1)])[0]}
        for interrupt, decision in decisions
    ]
    return {"parts": [_part(decision) for _, decision in decisions], "metadata": {"decisions": agreed}}


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
