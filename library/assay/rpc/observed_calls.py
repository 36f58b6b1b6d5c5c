"""Metrics of calls by method: number, status codes, durations and concurrency."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from assay.rpc.methods import MethodRule
from assay.telemetry.instruments import FAST_S, Counter, Gauge, Histogram, is_exporting
from assay.telemetry.tracing import TRACEPARENT, is_tracing, server_span

if TYPE_CHECKING:
    from assay.telemetry.instruments import Series

CALLS = Counter("assay_rpc_calls_total", "Calls of a method that have ended, by their status code", ("method", "code"))
DURATIONS = Histogram(
    "assay_rpc_duration_seconds",
    "Duration of calls with one request and one answer",
    ("method",),
    buckets=(*FAST_S, 30.0, 60.0, 120.0),
)
IN_FLIGHT = Gauge("assay_rpc_calls_in_flight", "Calls of a method that run now, streams included", ("method",))

Answer = Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Any]]


class ObservedMethod:
    """The instruments of one method, looked up once.

    Args:
        method: The full name, "/package.Service/Method".
        rule: The rule of the method.

    Attributes:
        has_spans: Whether its calls may have spans.
    """

    def __init__(self, method: str, rule: MethodRule) -> None:
        self._name = method.rpartition(".")[2]
        # Messages of a stream belong to many traces: what answers them has a span for each.
        self.has_spans = is_tracing() and not rule.server_streams and not method.startswith("/grpc.")
        self._running = 0
        # A number that the scrape reads: a gauge takes a lock each time that it rises or falls.
        IN_FLIGHT.series(self._name).set_function(lambda: self._running)
        self._durations = None if rule.client_streams or rule.server_streams else DURATIONS.series(self._name)
        self._by_code: dict[grpc.StatusCode, Series] = {}
        self._count(grpc.StatusCode.OK)

    def counted(self, answer: Answer) -> Answer:
        """Return an answering function whose calls are counted and timed."""

        async def observed(raw: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            begun = perf_counter()
            self._running += 1
            code = grpc.StatusCode.OK
            try:
                answered = await answer(raw, context)
                code = _code_of(context) or code
                return answered
            except asyncio.CancelledError:
                code = grpc.StatusCode.CANCELLED
                raise
            except BaseException:
                code = _code_of(context) or grpc.StatusCode.UNKNOWN
                raise
            finally:
                self._running -= 1
                (self._by_code.get(code) or self._count(code)).inc()
                if self._durations is not None:
                    self._durations.observe(perf_counter() - begun)

        return observed

    def traced(self, answer: Answer) -> Answer:
        """Return an answering function whose calls have a span."""

        async def traced(raw: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            with server_span(self._name, parent=parent_of(context.invocation_metadata() or ())) as recorded:
                try:
                    return await answer(raw, context)
                finally:
                    if (code := _code_of(context)) is not None:
                        recorded.set("rpc.grpc.status_code", int(code.value[0]))
                        recorded.fail(code.name)

        return traced

    def _count(self, code: grpc.StatusCode) -> Series:
        series = self._by_code.get(code)
        if series is None:
            series = self._by_code[code] = CALLS.series(self._name, code.name)
        return series


def _code_of(context: Any) -> grpc.StatusCode | None:
    """Return the code that ended a call, or None; the stubs declare it as a number."""
    code: grpc.StatusCode | None = context.code()
    return code


def parent_of(metadata: Iterable[tuple[str, Any]]) -> str:
    """Return the traceparent of a call; empty for none."""
    return next((str(value) for key, value in metadata if key == TRACEPARENT), "")


def observed_methods(rules: Mapping[str, MethodRule]) -> dict[str, ObservedMethod]:
    """Return the observer of each method; none if the process exports nothing."""
    if not (is_exporting() or is_tracing()):
        return {}
    return {method: ObservedMethod(method, rule) for method, rule in rules.items()}
