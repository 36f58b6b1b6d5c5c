"""Conversion of questions and answers to protobuf messages and back, without loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from assay.agent.v1 import agent_pb2
from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentRequest,
    AgentResponse,
    AgentStatus,
    Attempt,
    Interrupt,
    InterruptKind,
    Message,
    Source,
    ToolCall,
    Usage,
    json_text,
)
from assay.model.answers.approvals import Approval, Decision
from assay.model.answers.interrupts import DecisionKind
from assay.wire.converter import EnumConverter
from assay.wire.json_text import mapping_from_text, mapping_to_text, value_from_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.message import Message as Protobuf

_MAX_BATCH_BYTES = 2 * 1024 * 1024

STATUSES = EnumConverter(AgentStatus, agent_pb2.AgentStatus, unknown=AgentStatus.SUCCESS)
_KINDS = EnumConverter(AgentErrorKind, agent_pb2.AgentErrorKind, unknown=AgentErrorKind.RAISED)
_INTERRUPT_KINDS = EnumConverter(InterruptKind, agent_pb2.InterruptKind, unknown=None)
_USAGE_FIELDS = ("input_tokens", "output_tokens", "total_tokens", "cache_read_tokens", "cache_write_tokens",
                 "reasoning_tokens", "requests", "cost_usd")  # fmt: skip
_PLAIN_FIELDS = frozenset({"request_id", "status", "text", "latency_ms"})
_OPTIONAL_FIELDS: tuple[
    Literal["sql", "data_rows", "latency_ms", "reported_latency_ms", "time_to_first_token_ms"], ...
] = ("sql", "data_rows", "latency_ms", "reported_latency_ms", "time_to_first_token_ms")


def request_to_wire(request: AgentRequest) -> agent_pb2.AgentRequest:
    """Return the message for a question."""
    return agent_pb2.AgentRequest(
        request_id=request.request_id,
        run_id=request.run_id,
        case_id=request.case_id,
        repeat=request.repeat,
        turn_index=request.turn_index,
        session_id=request.session_id,
        idempotency_key=request.idempotency_key,
        input=request.input,
        history=[message_to_wire(message) for message in request.history],
        variables_json=mapping_to_text(request.variables),
        parameters_json=mapping_to_text(request.parameters),
        metadata=request.metadata,
        timeout_ms=max(1, round(request.timeout_s * 1000)),  # agents take 0 for no limit
        turn_count=request.turn_count,
        traceparent=request.traceparent,
        approvals=[approval_to_wire(approval) for approval in request.approvals],
    )


def request_from_wire(request: agent_pb2.AgentRequest) -> AgentRequest:
    """Return the question in a message.

    Raises:
        ValueError: A JSON text is not a JSON object, or an approval has no decision.
    """
    return AgentRequest(
        request_id=request.request_id,
        run_id=request.run_id,
        case_id=request.case_id,
        input=request.input,
        repeat=request.repeat,
        turn_index=request.turn_index,
        session_id=request.session_id,
        idempotency_key=request.idempotency_key,
        history=tuple(message_from_wire(message) for message in request.history),
        variables=mapping_from_text(request.variables_json),
        parameters=mapping_from_text(request.parameters_json),
        metadata=dict(request.metadata),
        timeout_s=request.timeout_ms / 1000,
        turn_count=request.turn_count,
        traceparent=request.traceparent,
        approvals=tuple(approval_from_wire(approval) for approval in request.approvals),
    )


def response_to_wire(response: AgentResponse) -> agent_pb2.AgentResponse:
    """Return the message for an answer; the caller sets its request_id.

    Raises:
        MalformedAnswerError: The answer's output or metadata cannot be written as JSON.
    """
    message = agent_pb2.AgentResponse(
        status=STATUSES.to_wire(response.status),
        text=response.text,
        sql=response.sql,
        data_rows=response.data_rows,
        latency_ms=response.latency_ms,
        reported_latency_ms=response.reported_latency_ms,
        time_to_first_token_ms=response.time_to_first_token_ms,
        finish_reason=response.finish_reason,
        model=response.model,
        cold=response.cold,
        thoughts=response.thoughts,
    )
    if response.error is not None:
        message.error.CopyFrom(_error_to_wire(response.error))
    if response.output is not None:
        message.output_json = json_text(response.output, "output")
    if response.metadata:
        message.metadata_json = json_text(response.metadata, "metadata")
    if response.tool_calls is not None:
        message.reports_tool_calls = True  # an empty list looks like an absent one
        message.tool_calls.extend(_tool_call_to_wire(call) for call in response.tool_calls)
    if response.sources:
        message.sources.extend(_source_to_wire(source) for source in response.sources)
    if response.retrieved is not None:
        items = [_source_to_wire(source) for source in response.retrieved]
        message.retrieved.CopyFrom(agent_pb2.RetrievedItems(items=items))
    if response.usage is not None:
        usage = {name: getattr(response.usage, name) for name in _USAGE_FIELDS}
        message.usage.CopyFrom(agent_pb2.Usage(**usage))
    message.interrupts.extend(_interrupt_to_wire(interrupt) for interrupt in response.interrupts)
    for attempt in response.attempts:
        message.attempts.add(latency_ms=attempt.latency_ms, error=_error_to_wire(attempt.error))
    return message


def plain_response(message: agent_pb2.AgentResponse) -> AgentResponse | None:
    """Return an answer that consists only of a text and its time, or None for any other.

    Most answers are of this kind, and they have no part that could be malformed.
    """
    if not _PLAIN_FIELDS.issuperset({field.name for field, _ in message.ListFields()}) or "\0" in message.text:
        return None
    status = STATUSES.from_wire(message.status)
    if status.is_failed or not 0 <= message.latency_ms < math.inf:
        return None
    latency_ms = message.latency_ms if message.HasField("latency_ms") else None
    return AgentResponse(status=status, text=message.text, latency_ms=latency_ms)


def response_from_wire(message: agent_pb2.AgentResponse) -> AgentResponse:
    """Return the answer in a message.

    Raises:
        ValueError: A JSON text is invalid, or is not a required JSON object.
    """
    optional: dict[str, Any] = {name: getattr(message, name) for name in _OPTIONAL_FIELDS if message.HasField(name)}
    return AgentResponse(
        status=STATUSES.from_wire(message.status),
        text=message.text,
        error=_error_from_wire(message.error) if message.HasField("error") else None,
        output=value_from_text(message.output_json) if message.output_json else None,
        tool_calls=tuple(_tool_call_from_wire(call) for call in message.tool_calls)
        if message.tool_calls or message.reports_tool_calls
        else None,
        sources=tuple(_source_from_wire(source) for source in message.sources),
        retrieved=tuple(_source_from_wire(source) for source in message.retrieved.items)
        if message.HasField("retrieved")
        else None,
        usage=_usage_from_wire(message.usage) if message.HasField("usage") else None,
        finish_reason=message.finish_reason,
        model=message.model,
        attempts=tuple(Attempt(attempt.latency_ms, _error_from_wire(attempt.error)) for attempt in message.attempts),
        metadata=mapping_from_text(message.metadata_json),
        cold=message.cold,
        thoughts=message.thoughts,
        interrupts=tuple(_interrupt_from_wire(interrupt) for interrupt in message.interrupts),
        **optional,
    )


_M = TypeVar("_M", bound="Protobuf")


def split_by_size(messages: Iterable[_M], max_bytes: int = _MAX_BATCH_BYTES) -> Iterator[list[_M]]:
    """Yield the messages in order, in lists that each fit in a message; a larger one is alone in its list."""
    batch: list[_M] = []
    size = 0
    for message in messages:
        own = message.ByteSize()
        if batch and size + own > max_bytes:
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += own
    if batch:
        yield batch


def message_to_wire(message: Message) -> agent_pb2.Message:
    """Return the message for a message of a conversation."""
    return agent_pb2.Message(
        role=message.role, content=message.content, name=message.name, tool_call_id=message.tool_call_id
    )


def message_from_wire(message: agent_pb2.Message) -> Message:
    """Return the conversation's message in a protobuf message."""
    return Message(message.role, message.content, message.name, message.tool_call_id)


def approval_to_wire(approval: Approval) -> agent_pb2.Approval:
    """Return the message for a scripted decision."""
    message = agent_pb2.Approval(tool=approval.tool, times=approval.times or 0)
    decision = approval.decision
    match decision.kind:
        case DecisionKind.APPROVE:
            message.approve = True
        case DecisionKind.DENY:
            message.deny = decision.reason
        case DecisionKind.EDIT:
            message.edit_json = json_text(decision.arguments, "edit")
        case DecisionKind.ANSWER:
            message.answer_json = json_text(decision.value, "answer")
    return message


def approval_from_wire(message: agent_pb2.Approval) -> Approval:
    """Return the scripted decision in a message.

    Raises:
        ValueError: It has no decision, or a JSON text is invalid or not a required JSON object.
    """
    match message.WhichOneof("decision"):
        case "approve":
            decision = Decision(DecisionKind.APPROVE)
        case "deny":
            decision = Decision(DecisionKind.DENY, reason=message.deny)
        case "edit_json":
            decision = Decision(DecisionKind.EDIT, arguments=mapping_from_text(message.edit_json))
        case "answer_json":
            decision = Decision(DecisionKind.ANSWER, value=value_from_text(message.answer_json))
        case _:
            raise ValueError("an approval decides nothing")
    return Approval(decision, message.tool, message.times or None)


def _error_to_wire(error: AgentError) -> agent_pb2.AgentError:
    return agent_pb2.AgentError(
        kind=_KINDS.to_wire(error.kind),
        message=error.message,
        type=error.type,
        http_status=error.http_status,
        retryable=error.retryable,
        traceback=error.traceback,
    )


def _error_from_wire(error: agent_pb2.AgentError) -> AgentError:
    return AgentError(
        kind=_KINDS.from_wire(error.kind),
        message=error.message,
        type=error.type,
        http_status=error.http_status if error.HasField("http_status") else None,
        retryable=error.retryable,
        traceback=error.traceback,
    )


def _tool_call_to_wire(call: ToolCall) -> agent_pb2.ToolCall:
    return agent_pb2.ToolCall(
        id=call.id,
        name=call.name,
        arguments_json=call.arguments_json,
        result_json=call.result_json,
        is_error=call.is_error,
        duration_ms=call.duration_ms,
    )


def _tool_call_from_wire(call: agent_pb2.ToolCall) -> ToolCall:
    return ToolCall(
        name=call.name,
        id=call.id,
        arguments_json=call.arguments_json,
        result_json=call.result_json,
        is_error=call.is_error,
        duration_ms=call.duration_ms if call.HasField("duration_ms") else None,
    )


def _interrupt_to_wire(interrupt: Interrupt) -> agent_pb2.Interrupt:
    return agent_pb2.Interrupt(
        id=interrupt.id,
        kind=_INTERRUPT_KINDS.to_wire(interrupt.kind),
        tool=interrupt.tool,
        arguments_json=interrupt.arguments_json,
        message=interrupt.message,
        decision=interrupt.decision,
    )


def _interrupt_from_wire(interrupt: agent_pb2.Interrupt) -> Interrupt:
    kind = _INTERRUPT_KINDS.from_wire(interrupt.kind)
    return Interrupt(
        id=interrupt.id,
        kind=kind or (InterruptKind.APPROVAL if interrupt.tool else InterruptKind.INPUT),
        tool=interrupt.tool,
        arguments_json=interrupt.arguments_json,
        message=interrupt.message,
        decision=interrupt.decision,
    )


def _source_to_wire(source: Source) -> agent_pb2.Source:
    return agent_pb2.Source(
        id=source.id,
        title=source.title,
        uri=source.uri,
        content=source.content,
        score=source.score,
        metadata_json=json_text(source.metadata, "metadata of a source") if source.metadata else "",
    )


def _source_from_wire(source: agent_pb2.Source) -> Source:
    return Source(
        id=source.id,
        title=source.title,
        uri=source.uri,
        content=source.content,
        score=source.score if source.HasField("score") else None,
        metadata=mapping_from_text(source.metadata_json),
    )


def _usage_from_wire(usage: agent_pb2.Usage) -> Usage:
    return Usage(**{name: getattr(usage, name) for name in _USAGE_FIELDS if usage.HasField(name)})  # type: ignore[arg-type]  # each field is optional
