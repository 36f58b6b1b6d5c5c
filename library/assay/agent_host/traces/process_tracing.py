"""Using OpenTelemetry in this process for agents that use it: sets the parent of their spans and flushes them."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import sys
from typing import TYPE_CHECKING

from assay.agent_host.concurrency.threads import CallThreads, TooManyHangError
from assay.telemetry.tracing import parent_context

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

_MAX_HUNG = 4

_log = logging.getLogger(__name__)


def is_available() -> bool:
    """Return whether the OpenTelemetry API is installed."""
    try:
        return importlib.util.find_spec("opentelemetry.trace") is not None
    except ImportError:
        return False


@contextlib.contextmanager
def parent_span(traceparent: str) -> Iterator[None]:
    """Make a span the parent of those that begin in this task's context.

    Args:
        traceparent: The span, in W3C Trace Context form.
    """
    from opentelemetry import context

    token = context.attach(parent_context(traceparent))
    try:
        yield
    finally:
        context.detach(token)


def spans_below(traceparent: str) -> AbstractContextManager[None]:
    """Return the same block for any agent; without a span or the API, it has no effect."""
    is_used = bool(traceparent) and "opentelemetry.trace" in sys.modules
    return parent_span(traceparent) if is_used else contextlib.nullcontext()


class SpanFlush:
    """Makes this process's tracer provider send the ended spans."""

    def __init__(self) -> None:
        self._threads = CallThreads(max_hung=_MAX_HUNG)

    async def run(self, limit: asyncio.Timeout, timeout_s: float) -> bool:
        """Flush the provider; return whether there is one that was flushed.

        Args:
            limit: The caller's time limit.
            timeout_s: The rest of it, in seconds.
        """
        from opentelemetry.trace import get_tracer_provider

        flush = getattr(get_tracer_provider(), "force_flush", None)
        if flush is None:
            return False
        try:
            outcome = await self._threads.run(flush, round(timeout_s * 1000), limit)
        except TooManyHangError:
            return False
        if outcome.error is not None:
            _log.warning("flushing the spans of the agent failed: problem=%r", outcome.error)
        return outcome.error is None and outcome.value is not False

    def close(self) -> None:
        """Let idle threads end."""
        self._threads.close()
