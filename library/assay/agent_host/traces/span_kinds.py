"""The kind of a span by the GenAI conventions of OpenTelemetry, old and new, of OpenInference and of other tracers."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.agent_host.traces.span import Span

_MODEL_NAMES = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name")
_OTHER_MODEL_NAMES = ("ai.response.model", "ai.model.id", "langfuse.observation.model.name")


class SpanKind(Enum):
    """The kind of a span, as far as answers are concerned."""

    MODEL = auto()
    TOOL = auto()
    RETRIEVAL = auto()
    EMBEDDING = auto()
    OTHER = auto()


_MODEL, _TOOL, _RETRIEVAL, _EMBEDDING = SpanKind.MODEL, SpanKind.TOOL, SpanKind.RETRIEVAL, SpanKind.EMBEDDING
_KINDS: Mapping[str, Mapping[str, SpanKind]] = {
    "gen_ai.operation.name": {
        "chat": _MODEL, "generate_content": _MODEL, "text_completion": _MODEL, "execute_tool": _TOOL,
        "retrieval": _RETRIEVAL, "embeddings": _EMBEDDING,
    },
    "openinference.span.kind": {"llm": _MODEL, "tool": _TOOL, "retriever": _RETRIEVAL, "embedding": _EMBEDDING},
    "traceloop.span.kind": {"tool": _TOOL},
    "ai.operationId": {
        "ai.toolcall": _TOOL, "ai.generatetext.dogenerate": _MODEL, "ai.streamtext.dostream": _MODEL,
        "ai.generateobject.dogenerate": _MODEL, "ai.streamobject.dostream": _MODEL, "ai.embed.doembed": _EMBEDDING,
        "ai.embedmany.doembed": _EMBEDDING,
    },
    "langfuse.observation.type": {
        "generation": _MODEL, "tool": _TOOL, "retriever": _RETRIEVAL, "embedding": _EMBEDDING,
    },
    "mlflow.spanType": {
        "llm": _MODEL, "chat_model": _MODEL, "tool": _TOOL, "retriever": _RETRIEVAL, "embedding": _EMBEDDING,
    },
    "langsmith.span.kind": {"llm": _MODEL, "tool": _TOOL, "retriever": _RETRIEVAL, "embedding": _EMBEDDING},
    "genkit:metadata:subtype": {"model": _MODEL, "tool": _TOOL, "retriever": _RETRIEVAL, "embedder": _EMBEDDING},
    "mcp.method.name": {"tools/call": _TOOL},
}  # fmt: skip
"""The meanings of values, by attribute; any other value, such as an agent or a workflow, is OTHER."""


def kind_of_span(span: Span) -> SpanKind:
    """Return the kind of a span.

    A span without an operation is a tool or model call by its other attributes, as instrumentations for older versions
    of the conventions write it.
    """
    attributes = span.attributes
    for name, kinds in _KINDS.items():
        if (word := text_at(attributes, name)) != "":
            return kinds.get(word.strip('"').lower(), SpanKind.OTHER)  # MLflow writes JSON
    if "gen_ai.tool.name" in attributes:
        return SpanKind.TOOL
    if "gen_ai.system" in attributes or any(name in attributes for name in _MODEL_NAMES):
        return SpanKind.MODEL
    return SpanKind.OTHER


def model_of_span(span: Span) -> str:
    """Return the model in a span, preferably the model that answered; empty for none."""
    return text_at(span.attributes, *_MODEL_NAMES, *_OTHER_MODEL_NAMES)


def text_at(attributes: Mapping[str, Any], *names: str) -> str:
    """Return the first text among attributes; empty if there is none."""
    value = value_at(attributes, *names)
    return value if isinstance(value, str) else ""


def value_at(attributes: Mapping[str, Any], *names: str) -> Any:
    """Return the first attribute that is present; None if there is none."""
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)


def numbered(span: Span, prefix: str) -> list[dict[str, Any]]:
    """Return the entries of a list that OpenInference spreads over attributes, in order.

    `PREFIX.0.document.id` and `PREFIX.0.document.score` make up `{"document.id": …, "document.score": …}`.
    """
    entries: dict[int, dict[str, Any]] = {}
    for name, value in span.attributes.items():
        if not name.startswith(f"{prefix}."):
            continue
        number, _, rest = name[len(prefix) + 1 :].partition(".")
        if number.isascii() and number.isdigit() and len(number) < 10 and rest:
            entries.setdefault(int(number), {})[rest] = value
    return [entries[number] for number in sorted(entries)]
