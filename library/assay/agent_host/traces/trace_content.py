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
        tool_calls=calls_of_trace(tools, models, {span.span_id: span.parent_id for span in spans}),
        sources=_sources(span for span in spans if kinds[span.span_id] is SpanKind.RETRIEVAL),
        usage=usage,
        model=clean_text(next((name for span in reversed(models) if (name := model_of_span(span))), "")),
        problem=problem,
    )


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
