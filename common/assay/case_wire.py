"""Cases: plain objects to protobuf messages and back, without loss."""

from __future__ import annotations

from assay.answers import json_text
from assay.cases import Assertion, Case, ExpectedTool, Turn
from assay.v1 import orchestrator_pb2
from assay.wire import (
    mapping_from_text,
    mapping_to_text,
    message_from_wire,
    message_to_wire,
    response_from_wire,
    response_to_wire,
    value_from_text,
)

__all__ = ["case_from_wire", "case_to_wire"]


def case_to_wire(case: Case) -> orchestrator_pb2.Case:
    """Return the message of a case."""
    message = orchestrator_pb2.Case(
        case_id=case.case_id,
        turns=[
            orchestrator_pb2.Turn(
                input=turn.input,
                history=[message_to_wire(item) for item in turn.history],
                references=turn.references,
                expected_sources=turn.expected_sources,
                expected_tools=[_expected_tool_to_wire(tool) for tool in turn.expected_tools],
            )
            for turn in case.turns
        ],
        variables_json=mapping_to_text(case.variables),
        parameters_json=mapping_to_text(case.parameters),
        contexts=case.contexts,
        choices=case.choices,
        category=case.category,
        tags=case.tags,
        expected_json=mapping_to_text(case.expected),
        assertions=[_assertion_to_wire(assertion) for assertion in case.assertions],
        thresholds=case.thresholds,
        weight=None if case.weight == 1.0 else case.weight,
        labels_json=mapping_to_text(case.labels),
        metadata_json=mapping_to_text(case.metadata),
    )
    if case.recorded is not None:
        message.recorded.CopyFrom(response_to_wire(case.recorded))
    return message


def case_from_wire(message: orchestrator_pb2.Case) -> Case:
    """Return a case.

    Raises:
        ValueError: A JSON text is not a JSON object.
    """
    return Case(
        case_id=message.case_id,
        turns=tuple(
            Turn(
                input=turn.input,
                history=tuple(message_from_wire(item) for item in turn.history),
                references=tuple(turn.references),
                expected_sources=tuple(turn.expected_sources),
                expected_tools=tuple(_expected_tool_from_wire(tool) for tool in turn.expected_tools),
            )
            for turn in message.turns
        ),
        variables=mapping_from_text(message.variables_json),
        parameters=mapping_from_text(message.parameters_json),
        contexts=tuple(message.contexts),
        choices=tuple(message.choices),
        category=message.category,
        tags=tuple(message.tags),
        expected=mapping_from_text(message.expected_json),
        assertions=tuple(_assertion_from_wire(assertion) for assertion in message.assertions),
        thresholds=dict(message.thresholds),
        weight=message.weight if message.HasField("weight") else 1.0,
        labels=mapping_from_text(message.labels_json),
        metadata=mapping_from_text(message.metadata_json),
        recorded=response_from_wire(message.recorded) if message.HasField("recorded") else None,
    )


def _expected_tool_to_wire(tool: ExpectedTool) -> orchestrator_pb2.ExpectedTool:
    arguments = "" if tool.arguments is None else json_text(tool.arguments, "arguments of an expected tool")
    return orchestrator_pb2.ExpectedTool(name=tool.name, arguments_json=arguments, match=tool.match)


def _expected_tool_from_wire(tool: orchestrator_pb2.ExpectedTool) -> ExpectedTool:
    arguments = mapping_from_text(tool.arguments_json) if tool.arguments_json else None
    return ExpectedTool(tool.name, arguments, tool.match or "name")


def _assertion_to_wire(assertion: Assertion) -> orchestrator_pb2.Assertion:
    return orchestrator_pb2.Assertion(
        type=assertion.type,
        value_json="" if assertion.value is None else json_text(assertion.value, "value of an assertion"),
        threshold=assertion.threshold,
        metric=assertion.metric,
        weight=None if assertion.weight == 1.0 else assertion.weight,
        negate=assertion.negate,
    )


def _assertion_from_wire(assertion: orchestrator_pb2.Assertion) -> Assertion:
    return Assertion(
        type=assertion.type,
        value=value_from_text(assertion.value_json) if assertion.value_json else None,
        threshold=assertion.threshold if assertion.HasField("threshold") else None,
        metric=assertion.metric,
        weight=assertion.weight if assertion.HasField("weight") else 1.0,
        negate=assertion.negate,
    )
