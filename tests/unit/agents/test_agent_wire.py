"""What a sender that does not keep to the contract cannot do to the next message."""

from __future__ import annotations

import pytest

from assay.model.answers.agent_response import AgentResponse, MalformedAnswerError
from assay.v1 import agent_pb2, orchestrator_pb2
from assay.wire.agent import response_to_wire, split_by_size
from assay.wire.case import case_from_wire, case_to_wire


@pytest.mark.parametrize("output", [float("nan"), {"a": [float("inf")]}, {"a": object()}])
def test_what_json_cannot_hold_is_refused(output: object) -> None:
    """NaN, infinity and foreign objects in an answer's output are an error that names the field."""
    with pytest.raises(MalformedAnswerError, match="output"):
        response_to_wire(AgentResponse(output=output))


def test_half_a_character_in_json_does_not_break_the_next_message() -> None:
    r"""An escape such as \ud800 is valid JSON text but no valid text: it is replaced on its way in."""
    case = case_from_wire(orchestrator_pb2.Case(case_id="c", variables_json=r'{"a": "x\ud800y", "b": "\ud83d\ude00"}'))
    assert case.variables == {"a": "x\ufffdy", "b": "\U0001f600"}
    assert case_from_wire(case_to_wire(case)) == case


def test_batches_keep_order_and_size() -> None:
    """Messages are split so that each list fits; one that is too large comes alone."""
    messages = [agent_pb2.AgentResponse(text="x" * size) for size in (40, 40, 40, 500, 10)]
    batches = [[len(message.text) for message in batch] for batch in split_by_size(messages, 100)]
    assert batches == [[40, 40], [40], [500], [10]]
