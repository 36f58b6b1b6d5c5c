"""Parsing spans from OTLP's binary encoding; needs the extra `otel`."""

from __future__ import annotations

import importlib.util
import math
from typing import TYPE_CHECKING, Any

from assay.agent_host.traces.span import MAX_VALUE_DEPTH, MalformedSpanError, Span, is_read_event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage

_ERROR_CODE = 2


def is_installed() -> bool:
    """Return whether the OTLP messages are installed."""
    try:
        return importlib.util.find_spec("opentelemetry.proto.collector.trace.v1") is not None
    except ImportError:
        return False


def spans_from_protobuf(body: bytes) -> tuple[list[Span], int]:
    """Return the spans of an `ExportTraceServiceRequest`, and the number of malformed ones.

    Raises:
        MalformedSpanError: The body is not such a message.
    """
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError:
        raise MalformedSpanError("it is not a protobuf ExportTraceServiceRequest") from None
    spans, malformed = [], 0
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for message in scope.spans:
                try:
                    spans.append(_span(message))
                except MalformedSpanError:
                    malformed += 1
    return spans, malformed


def partial_success(rejected: int, message: str) -> bytes:
    """Return the reply to an export with rejected spans; empty fields make an empty reply."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
        ExportTracePartialSuccess,
        ExportTraceServiceResponse,
    )

    partial = ExportTracePartialSuccess(rejected_spans=rejected, error_message=message) if rejected else None
    reply: bytes = ExportTraceServiceResponse(partial_success=partial).SerializeToString()
    return reply


def _span(message: SpanMessage) -> Span:
    return Span(
        trace_id=message.trace_id.hex(),
        span_id=message.span_id.hex(),
        parent_id=message.parent_span_id.hex() if any(message.parent_span_id) else "",
        name=message.name,
        start_ns=message.start_time_unix_nano,
        end_ns=message.end_time_unix_nano,
        attributes=_pairs(message.attributes, 0),
        is_error=message.status.code == _ERROR_CODE,
        events=tuple(
            (event.name, _pairs(event.attributes, 0)) for event in message.events if is_read_event(event.name)
        ),
    )


def _pairs(pairs: Iterable[KeyValue], depth: int) -> dict[str, Any]:
    return {pair.key: _value(pair.value, depth + 1) for pair in pairs}


def _value(value: AnyValue, depth: int) -> Any:
    if depth > MAX_VALUE_DEPTH:
        raise MalformedSpanError(f"an attribute is nested more than {MAX_VALUE_DEPTH} levels deep")
    match value.WhichOneof("value"):
        case "array_value":
            return [_value(item, depth + 1) for item in value.array_value.values]
        case "kvlist_value":
            return _pairs(value.kvlist_value.values, depth + 1)
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value if math.isfinite(value.double_value) else None
        case _:
            return None  # bytes, which no convention uses, and values of later versions
