"""What a span is by the conventions for GenAI of OpenTelemetry, of old and new names, and by OpenInference."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.agent_host.traces.span import Span

_OPERATION, _OPENINFERENCE = "gen_ai.operation.name", "openinference.span.kind"
_MODEL_NAMES = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")


class SpanKind(Enum):
    """What a span is about, as far as answers are concerned."""

    MODEL = auto()
    TOOL = auto()
    RETRIEVAL = auto()
    EMBEDDING = auto()
    OTHER = auto()


_OPERATIONS = {
    "chat": SpanKind.MODEL,
    "generate_content": SpanKind.MODEL,
    "text_completion": SpanKind.MODEL,
    "execute_tool": SpanKind.TOOL,
    "retrieval": SpanKind.RETRIEVAL,
    "embeddings": SpanKind.EMBEDDING,
}
_OPENINFERENCE_KINDS = {
    "LLM": SpanKind.MODEL,
    "TOOL": SpanKind.TOOL,
    "RETRIEVER": SpanKind.RETRIEVAL,
    "EMBEDDING": SpanKind.EMBEDDING,
}


def kind_of_span(span: Span) -> SpanKind:
    """Return what a span is about.

    One that names no operation is a call of a tool or of a model by what it has, as instrumentations of older versions
    of the conventions write it.
    """
    attributes = span.attributes
    if (operation := text_at(span, _OPERATION)) != "":
        return _OPERATIONS.get(operation.lower(), SpanKind.OTHER)
    if (kind := text_at(span, _OPENINFERENCE)) != "":
        return _OPENINFERENCE_KINDS.get(kind.upper(), SpanKind.OTHER)
    if "gen_ai.tool.name" in attributes:
        return SpanKind.TOOL
    if "gen_ai.system" in attributes or any(name in attributes for name in _MODEL_NAMES):
        return SpanKind.MODEL
    return SpanKind.OTHER


def model_of_span(span: Span) -> str:
    """Return the model that a span names, the one that answered first; empty for none."""
    return text_at(span, *_MODEL_NAMES)


def text_at(span: Span, *names: str) -> str:
    """Return the first text among attributes; empty where there is none."""
    value = value_at(span, *names)
    return value if isinstance(value, str) else ""


def value_at(span: Span, *names: str) -> Any:
    """Return the first attribute that is there; None where there is none."""
    return next((span.attributes[name] for name in names if span.attributes.get(name) is not None), None)


def numbered(span: Span, prefix: str) -> list[dict[str, Any]]:
    """Return the entries of a list that OpenInference spreads over attributes, in their order.

    `PREFIX.0.document.id` and `PREFIX.0.document.score` are one entry, `{"document.id": …, "document.score": …}`.
    """
    entries: dict[int, dict[str, Any]] = {}
    for name, value in span.attributes.items():
        if not name.startswith(f"{prefix}."):
            continue
        number, _, rest = name[len(prefix) + 1 :].partition(".")
        if number.isascii() and number.isdigit() and len(number) < 10 and rest:
            entries.setdefault(int(number), {})[rest] = value
    return [entries[number] for number in sorted(entries)]
