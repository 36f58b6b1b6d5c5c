"""Traces in progress, with their spans in any order of arrival."""

from __future__ import annotations

import asyncio
import secrets
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.agent_host.traces.span import Span

EXPORT_DELAY_S = 0.1
"""The export interval of exporters that Assay configures, in seconds."""

MAX_SPANS = 10_000
MAX_TRACE_BYTES = 8 * 1024 * 1024


class Trace:
    """The trace of a question, whose root is the question itself.

    Create it with `TraceBook.open`. Any thread may add spans; the loop that created it reads them.

    Attributes:
        trace_id: 32 hexadecimal digits, which other processes cannot guess.
        root_id: 16 hexadecimal digits: the parent of the agent's spans.
        is_too_large: Whether spans were dropped beyond 10,000 spans or 8 MiB.
    """

    def __init__(self) -> None:
        self.trace_id = secrets.token_hex(16)
        self.root_id = secrets.token_hex(8)
        self.is_too_large = False
        self._loop = asyncio.get_running_loop()
        self._spans: dict[str, Span] = {}
        self._size = 0
        self._changed = asyncio.Event()

    @property
    def traceparent(self) -> str:
        """The header `traceparent` of W3C Trace Context, with the flag for sampled traces."""
        return f"00-{self.trace_id}-{self.root_id}-01"

    @property
    def spans(self) -> list[Span]:
        """The spans by start time, whatever order they arrived in."""
        return sorted(self._spans.values(), key=lambda span: (span.start_ns, span.span_id))

    @property
    def span_count(self) -> int:
        """The number of spans received."""
        return len(self._spans)

    @property
    def orphan_count(self) -> int:
        """The number of spans whose parent has not arrived."""
        spans = dict(self._spans)
        return sum(span.parent_id not in spans and span.parent_id not in ("", self.root_id) for span in spans.values())

    @property
    def is_connected(self) -> bool:
        """Whether there are spans, all with their parents: a span is sent when it has ended."""
        return bool(self._spans) and self.orphan_count == 0

    def add(self, span: Span) -> None:
        """Add a span; duplicates are ignored."""
        self._size += span.size
        if len(self._spans) >= MAX_SPANS or self._size > MAX_TRACE_BYTES:
            self.is_too_large = True
            return
        self._spans.setdefault(span.span_id, span)
        self._loop.call_soon_threadsafe(self._changed.set)

    async def wait_for_change(self, timeout_s: float) -> bool:
        """Wait for a span; return whether one arrived in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True


class TraceBook:
    """The open traces by id; spans of all others are dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._traces: dict[str, Trace] = {}

    def open(self) -> Trace:
        """Return a new trace whose spans are kept from now on."""
        trace = Trace()
        with self._lock:
            self._traces[trace.trace_id] = trace
        return trace

    def close(self, trace: Trace) -> None:
        """Drop a trace's spans from now on."""
        with self._lock:
            self._traces.pop(trace.trace_id, None)

    def add(self, spans: Iterable[Span]) -> None:
        """Add spans, from any thread."""
        with self._lock:
            for span in spans:
                if (trace := self._traces.get(span.trace_id)) is not None:
                    trace.add(span)
