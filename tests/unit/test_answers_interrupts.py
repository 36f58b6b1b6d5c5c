"""Answers of agents that wait for a person: their status and their interrupts, in JSON and on the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.docs.guides import blocks

from assay.agent.v1 import agent_pb2
from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    Interrupt,
    InterruptKind,
    MalformedAnswerError,
    response_from_json,
    response_to_json,
)
from assay.model.answers.interrupts import DecisionKind, is_waiting, waiting_text
from assay.wire.agent import plain_response, response_from_wire, response_to_wire

DELETE = Interrupt("c1", InterruptKind.APPROVAL, "delete", '{"id": 5}')
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
INTERRUPT = st.builds(
    Interrupt, TEXT, st.sampled_from(InterruptKind), TEXT, TEXT, TEXT, st.sampled_from(["", *DecisionKind])
)


@pytest.mark.parametrize(
    ("data", "interrupts"),
    [
        ({"status": "interrupted"}, (Interrupt(),)),
        ({"status": " Interrupted", "text": "Delete it?"}, (Interrupt(message="Delete it?"),)),
        ({"interrupts": ["Which order?"]}, (Interrupt(message="Which order?"),)),
        ({"interrupts": [{"id": "i", "value": "Which?"}]}, (Interrupt("i", message="Which?"),)),
        ({"interrupts": [{"value": {"ask": ["a", 1]}}]}, (Interrupt(message='{"ask": ["a", 1]}'),)),
        ({"interrupts": [{"id": "c1", "tool": "delete", "arguments": {"id": 5}}]}, (DELETE,)),
        ({"interrupts": [{"id": "c1", "name": "delete", "args": {"id": 5}}]}, (DELETE,)),
        ({"interrupts": [{"kind": "call", "tool": "pay"}]}, (Interrupt(kind=InterruptKind.CALL, tool="pay"),)),
        (
            {"status": "interrupted", "text": "And now?", "interrupts": [{"tool": "pay", "decision": "deny"}]},
            (Interrupt("", InterruptKind.APPROVAL, "pay", decision="deny"), Interrupt(message="And now?")),
        ),
    ],
)
def test_an_answer_that_waits(data: dict[str, Any], interrupts: tuple[Interrupt, ...]) -> None:
    """A status, or an interrupt without a decision, makes an answer interrupted and names what it waits for."""
    response = response_from_json(data)
    assert (response.status, response.interrupts) == (AgentStatus.INTERRUPTED, interrupts)
    assert response.is_failed
    assert response.error is None


def test_the_answer_of_the_guide_is_read() -> None:
    """Its only block that begins so is an answer that waits for an approval."""
    (written,) = (block.text for block in blocks("docs/spec.md", "json") if block.text.startswith('{"status": "interr'))
    (interrupt,) = response_from_json(json.loads(written)).interrupts
    assert (interrupt.kind, interrupt.tool) == (InterruptKind.APPROVAL, "refund")
    assert waiting_text([interrupt]) == 'waits for approval of refund({"amount": 5})'


def test_an_agent_that_went_on_has_answered() -> None:
    """Decided interrupts do not change the status; a failed agent stays failed."""
    decided = response_from_json({"text": "Done.", "interrupts": [{"tool": "delete", "decision": "approve"}]})
    assert (decided.status, decided.is_failed) == (AgentStatus.SUCCESS, False)
    failed = response_from_json({"error": "gone", "interrupts": ["Which order?"]})
    assert (failed.status, failed.is_failed) == (AgentStatus.ERROR, True)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"status": "success", "text": "t", "interrupts": ["?"]}, "status must be interrupted, not success"),
        ({"interrupts": 3}, "interrupts must be a list"),
        ({"interrupts": [{"message": ["?"]}]}, r"interrupts\[0\].message must be a string"),
        ({"interrupts": [3]}, r"interrupts\[0\] must be a mapping"),
        ({"interrupts": [{"kind": "pause"}]}, r"interrupts\[0\].kind must be approval, call or input, not 'pause'"),
        ({"interrupts": [{"decision": "yes"}]}, r"interrupts\[0\].decision must be approve, deny, edit or answer"),
        ({"status": "waiting"}, "status must be success, out_of_scope, error or interrupted"),
    ],
)
def test_other_shapes_are_refused(data: dict[str, Any], message: str) -> None:
    """A wrong interrupt is refused with its field."""
    with pytest.raises(MalformedAnswerError, match=message):
        response_from_json(data)


@given(st.lists(INTERRUPT, max_size=3).map(tuple))
def test_interrupts_survive_json_and_the_wire(interrupts: tuple[Interrupt, ...]) -> None:
    """JSON and wire lose nothing, and the interrupts decide the status."""
    status = AgentStatus.INTERRUPTED if is_waiting(interrupts) else AgentStatus.SUCCESS
    response = AgentResponse(status, "t", interrupts=interrupts)
    assert response_from_json(response_to_json(response)) == response
    assert response_from_wire(response_to_wire(response)) == response


def test_the_wire_may_leave_the_kind_out() -> None:
    """An interrupt without a kind is an approval where it names a tool; an answer that waits is never a plain one."""
    message = agent_pb2.AgentResponse(status=agent_pb2.AGENT_STATUS_INTERRUPTED)
    assert plain_response(message) is None
    message.interrupts.add(tool="delete")
    message.interrupts.add(message="Which?")
    kinds = [interrupt.kind for interrupt in response_from_wire(message).interrupts]
    assert kinds == [InterruptKind.APPROVAL, InterruptKind.INPUT]


@pytest.mark.parametrize(
    ("interrupts", "text"),
    [
        ((), ""),
        ((Interrupt("", InterruptKind.APPROVAL, "pay", decision="deny"),), ""),
        ((Interrupt(),), "waits for input"),
        ((DELETE,), 'waits for approval of delete({"id": 5})'),
        ((Interrupt(kind=InterruptKind.CALL, tool="pay"), DELETE),
         'waits for the result of pay(); approval of delete({"id": 5})'),
        ((Interrupt(message="Which order?"), Interrupt(message="Which order?")), "waits for input: Which order?"),
    ],
)  # fmt: skip
def test_what_an_agent_waits_for(interrupts: tuple[Interrupt, ...], text: str) -> None:
    """The clause names kind, tool, arguments and question once each."""
    assert waiting_text(interrupts) == text


def test_an_error_keeps_its_reason() -> None:
    """An error beside interrupts stays on both ways."""
    error = AgentError(AgentErrorKind.TIMEOUT, "late")
    response = AgentResponse(AgentStatus.ERROR, error=error, interrupts=(DELETE,))
    assert response_from_wire(response_to_wire(response_from_json(response_to_json(response)))) == response
