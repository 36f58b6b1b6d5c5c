"""Spans for OpenTelemetry: what a process did for a trace that a client, or it itself, began.

`opentelemetry` is imported by `tracing` alone; without it every function here returns at once. The provider is this
process's own and never the global one, which belongs to the user's code. Spans have neither texts of users nor those of
exceptions. Names of variables are OpenTelemetry's: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER and the rest.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from assay.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from typing import Protocol

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

    class Span(Protocol):
        """One span, as the code inside it may complete it."""

        def set(self, name: str, value: str | int | float | bool) -> None:
            """Set an attribute: an identifier, a count or a code, never a text of a user."""

        def fail(self, reason: str) -> None:
            """Mark it as failed, for a reason that is one stable word."""


TRACEPARENT = "traceparent"
"""The header, or the metadata of gRPC, of W3C Trace Context."""
_PARENT = r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})"
_FLUSH_S = 5.0


class _NoSpan:
    def set(self, name: str, value: object) -> None:
        pass

    def fail(self, reason: str) -> None:
        pass


class _RealSpan:
    def __init__(self, span: Any) -> None:
        self._span = span

    def set(self, name: str, value: str | int | float | bool) -> None:
        self._span.set_attribute(name, value)

    def fail(self, reason: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_status(Status(StatusCode.ERROR, reason))


class _Process:
    """What this process traces with; like logging, one for a process."""

    tracer: Tracer | None = None


_process = _Process()
_NOTHING: AbstractContextManager[Span] = nullcontext(_NoSpan())


@contextmanager
def tracing(service: str, *, role: str = "") -> Iterator[None]:
    """Record spans inside the block and send what is left of them at its end, for 5 s at most.

    Args:
        service: The name of the service, or `command`.
        role: What this process does of it, where processes differ.
    """
    import threading  # imported here, as all that only recording needs

    provider = _provider(service, role)
    _process.tracer = provider.get_tracer("assay", __version__)
    try:
        yield
    finally:
        _process.tracer = None
        # A thread that nothing waits for at the end: a collector that does not answer must not hold the process.
        ending = threading.Thread(target=provider.shutdown, daemon=True, name="send spans")
        ending.start()
        ending.join(_FLUSH_S)


def is_tracing() -> bool:
    """Return whether spans are recorded."""
    return _process.tracer is not None


def span(
    name: str, *, kind: str = "internal", parent: str | None = None, attributes: Mapping[str, str | int] | None = None
) -> AbstractContextManager[Span]:
    """Record a span around a block; one that raises has failed, by the name of its exception.

    Args:
        name: What is done, without identifiers.
        kind: `internal`, `server` or `client`.
        parent: The traceparent of the span above it, empty for none; None for the present span.
        attributes: Identifiers, counts and codes.
    """
    tracer = _process.tracer
    return _NOTHING if tracer is None else _recorded(tracer, name, kind, parent, attributes)


@contextmanager
def unsampled(parent: str) -> Iterator[None]:
    """Record nothing inside the block, here and where the trace goes from here.

    Args:
        parent: The traceparent of the trace that is continued without its spans; empty for none.
    """
    if _process.tracer is None:
        yield
        return
    from opentelemetry import context

    # A span without a parent would be recorded.
    known = parent if re.fullmatch(_PARENT, parent) else f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-00"
    token = context.attach(parent_context(f"{known[:-2]}00"))
    try:
        yield
    finally:
        context.detach(token)


def traceparent() -> str:
    """Return the present span in the form of W3C Trace Context; empty where there is none."""
    if _process.tracer is None:
        return ""
    from opentelemetry.trace import get_current_span

    found = get_current_span().get_span_context()
    sampled = found.trace_flags & 1  # further flags say how the id was made
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{sampled:02x}" if found.is_valid else ""


def trace_id() -> str:
    """Return the id of the present trace, 32 hexadecimal digits; empty where there is none."""
    return traceparent()[3:35]


@contextmanager
def _recorded(
    tracer: Tracer, name: str, kind: str, parent: str | None, attributes: Mapping[str, str | int] | None
) -> Iterator[Span]:
    from opentelemetry.trace import SpanKind

    with tracer.start_as_current_span(
        name,
        context=None if parent is None else parent_context(parent),
        kind=SpanKind[kind.upper()],
        attributes=attributes,
        # An exception's text may hold anything.
        record_exception=False,
        set_status_on_exception=False,
    ) as found:
        real = _RealSpan(found)
        try:
            yield real
        except BaseException as problem:
            real.fail(type(problem).__name__)
            raise


def parent_context(parent: str) -> Context:
    """Return the context below a traceparent; that of no span where it is empty or malformed."""
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    given = re.fullmatch(_PARENT, parent)
    if given is None:
        return Context()
    trace, above, flags = (int(part, 16) for part in given.groups())
    root = SpanContext(trace, above, is_remote=True, trace_flags=TraceFlags(flags & TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(root), Context())


def _provider(service: str, role: str) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = {"service.version": __version__} | ({"assay.role": role} if role else {})
    if not os.environ.get("OTEL_SERVICE_NAME"):
        named["service.name"] = f"assay-{service}"
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
