"""The contents of a trace for an answer: tool calls, sources, tokens and the model."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.agent_host.traces.span_kinds import (
    SpanKind,
    kind_of_span,
    model_of_span,
    numbered,
)
from assay.agent_host.traces.tool_spans import calls_of_trace
from assay.agent_host.traces.trace_usage import usage_of_trace
from assay.model.answers.agent_response import MalformedAnswerError, Source, ToolCall, Usage, clean_text
from assay.model.answers.response_fields import json_value
from assay.model.answers.response_names import source_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.agent_host.traces.span import Span

_DOCUMENTS = "gen_ai.retrieval.documents"
_MAX_SOURCES = 10_000


@dataclass(frozen=True, slots=True)
class TraceContent:
    """The contents of a trace.

    Args:
        tool_calls: Tool calls, in the order of their start.
        sources: Sources by start of retrieval, then by rank, without repeated documents.
        usage: The sum over model calls; None if there are none, or one lacks counts.
        model: The last call's model.
        problem: Why tokens are unknown although models were called; otherwise empty.
    """

    tool_calls: tuple[ToolCall, ...] = ()
    sources: tuple[Source, ...] = ()
    usage: Usage | None = None
    model: str = ""
    problem: str = ""


def content_of_trace(spans: Sequence[Span]) -> TraceContent:
    """Return the contents of a trace's spans.

    Args:
        spans: The spans, in the order of their start.
    """
    kinds = {span.span_id: kind_of_span(span) for span in spans}
    models = [span for span in spans if kinds[span.span_id] is SpanKind.MODEL]
    tools = [span for span in spans if kinds[span.span_id] is SpanKind.TOOL]
    usage, problem = usage_of_trace(spans)
    return TraceContent(
        tool_calls=calls_of_trace(tools, models, {span.span_id: span.parent_id for span in spans}),
        sources=_sources(span for span in spans if kinds[span.span_id] is SpanKind.RETRIEVAL),
        usage=usage,
        model=clean_text(next((name for span in reversed(models) if (name := model_of_span(span))), "")),
        problem=problem,
    )


def _sources(retrievals: Iterable[Span]) -> tuple[Source, ...]:
    sources: dict[object, Source] = {}
    for span in retrievals:
        flat = [
            {key.removeprefix("document."): value for key, value in document.items()}
            for document in numbered(span, "retrieval.documents")
        ]
        for document in flat or _objects(span.attributes.get(_DOCUMENTS)):
            source = _source(document)
            sources.setdefault(source.id or (source.uri, source.title, source.content), source)
    return tuple(sources.values())[:_MAX_SOURCES]


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
        plain = json_value(metadata, "metadata")
    except MalformedAnswerError:
        return {}
    return plain if isinstance(plain, dict) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    """Return the mappings in a list, which may be JSON text."""
    if isinstance(value, str):
        value = _parsed(value)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _parsed(text: str) -> Any:
    """Return a text parsed as JSON; None if it is not JSON."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)
