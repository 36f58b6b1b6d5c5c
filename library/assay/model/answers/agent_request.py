"""What an agent is asked, as plain objects; the names are those of `protos/assay/v1/agent.proto`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.model.answers.approvals import Approval


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; `role` is system, user, assistant or tool."""

    role: str
    content: str
    name: str = ""
    tool_call_id: str = ""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One question to an agent: one attempt at one turn of one repeat of one case.

    `str(request)` is its `input`.

    Args:
        request_id: Unique per case, turn, repeat and attempt.
        run_id: The run that asks.
        case_id: The case that is asked.
        input: This turn's text from the user.
        repeat_index: Which repeat of the case, from 0.
        turn_index: Which turn, from 0.
        session_id: The same for all turns of one case and repeat.
        idempotency_key: The same for every attempt at this turn.
        history: Earlier messages, oldest first.
        variables: Template variables.
        parameters: Call parameters such as filters.
        metadata: Free labels of the case.
        timeout_s: How long the agent may take, in seconds.
        turn_count: How many turns the conversation has, 1 for a single question; 0 where the caller does not say.
        traceparent: The parent of the agent's spans, in the form of W3C Trace Context, where the agent's `traces` are
            read, by a client that makes a trace of its own, or where the orchestrator records spans; otherwise empty.
        approvals: What is decided where the agent stops to wait for a person, in the order in which items are tried.
    """

    request_id: str
    run_id: str
    case_id: str
    input: str
    repeat_index: int = 0
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

    # A request has mappings in it, so it is no key: the error of a lookup must name the request, not a dict in it.
    __hash__ = None  # type: ignore[assignment]  # as documented for classes that cannot be hashed

    def __str__(self) -> str:
        return self.input
