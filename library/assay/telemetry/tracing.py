"""Spans for OpenTelemetry, in traces that a client or this process began.

Only `tracing` imports `opentelemetry`; without it every function here returns at once. The provider belongs to this
process and is never the global one, which belongs to the user's code. Spans contain texts of neither users nor
exceptions. The environment variables are OpenTelemetry's: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER and the
others.
"""

from __future__ import annotations

import os
import random
import re
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from assay.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from contextvars import Token
    from typing import Protocol

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

    class Span(Protocol):
        """The current span."""

        def set(self, name: str, value: str | int | float | bool) -> None:
            """Set an attribute: an identifier, a count or a code, never a text of a user."""

        def fail(self, reason: str) -> None:
            """Mark the span as failed, with a stable one-word reason."""


TRACEPARENT = "traceparent"
"""The header, or the metadata of gRPC, of W3C Trace Context."""
_PARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = 1
_FLUSH_S = 5.0
RECORDED_READS = 1 / 100
"""The share of calls that only read, and belong to no trace, that are recorded where no sampler is set."""


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
    """The tracer of this process; like logging, there is one per process."""

    tracer: Tracer | None = None
    current_span: Callable[[], Any] = staticmethod(lambda: None)
    has_sampler = False


_process = _Process()
_NO_SPAN = _NoSpan()
_NOTHING: AbstractContextManager[Span] = nullcontext(_NO_SPAN)
_unrecorded: ContextVar[str] = ContextVar("traceparent of a trace that is not recorded", default="")
# Most cases of a run are in such a trace: the SDK takes several times as long to say so.


@contextmanager
def tracing(service: str, *, role: str = "") -> Iterator[None]:
    """Record spans inside the block; send the remaining spans at its end, for at most 5 s.

    Args:
        service: The name of the service, or `command`.
        role: The role of this process, if processes have different roles.
    """
    import threading  # imported here, as all that only recording needs

    from opentelemetry.trace import get_current_span

    _process.current_span = get_current_span
    provider = _provider(service, role)
    _process.tracer = provider.get_tracer("assay", __version__)
    _process.has_sampler = bool(os.environ.get("OTEL_TRACES_SAMPLER"))
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
    """Record a span around a block; an exception marks it as failed, with the exception's name.

    Args:
        name: The operation, without identifiers.
        kind: `internal`, `server` or `client`.
        parent: The traceparent of the parent span, empty for none; None for the current span.
        attributes: Identifiers, counts and codes.
    """
    tracer = _process.tracer
    if tracer is None or (parent is None and (_unrecorded.get() or (not _process.has_sampler and _is_unsampled()))):
        return _NOTHING
    return _recorded(tracer, name, kind, parent, attributes)


def _is_unsampled() -> bool:
    """Return whether the current span belongs to an unrecorded trace, whose later spans are not recorded either."""
    context = _process.current_span().get_span_context()
    return context.is_valid and not context.trace_flags & _SAMPLED


def has_span(parent: str, *, is_read: bool) -> bool:
    """Return whether a call that a server answers has a span, recorded or not.

    Unless the operator sets a sampler, only one in a hundred reading calls without a trace has a span: they are the
    most frequent and the least informative.

    Args:
        parent: The traceparent of the call; empty for none.
        is_read: Whether the method only reads.
    """
    return not is_read or parent != "" or _process.has_sampler or random.random() < RECORDED_READS  # noqa: S311


def server_span(name: str, *, parent: str) -> AbstractContextManager[Span]:
    """Record a span around a served call if its caller or the operator's sampler decides so.

    Args:
        name: The method.
        parent: The traceparent of the call; empty for none.
    """
    tracer = _process.tracer
    if tracer is None:
        return _NOTHING
    if parent and not _process.has_sampler:
        given = _PARENT.fullmatch(parent)
        if given is not None and not int(given[3], 16) & _SAMPLED:
            return _Unsampled(_unsampled_parent(parent))
    return _recorded(tracer, name, "server", parent, {"rpc.system": "grpc"})


def unsampled(parent: str) -> AbstractContextManager[Span]:
    """Return a context in which nothing is recorded, neither here nor in called services.

    Args:
        parent: The traceparent of the trace to continue without spans; empty for none.
    """
    return _NOTHING if _process.tracer is None else _Unsampled(_unsampled_parent(parent) or _new_parent())


class _Unsampled:
    """A block in a trace that is not recorded."""

    __slots__ = ("_parent", "_token")

    def __init__(self, parent: str) -> None:
        self._parent = parent

    def __enter__(self) -> _NoSpan:
        self._token: Token[str] = _unrecorded.set(self._parent)
        return _NO_SPAN

    def __exit__(self, *error: object) -> None:
        _unrecorded.reset(self._token)


def traceparent() -> str:
    """Return the current span in W3C Trace Context form; empty if there is none."""
    if _process.tracer is None:
        return ""
    if unrecorded := _unrecorded.get():
        return unrecorded
    context = _process.current_span().get_span_context()
    sampled = context.trace_flags & 1  # further flags say how the id was made
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{sampled:02x}" if context.is_valid else ""


def trace_id() -> str:
    """Return the id of the current trace, 32 hexadecimal digits; empty if there is none."""
    return traceparent()[3:35]


@contextmanager
def _recorded(
    tracer: Tracer, name: str, kind: str, parent: str | None, attributes: Mapping[str, str | int] | None
) -> Iterator[Span]:
    from opentelemetry.trace import SpanKind

    outside = _unrecorded.set("")  # a task keeps the context of the call that began it
    with tracer.start_as_current_span(
        name,
        context=None if parent is None else parent_context(parent),
        kind=SpanKind[kind.upper()],
        attributes=attributes,
        # An exception's text may hold anything.
        record_exception=False,
        set_status_on_exception=False,
    ) as recorded:
        real = _RealSpan(recorded)
        try:
            yield real
        except BaseException as problem:
            real.fail(type(problem).__name__)
            raise
        finally:
            _unrecorded.reset(outside)


def parent_context(parent: str) -> Context:
    """Return the context of a traceparent; one without a span if it is empty or malformed."""
    from opentelemetry.context import Context

    given = _PARENT.fullmatch(parent)
    if given is None:
        return Context()
    trace, above, flags = (int(part, 16) for part in given.groups())
    return _context_below(trace, above, flags & _SAMPLED)


@lru_cache(maxsize=256)
def _unsampled_parent(parent: str) -> str:
    """Return the traceparent that continues a trace without spans, as for cases of a run; empty for none."""
    return f"{parent[:-2]}00" if _PARENT.fullmatch(parent) else ""


def _new_parent() -> str:
    """Return the traceparent of a new, unrecorded trace; without one, called services would begin traces."""
    return f"00-{_random_bits(128) or 1:032x}-{_random_bits(64) or 1:016x}-00"  # 0 is no id


def _random_bits(count: int) -> int:
    return int.from_bytes(os.urandom(count // 8), "big")


def _context_below(trace: int, above: int, flags: int) -> Context:
    from opentelemetry.context import Context
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    root = SpanContext(trace, above, is_remote=True, trace_flags=TraceFlags(flags))
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
