"""What the spans of a trace say about an answer: tool calls, sources, tokens and the model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.agent_host.traces.span_kinds import (
    SpanKind,
    kind_of_span,
    model_of_span,
    numbered,
    text_at,
    value_at,
)
from assay.agent_host.traces.trace_usage import usage_of_trace
from assay.model.agent_response import MalformedAnswerError, Source, ToolCall, Usage, clean_text, json_text
from assay.model.response_fields import json_value
from assay.model.response_names import call_parts, source_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.agent_host.traces.span import Span

_TOOL_NAMES = ("gen_ai.tool.name", "tool.name", "tool_call.function.name")
_TOOL_IDS = ("gen_ai.tool.call.id", "tool_call.id", "tool.id")
_ARGUMENTS = ("gen_ai.tool.call.arguments", "tool_arguments", "tool_call.function.arguments", "input.value")
_RESULTS = ("gen_ai.tool.call.result", "tool_response", "output.value")
_OPENLLMETRY = frozenset({"input_str", "inputs"})
_NO_TOOLS = ("", "(merged tools)")
"""Google ADK adds a span of this name to calls that it makes at once."""
_DOCUMENTS = "gen_ai.retrieval.documents"
_MAX_SOURCES = 10_000


@dataclass(frozen=True, slots=True)
class TraceContent:
    """What a trace says.

    Args:
        tool_calls: In the order they began.
        sources: By retrieval as they began, within each in rank order; a document that comes again is one.
        usage: The sum over the calls of models; None where there are none, or one has no counts.
        model: The model of the last call.
        problem: Why tokens are not known although models were called; otherwise empty.
    """

    tool_calls: tuple[ToolCall, ...] = ()
    sources: tuple[Source, ...] = ()
    usage: Usage | None = None
    model: str = ""
    problem: str = ""


def content_of_trace(spans: Sequence[Span]) -> TraceContent:
    """Return what the spans of a trace say.

    Args:
        spans: In the order they began.
    """
    kinds = {span.span_id: kind_of_span(span) for span in spans}
    models = [span for span in spans if kinds[span.span_id] is SpanKind.MODEL]
    tools = [span for span in spans if kinds[span.span_id] is SpanKind.TOOL]
    usage, problem = usage_of_trace(spans)
    return TraceContent(
        tool_calls=_executed_calls(tools) or _requested_calls(models),
        sources=_sources(span for span in spans if kinds[span.span_id] is SpanKind.RETRIEVAL),
        usage=usage,
        model=clean_text(next((name for span in reversed(models) if (name := model_of_span(span))), "")),
        problem=problem,
    )


def _executed_calls(tools: Sequence[Span]) -> tuple[ToolCall, ...]:
    """Return the calls that spans of tools are; two spans with one id are one call."""
    calls = []
    seen = set()
    for span in tools:
        call_id = text_at(span, *_TOOL_IDS)
        name = text_at(span, *_TOOL_NAMES) or span.name.removeprefix("execute_tool").strip()
        if name in _NO_TOOLS or (call_id and call_id in seen):
            continue
        seen.add(call_id)
        call = ToolCall(
            name=clean_text(name),
            id=clean_text(call_id),
            arguments_json=_as_json(_unwrapped(value_at(span, *_ARGUMENTS))),
            result_json=_as_json(value_at(span, *_RESULTS)),
            is_error=span.is_error or "error.type" in span.attributes,
            duration_ms=(span.end_ns - span.start_ns) / 1e6 if span.end_ns >= span.start_ns > 0 else None,
        )
        calls.append(call)
    return tuple(calls)


def _unwrapped(arguments: object) -> object:
    """Return the arguments of a call, without what OpenLLMetry writes around them for LangChain."""
    found = _parsed(arguments) if isinstance(arguments, str) else arguments
    if isinstance(found, dict) and found.keys() >= _OPENLLMETRY and isinstance(found["inputs"], dict):
        return found["inputs"]
    return arguments


def _requested_calls(models: Sequence[Span]) -> tuple[ToolCall, ...]:
    """Return the calls that models asked for, of agents whose tools have no spans."""
    calls: list[ToolCall] = []
    seen = set()
    for span in models:
        for call_id, name, arguments in (*_openinference_requests(span), *_genai_requests(span)):
            if name and not (call_id and call_id in seen):
                seen.add(call_id)
                calls.append(ToolCall(clean_text(name), clean_text(call_id), _as_json(arguments)))
    return tuple(calls)


def _openinference_requests(span: Span) -> list[tuple[str, str, Any]]:
    found = []
    for message in numbered(span, "llm.output_messages"):
        prefix = "message.tool_calls."
        fields: dict[int, dict[str, Any]] = {}
        for key, value in message.items():
            number, _, rest = key.removeprefix(prefix).partition(".")
            if key.startswith(prefix) and number.isascii() and number.isdigit() and len(number) < 10:
                fields.setdefault(int(number), {})[rest] = value
        for _, call in sorted(fields.items()):
            name = call.get("tool_call.function.name")
            found.append((_text(call.get("tool_call.id")), _text(name), call.get("tool_call.function.arguments")))
    return found


def _genai_requests(span: Span) -> list[tuple[str, str, Any]]:
    calls = [
        call_parts(part)
        for message in _objects(span.attributes.get("gen_ai.output.messages"))
        for part in _objects(message.get("parts"))
        if part.get("type") == "tool_call"
    ]
    return [(_text(call.id), _text(call.name), call.arguments) for call in calls]


def _sources(retrievals: Iterable[Span]) -> tuple[Source, ...]:
    found: dict[object, Source] = {}
    for span in retrievals:
        flat = [
            {key.removeprefix("document."): value for key, value in document.items()}
            for document in numbered(span, "retrieval.documents")
        ]
        for document in flat or _objects(span.attributes.get(_DOCUMENTS)):
            source = _source(document)
            found.setdefault(source.id or (source.uri, source.title, source.content), source)
    return tuple(found.values())[:_MAX_SOURCES]


def _source(document: Mapping[str, Any]) -> Source:
    metadata = document.get("metadata")
    if isinstance(metadata, str):
        metadata = _parsed(metadata)
    metadata = metadata if isinstance(metadata, dict) else {}
    parts = source_parts({**document, "metadata": metadata})
    return Source(
        id=clean_text(parts.id),
        title=clean_text(parts.title),
        uri=clean_text(parts.uri),
        content=clean_text(parts.content),
        score=parts.score,
        metadata=_plain_metadata(metadata),
    )


def _plain_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    try:
        found = json_value(metadata, "metadata")
    except MalformedAnswerError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str:
    """Return a text; a number, as ids may be, is written out."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return clean_text(value) if isinstance(value, str) else ""


def _as_json(value: object) -> str:
    """Return a value as the text of JSON: a text that is JSON as it is, any other as a string of JSON."""
    if value is None:
        return ""
    if isinstance(value, str) and _parsed(value) is not None:
        return clean_text(value)
    try:
        return json_text(value, "a value")
    except MalformedAnswerError:
        return json_text(repr(value), "a value")


def _objects(value: object) -> list[dict[str, Any]]:
    """Return the mappings of a list, which may be a text of JSON."""
    if isinstance(value, str):
        value = _parsed(value)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _parsed(text: str) -> Any:
    """Return what a text is as JSON; None where it is no JSON."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)
