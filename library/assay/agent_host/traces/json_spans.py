"""Parsing spans from JSON: OTLP's, as the collector's file exporter writes it, and the SDKs' console format."""

from __future__ import annotations

import contextlib
import math
from datetime import UTC, datetime, timedelta
from typing import Any

from assay.agent_host.traces.span import MAX_VALUE_DEPTH, MalformedSpanError, Span, is_read_event

_ERROR_CODES = (2, "STATUS_CODE_ERROR", "ERROR")
_PLAIN = {"stringValue": str, "boolValue": bool}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def spans_from_json(data: object) -> tuple[list[Span], int]:
    """Return the spans of a JSON object, and the number of malformed ones.

    Args:
        data: An export request, `{"resourceSpans": […]}`, or a span in the form of the Python SDK's
            `ReadableSpan.to_json`. Unknown fields are ignored.

    Raises:
        MalformedSpanError: It is neither.
    """
    if not isinstance(data, dict):
        raise MalformedSpanError("it is not a JSON object")
    if "context" in data:
        return [_sdk_span(data)], 0
    if "resourceSpans" not in data:
        raise MalformedSpanError("it has neither 'resourceSpans', as OTLP has, nor the 'context' of a span")
    spans, malformed = [], 0
    for resource in _items(data, "resourceSpans"):
        for scope in _items(resource, "scopeSpans"):
            for span in _items(scope, "spans"):
                try:
                    spans.append(_otlp_span(span))
                except MalformedSpanError:
                    malformed += 1
    return spans, malformed


def _otlp_span(data: object) -> Span:
    span = _mapping(data, "a span")
    return Span(
        trace_id=_id(span.get("traceId")),
        span_id=_id(span.get("spanId")),
        parent_id=_id(span.get("parentSpanId")),
        name=_text(span.get("name")),
        start_ns=_whole(span.get("startTimeUnixNano")),
        end_ns=_whole(span.get("endTimeUnixNano")),
        attributes=_pairs(span.get("attributes"), 0),
        is_error=_is_error(span, "code"),
        events=tuple(
            (event["name"], _pairs(event.get("attributes"), 0))
            for event in _list(span.get("events"), "events")
            if isinstance(event, dict) and is_read_event(event.get("name"))
        ),
    )


def _sdk_span(data: dict[str, Any]) -> Span:
    context = _mapping(data["context"], "its context")
    return Span(
        trace_id=_id(context.get("trace_id")),
        span_id=_id(context.get("span_id")),
        parent_id=_id(data.get("parent_id")),
        name=_text(data.get("name")),
        start_ns=_instant_ns(data.get("start_time")),
        end_ns=_instant_ns(data.get("end_time")),
        attributes=_shallow(_mapping(data.get("attributes") or {}, "its attributes"), 0),
        is_error=_is_error(data, "status_code"),
        events=tuple(
            (event["name"], _shallow(_mapping(event.get("attributes") or {}, "attributes of an event"), 0))
            for event in _list(data.get("events"), "events")
            if isinstance(event, dict) and is_read_event(event.get("name"))
        ),
    )


def _is_error(span: dict[str, Any], key: str) -> bool:
    status = span.get("status")
    return isinstance(status, dict) and status.get(key) in _ERROR_CODES


def _id(value: object) -> str:
    """Return an id; the zeros that some writers use for no parent become empty."""
    text = _text(value).lower().removeprefix("0x")
    return text if text.strip("0") else ""


def _text(value: object) -> str:
    if value is not None and not isinstance(value, str):
        raise MalformedSpanError("a name or an id is not a text")
    return value or ""


def _whole(value: object) -> int:
    """Return an integer, which protobuf's JSON writes as a text."""
    if value is None:
        return 0
    with contextlib.suppress(ValueError):
        if isinstance(value, str) and len(value) <= 20:
            value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise MalformedSpanError("a number is not an integer")
    if not -(2**63) <= value < 2**64:
        raise MalformedSpanError("a number has more than 64 bits")
    return value


def _instant_ns(value: object) -> int:
    text = _text(value)
    if not text:
        return 0
    try:
        return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1) * 1000
    except (ValueError, TypeError):
        raise MalformedSpanError("a time is not in ISO 8601 form with a time zone") from None


def _pairs(value: object, depth: int) -> dict[str, Any]:
    """Return attributes, which OTLP writes as a list of keys with values."""
    attributes = {}
    for pair in _list(value, "attributes"):
        fields = _mapping(pair, "an attribute")
        attributes[_text(fields.get("key"))] = _any_value(fields.get("value"), depth + 1)
    return attributes


def _any_value(value: object, depth: int) -> Any:
    if depth > MAX_VALUE_DEPTH:
        raise MalformedSpanError(f"an attribute is nested more than {MAX_VALUE_DEPTH} levels deep")
    if value is None:
        return None
    fields = _mapping(value, "the value of an attribute")
    for key, kind in _PLAIN.items():
        if isinstance(fields.get(key), kind):
            return fields[key]
    if "intValue" in fields:
        return _whole(fields["intValue"])
    if "doubleValue" in fields:
        return _float(fields["doubleValue"])
    if "arrayValue" in fields:
        array = _mapping(fields["arrayValue"], "an array")
        return [_any_value(item, depth + 1) for item in _list(array.get("values"), "an array")]
    if "kvlistValue" in fields:
        return _pairs(_mapping(fields["kvlistValue"], "a mapping").get("values"), depth + 1)
    return None


def _float(value: object) -> float | None:
    """Return a finite number; protobuf writes others as texts."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    with contextlib.suppress(OverflowError):
        if is_number and math.isfinite(value):  # type: ignore[arg-type]  # it is a number
            return float(value)  # type: ignore[arg-type]  # it is a number
    return None


def _shallow(value: Any, depth: int) -> Any:
    """Return a JSON value unless it is nested too deep."""
    if depth > MAX_VALUE_DEPTH:
        raise MalformedSpanError(f"an attribute is nested more than {MAX_VALUE_DEPTH} levels deep")
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _shallow(item, depth + 1)
    return value


def _items(holder: object, key: str) -> list[Any]:
    return _list(_mapping(holder, f"the holder of {key}").get(key), key)


def _list(value: object, subject: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise MalformedSpanError(f"{subject} is no list")
    return value or []


def _mapping(value: object, subject: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedSpanError(f"{subject} is no mapping")
    return value
