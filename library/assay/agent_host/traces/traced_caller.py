"""Completing an agent's answers from the spans that it emits."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.agent_host.failures import Failures
from assay.agent_host.traces.process_tracing import SpanFlush, is_available, parent_span
from assay.agent_host.traces.span_kinds import (
    SpanKind,
    kind_of_span,
    model_of_span,
    numbered,
)
from assay.agent_host.traces.tool_spans import calls_of_trace
from assay.agent_host.traces.trace import EXPORT_DELAY_S, MAX_SPANS, MAX_TRACE_BYTES
from assay.agent_host.traces.trace_usage import usage_of_trace
from assay.model.answers.agent_response import AgentStatus, MalformedAnswerError, Source, ToolCall, Usage, clean_text
from assay.model.answers.response_fields import json_value
from assay.model.answers.response_limits import MAX_ANSWER_BYTES
from assay.model.answers.response_names import source_parts
from assay.wire.agent import response_to_wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.agent_host.protocol import Caller
    from assay.agent_host.traces.span import Span
    from assay.agent_host.traces.span_file import SpanFile
    from assay.agent_host.traces.trace import Trace, TraceBook
    from assay.model.answers.agent_request import AgentRequest
    from assay.model.answers.agent_response import AgentResponse

METADATA_KEY = "assay_trace"
"""The metadata key for the outcome of an answer's trace."""

_SETTLE_S = EXPORT_DELAY_S + 0.25
"""Without a flush, a trace counts as complete after this time without a span: an exporter sends its spans once per
interval."""
_FILE_POLL_S = 0.05
_LARGEST_PART = 0.9
"""The share of the maximum answer; the rest is for its metadata, including this caller's note."""
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


class TracedCaller:
    """Asks another caller and completes its answers from spans; the answer's own fields take precedence.

    Args:
        caller: The caller of the agent.
        source: The source of the spans: a file, or a receiver's traces.
        wait_s: How long an answer waits for its spans, in seconds; never beyond its time limit.
        in_process: Whether the agent runs in this process and shares its OpenTelemetry.
    """

    def __init__(self, caller: Caller, source: SpanFile | TraceBook, *, wait_s: float, in_process: bool) -> None:
        from assay.agent_host.traces.span_file import SpanFile

        self._caller = caller
        self.asks_with_text = getattr(caller, "asks_with_text", False)
        self._file = source if isinstance(source, SpanFile) else None
        self._traces = source.traces if isinstance(source, SpanFile) else source
        self._wait_s = wait_s
        self._has_api = in_process and is_available()
        self._flush = SpanFlush()
        self._failures = Failures()

    async def call(self, request: AgentRequest) -> AgentResponse:
        """Return the agent's answer completed from its spans, with the agent's own duration."""
        trace = self._traces.open()
        deadline = time.monotonic() + request.timeout_s
        try:
            with parent_span(trace.traceparent) if self._has_api else contextlib.nullcontext():
                response = await self._caller.call(dataclasses.replace(request, traceparent=trace.traceparent))
            # A failed answer does not wait: its spans may never end.
            wait_s = 0.0 if response.status is AgentStatus.ERROR else self._wait_s
            wait_s = max(0.0, min(wait_s, deadline - time.monotonic()))
            await self._gather(trace, wait_s)
        finally:
            self._traces.close(trace)
        return self._failures.redacted_answer(_completed(response, trace, wait_s))

    async def aclose(self) -> None:
        """Release the agent's threads and processes; a receiver stays for later questions."""
        self._flush.close()
        await self._caller.aclose()

    async def _gather(self, trace: Trace, wait_s: float) -> None:
        """Wait until the spans of a trace are complete, or time is up."""
        if wait_s <= 0:
            await self._read_file()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s) as limit:
                was_flushed = self._has_api and await self._flush.run(limit, wait_s)
                settle_s = 0.0 if was_flushed else _SETTLE_S
                await self._read_file()
                while True:
                    count, is_connected = trace.span_count, trace.is_connected
                    poll_s = wait_s if self._file is None else _FILE_POLL_S
                    has_changed = await trace.wait_for_change(settle_s if is_connected else poll_s)
                    await self._read_file()
                    if is_connected and not has_changed and trace.span_count == count:
                        return

    async def _read_file(self) -> None:
        if self._file is not None:
            await self._file.read()


def _completed(response: AgentResponse, trace: Trace, wait_s: float) -> AgentResponse:
    """Return an answer completed from its trace, with a note on what is missing."""
    spans = trace.spans
    content, problems = TraceContent(), []
    if trace.is_too_large:
        limit_mib = MAX_TRACE_BYTES // 1024**2
        problems.append(f"the trace has more than {MAX_SPANS:,} spans or {limit_mib} MiB: nothing of it is used")
    else:
        content = content_of_trace(spans)
    if response.status is not AgentStatus.ERROR:
        if not spans:
            problems.append(f"no span of this trace arrived within {wait_s:g} s")
        elif orphans := trace.orphan_count:
            message = f"spans whose parent did not arrive within {wait_s:g} s: {orphans}; what came later is left out"
            problems.append(message)
    problems += [content.problem] if content.problem and response.usage is None else []
    # A complete trace without calls means that none was made; an incomplete one may lack calls and tokens.
    is_whole = bool(spans) and not trace.is_too_large and not trace.orphan_count
    has_all_calls = is_whole and response.status is not AgentStatus.ERROR
    completed = dataclasses.replace(
        response,
        tool_calls=response.tool_calls or content.tool_calls or (() if has_all_calls else response.tool_calls),
        sources=response.sources or content.sources,
        usage=response.usage or (content.usage if is_whole else None),
        model=response.model or content.model,
    )
    if not _fits(completed):
        problems.append("its tool calls and sources are larger than an answer may be: they are left out")
        completed = dataclasses.replace(completed, tool_calls=response.tool_calls, sources=response.sources)
    note: dict[str, Any] = {"trace_id": trace.trace_id, "spans": len(spans)}
    if problems:
        note["problems"] = problems
    return dataclasses.replace(completed, metadata={**response.metadata, METADATA_KEY: note})


def _fits(response: AgentResponse) -> bool:
    try:
        return response_to_wire(response).ByteSize() <= MAX_ANSWER_BYTES * _LARGEST_PART
    except (MalformedAnswerError, ValueError):
        return True  # in the agent's own fields: the answer is refused when it is sent
