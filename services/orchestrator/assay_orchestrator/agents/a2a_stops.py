"""What a task of A2A that is input-required waits for, and the message that gives it the decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.model.approvals import Approval, approvals_to_json
from assay.model.interrupts import DecisionKind, Interrupt, InterruptKind, read_interrupts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.approvals import Decision

INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"

_APPROVED = "approved"


def stops_of(result: object, explanation: str) -> tuple[Interrupt, ...]:
    """Return what a result of SendMessage waits for; none where it is no task that is input-required.

    Args:
        result: With a message, or a task.
        explanation: What the agent says about it.

    Raises:
        MalformedAnswerError: The interrupts in its metadata have another shape.
    """
    task = result.get("task") if isinstance(result, dict) else None
    status = task.get("status") if isinstance(task, dict) else None
    if not isinstance(task, dict) or not isinstance(status, dict) or status.get("state") != INPUT_REQUIRED:
        return ()
    said = status.get("message")
    message = said if isinstance(said, dict) else {}
    for holder in (message, task):
        metadata = holder.get("metadata")
        if isinstance(metadata, dict) and metadata.get("interrupts"):
            agreed = read_interrupts(metadata["interrupts"], "interrupts")
            return tuple(interrupt for interrupt in agreed if not interrupt.decision)
    return (Interrupt(id=str(task.get("id") or ""), kind=InterruptKind.INPUT, message=explanation[:4000]),)


def answering_message(decisions: Sequence[tuple[Interrupt, Decision]]) -> dict[str, Any]:
    """Return parts and metadata of the message that gives a task its decisions, one part each.

    An agent that named its interrupts in the metadata finds the decisions there, in the form of `approvals`; any other
    reads the parts, as it would read those of a person.
    """
    agreed = [
        {"id": interrupt.id, **approvals_to_json([Approval(decision, interrupt.tool, 1)])[0]}
        for interrupt, decision in decisions
    ]
    return {"parts": [_part(decision) for _, decision in decisions], "metadata": {"decisions": agreed}}


def _part(decision: Decision) -> dict[str, Any]:
    match decision.kind:
        case DecisionKind.APPROVE:
            return {"text": _APPROVED}
        case DecisionKind.DENY:
            return {"text": decision.reason}
        case DecisionKind.EDIT:
            return {"data": decision.arguments}
    return {"text": decision.value} if isinstance(decision.value, str) else {"data": decision.value}
