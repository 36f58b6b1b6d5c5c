"""Conversion of requests for Python metrics, and their outcomes, to protobuf messages and back."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from assay.model.answers.agent_response import AgentResponse, clean_text
from assay.model.answers.response_limits import MAX_TRACEBACK_CHARS
from assay.model.metric_call import (
    MALFORMED,
    MAX_MESSAGE_CHARS,
    MAX_REASONING_CHARS,
    RAISED,
    TIMEOUT,
    MetricOutcome,
    MetricRequest,
)
from assay.v1 import host_pb2 as pb
from assay.wire.agent import request_from_wire, request_to_wire, response_from_wire, response_to_wire
from assay.wire.case import case_from_wire, case_to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

_ERRORS = (RAISED, TIMEOUT, MALFORMED)


def metric_request_to_wire(request: MetricRequest) -> pb.MetricRequest:
    """Return the message for a request; parts that case and question share are only in the case."""
    last = request.case.turns[-1]
    question = dataclasses.replace(
        request.question,
        input="",
        variables={},
        parameters={},
        history=() if last.history else request.question.history,
    )
    return pb.MetricRequest(
        request_id=request.request_id,
        metrics=request.metrics,
        case=case_to_wire(dataclasses.replace(request.case.without_answers(), verdicts=())),
        question=request_to_wire(question),
        answer=response_to_wire(request.response),
    )


def metric_request_from_wire(message: pb.MetricRequest) -> MetricRequest:
    """Return the request in a message.

    Raises:
        ValueError: A JSON text in it is invalid.
        DatasetError: A part of the case cannot be read.
    """
    case = case_from_wire(message.case)
    last = case.turns[-1]
    question = request_from_wire(message.question)
    question = dataclasses.replace(
        question,
        input=last.input,
        variables=case.variables,
        parameters=case.parameters,
        history=last.history or question.history,
    )
    answer = response_from_wire(message.answer) if message.HasField("answer") else AgentResponse()
    return MetricRequest(message.request_id, tuple(message.metrics), case, question, answer)


def outcomes_to_wire(request_id: str, outcomes: Mapping[str, MetricOutcome]) -> pb.MetricResponse:
    """Return the message for functions' outcomes, by metric."""
    return pb.MetricResponse(
        request_id=request_id,
        outcomes=[pb.MetricOutcome(metric=name, **dataclasses.asdict(outcome)) for name, outcome in outcomes.items()],
    )


def outcomes_from_wire(message: pb.MetricResponse) -> dict[str, MetricOutcome]:
    """Return functions' outcomes by metric; an invalid outcome becomes an error, and long texts are cut."""
    return {outcome.metric: _outcome_from_wire(outcome) for outcome in message.outcomes}


def _outcome_from_wire(message: pb.MetricOutcome) -> MetricOutcome:
    if message.error:
        return MetricOutcome(
            error=message.error if message.error in _ERRORS else MALFORMED,
            message=clean_text(message.message[:MAX_MESSAGE_CHARS]),
            traceback=clean_text(message.traceback[:MAX_TRACEBACK_CHARS]),
        )
    value = message.value if message.HasField("value") else None
    if value is not None and not math.isfinite(value):
        return MetricOutcome(error=MALFORMED, message=f"the client sent the value {value}, which is not finite")
    return MetricOutcome(
        value=value,
        is_boolean=message.is_boolean and value in (0.0, 1.0),
        reasoning=clean_text(message.reasoning[:MAX_REASONING_CHARS]),
    )
