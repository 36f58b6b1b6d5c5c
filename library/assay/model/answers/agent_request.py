"""Requests to agents; the names match `protos/assay/agent/v1/agent.proto`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.model.answers.approvals import Approval


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a conversation; `role` is system, user, assistant or tool."""

    role: str
    content: str
    name: str = ""
    tool_call_id: str = ""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """A question to an agent: one attempt at one turn of one repeat of one case.

    `str(request)` is its `input`.

    Args:
        request_id: Unique per case, turn, repeat and attempt.
        run_id: The run.
        case_id: The case.
        input: The user's text in this turn.
        repeat: The repeat of the case, from 1.
        turn_index: The turn, from 0.
        session_id: The same for all turns of one case and repeat.
        idempotency_key: The same for every attempt at this turn.
        history: Earlier messages, oldest first.
        variables: Template variables.
        parameters: Call parameters such as filters.
        metadata: Free labels of the case.
        timeout_s: The agent's timeout, in seconds.
        turn_count: Number of turns in the conversation, 1 for a single question; 0 if the client does not know it.
        traceparent: The parent of the agent's spans, in W3C Trace Context form. Set if the run reads the agent's
            `traces`, if the client traces its own calls, or if the orchestrator records spans; otherwise empty.
        approvals: Scripted decisions for when the agent stops for a person, tried in order.
    """

    request_id: str
    run_id: str
    case_id: str
    input: str
    repeat: int = 1
    turn_index: int = 0
    session_id: str = ""
    idempotency_key: str = ""
    history: tuple[Message, ...] = ()
    variables: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    timeout_s: float = 30.0
    turn_count: int = 0
    traceparent: str = ""
    approvals: tuple[Approval, ...] = ()

    # A request holds mappings, so it cannot be hashed. The TypeError must name the request, not a dict inside it.
    __hash__ = None  # type: ignore[assignment]  # as documented for classes that cannot be hashed

    def __str__(self) -> str:
        return self.input
