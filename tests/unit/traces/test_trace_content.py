"""What spans say about an answer, by the conventions of OpenTelemetry and of OpenInference."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.agent_host.answers.answer_message import answer_to_wire
from assay.agent_host.traces.json_spans import spans_from_json
from assay.agent_host.traces.span import MalformedSpanError, Span
from assay.agent_host.traces.trace import MAX_SPANS, MAX_TRACE_BYTES, TraceBook
from assay.agent_host.traces.traced_caller import METADATA_KEY, TraceContent, TracedCaller, content_of_trace
from assay.model.answers.agent_response import (
    AgentErrorKind,
    AgentRequest,
    AgentResponse,
    Source,
    ToolCall,
    Usage,
    error_response,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

TRACE_ID = "a" * 32


def span(
    number: int,
    parent: int | None = None,
    *,
    named: dict[str, Any] | None = None,
    start: int | None = None,
    **more: Any,
) -> Span:
    """Return a span; it begins at its number, and ends then, unless it is given otherwise."""
    begin = number if start is None else start
    parent_id = "" if parent is None else f"{parent:016x}"
    return Span(TRACE_ID, f"{number:016x}", parent_id, start_ns=begin, attributes=named or {},
                **{"end_ns": begin, **more})  # fmt: skip


def chat(
    number: int,
    parent: int | None = None,
    tokens: tuple[int, int] | None = None,
    named: Mapping[str, Any] | None = None,
) -> Span:
    """Return a call of a model, with its tokens in and out."""
    counts = {} if tokens is None else {"gen_ai.usage.input_tokens": tokens[0], "gen_ai.usage.output_tokens": tokens[1]}
    return span(number, parent, named={"gen_ai.operation.name": "chat", **counts, **(named or {})})


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ({"input_str": "{'order': 5}", "inputs": {"order": 5}, "kwargs": {"color": "green"}}, {"order": 5}),
        ({"order": 5}, {"order": 5}),
        ({"inputs": {"order": 5}}, {"inputs": {"order": 5}}),
        ({"input_str": "x", "inputs": None}, {"input_str": "x", "inputs": None}),
    ],
)
def test_arguments_are_those_of_the_tool(written: dict[str, Any], arguments: dict[str, Any]) -> None:
    """OpenLLMetry writes what LangChain's callback is given around them."""
    named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    content = content_of_trace([span(1, named={**named, "gen_ai.tool.call.arguments": json.dumps(written)})])
    assert [json.loads(call.arguments_json) for call in content.tool_calls] == [arguments]


def tokens(*spans: Span) -> Usage | None:
    return content_of_trace(spans).usage


def test_genai_tool_calls_have_what_the_span_has() -> None:
    """Name, id, arguments and result as JSON, error and duration; a text that is no JSON becomes one of JSON."""
    call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search", "gen_ai.tool.call.id": "c1"}
    first = span(1, start=10, end_ns=2_000_010, is_error=True,
                 named={**call, "gen_ai.tool.call.arguments": '{"q": 1}',
                        "gen_ai.tool.call.result": "not JSON"})  # fmt: skip
    named = span(2, name="execute_tool find", named={"gen_ai.operation.name": "execute_tool",
                                                     "gen_ai.tool.call.arguments": {"a": ["b"]}})  # fmt: skip
    old = span(3, named={"gen_ai.tool.name": "older", "tool_arguments": "{}", "tool_response": 7, "error.type": "E"})
    again = span(4, named=call)
    nameless = span(5, named={"gen_ai.operation.name": "execute_tool"})
    assert content_of_trace([first, named, old, again, nameless]).tool_calls == (
        ToolCall("search", "c1", '{"q": 1}', '"not JSON"', True, 2.0),
        ToolCall("find", "", '{"a": ["b"]}', duration_ms=0.0),
        ToolCall("older", "", "{}", "7", True, 0.0),
    )


def test_openinference_tool_calls_and_documents() -> None:
    """Tools by their input and output; documents by their number, which is no order of texts."""
    tool = span(1, name="lookup", named={"openinference.span.kind": "TOOL", "input.value": '{"k": 2}',
                                         "output.value": "17", "tool.parameters": '{"type": "object"}'})  # fmt: skip
    documents: dict[str, Any] = {}
    for rank in (10, 2, 0):
        documents[f"retrieval.documents.{rank}.document.id"] = f"d{rank}"
        documents[f"retrieval.documents.{rank}.document.score"] = float(rank)
    documents |= {
        "retrieval.documents.2.document.content": "text",
        "retrieval.documents.2.document.metadata": json.dumps({"title": "Two", "url": "http://two.test", "n": [1]}),
        "retrieval.documents.x.document.id": "no",
        "retrieval.documents.99999999999999999999.document.id": "no",
        "retrieval.documents.3": "no",
    }
    content = content_of_trace([tool, span(2, named={"openinference.span.kind": "RETRIEVER", **documents})])
    assert content.tool_calls == (ToolCall("lookup", "", '{"k": 2}', "17", duration_ms=0.0),)
    two = Source("d2", "Two", "http://two.test", "text", 2.0, {"title": "Two", "url": "http://two.test", "n": [1]})
    assert content.sources == (Source("d0", score=0.0), two, Source("d10", score=10.0))


def test_calls_that_models_asked_for_stand_in_for_tools_without_spans() -> None:
    """In both conventions, each once; with spans of tools these alone count."""
    prefix = "llm.output_messages.0.message.tool_calls"
    first = {f"{prefix}.1.tool_call.function.name": "b", f"{prefix}.0.tool_call.function.name": "a",
             f"{prefix}.0.tool_call.id": "c", f"{prefix}.0.tool_call.function.arguments": '{"x": 1}'}  # fmt: skip
    parts = [{"type": "text", "content": "t"}, {"type": "tool_call", "id": "c", "name": "a"},
             {"type": "tool_call", "id": "d", "name": "e", "arguments": {"y": 2}}]  # fmt: skip
    models = [
        span(1, named={"openinference.span.kind": "LLM", **first}),
        chat(2, named={"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts}])}),
    ]
    asked = (ToolCall("a", "c", '{"x": 1}'), ToolCall("b"), ToolCall("e", "d", '{"y": 2}'))
    assert content_of_trace(models).tool_calls == asked
    tool = span(3, named={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "a"})
    assert [call.name for call in content_of_trace([*models, tool]).tool_calls] == ["a"]


def test_genai_documents_are_sources_once() -> None:
    """As JSON or as values, of several retrievals; a document that comes again keeps its first rank."""
    retrieval = {"gen_ai.operation.name": "retrieval"}
    content = content_of_trace(
        [
            span(1, named={**retrieval, "gen_ai.retrieval.documents": '[{"id": "b", "score": 0.5}, {"id": 7}]'}),
            span(2, named={**retrieval, "gen_ai.retrieval.documents": [{"id": "b"}, {"text": "t", "uri": "u"}, "x"]}),
            span(3, named={**retrieval, "gen_ai.retrieval.documents": "no JSON"}),
        ]
    ).sources
    assert content == (Source("b", score=0.5), Source("7"), Source(uri="u", content="t"))


def test_tokens_are_counted_once_however_often_they_are_repeated() -> None:
    """Leaves alone: an agent's sum, a second instrumentation around a call, and embeddings add nothing."""
    agent = span(1, named={"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 30,
                           "gen_ai.usage.output_tokens": 3, "gen_ai.aggregated_usage.input_tokens": 30})  # fmt: skip
    outer = span(2, 1, named={"openinference.span.kind": "LLM", "llm.token_count.prompt": 10,
                              "llm.token_count.completion": 1, "llm.token_count.total": 11})  # fmt: skip
    old = span(5, 4, named={"gen_ai.system": "x", "gen_ai.usage.prompt_tokens": 20,
                            "gen_ai.usage.completion_tokens": 2.0,
                            "llm.token_count.prompt_details.cache_read": 4})  # fmt: skip
    embedding = span(6, 1, named={"gen_ai.operation.name": "embeddings", "gen_ai.usage.input_tokens": 500})
    tool = span(4, 1, named={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "sub-agent"})
    usage = tokens(agent, outer, chat(3, 2, (10, 1)), tool, old, embedding)
    assert usage == Usage(input_tokens=30, output_tokens=3, total_tokens=33, cache_read_tokens=4)
    assert tokens(agent) == Usage(input_tokens=30, output_tokens=3, total_tokens=33)


def test_attributes_with_names_of_providers_are_read_like_the_usage_of_an_answer() -> None:
    """Instrumentations pass on what the provider's package says."""
    named = {"gen_ai.usage.prompt_tokens": 1209, "gen_ai.usage.completion_tokens": 50, "llm.usage.total_tokens": 1259,
             "gen_ai.usage.cache_read_input_tokens": 1000}  # fmt: skip
    assert tokens(chat(1, named=named)) == Usage(1209, 50, 1259, cache_read_tokens=1000)
    beside = {"gen_ai.usage.inputTokens": 4, "gen_ai.usage.outputTokens": 3, "gen_ai.usage.cacheReadInputTokens": 5}
    assert tokens(chat(1, named=beside)) == Usage(9, 3, 12, cache_read_tokens=5)


def test_a_sum_that_misses_a_call_is_not_known() -> None:
    """Neither a part nor 0; a call that failed needs no counts, and one that a counted span holds has them."""
    half = content_of_trace([chat(1, tokens=(10, 1)), chat(2)])
    assert half.usage is None
    assert half.problem == "calls of a model without token counts: 1 of 2, so that their sum is not known"
    assert content_of_trace([chat(1)]).usage is None
    failed = Span(TRACE_ID, f"{2:016x}", start_ns=2, attributes={"gen_ai.operation.name": "chat"}, is_error=True)
    assert tokens(chat(1, tokens=(10, 1)), failed) == Usage(input_tokens=10, output_tokens=1, total_tokens=11)
    assert tokens(chat(1, tokens=(10, 1)), chat(2, 1)) == Usage(input_tokens=10, output_tokens=1, total_tokens=11)
    only_in = chat(2, named={"gen_ai.usage.input_tokens": 5})
    assert tokens(chat(1, tokens=(10, 1)), only_in) == Usage(input_tokens=15)


def test_counts_that_are_none_are_not_read() -> None:
    """Texts, truth values, negative and enormous numbers."""
    values: tuple[Any, ...] = ("12", True, -1, 2**70, 1.5, [], None)
    for wrong in values:
        assert tokens(chat(1, named={"gen_ai.usage.input_tokens": wrong})) is None, wrong


def test_spans_that_are_each_others_parents_come_to_an_end() -> None:
    """Hostile traces: cycles, and chains as long as a trace may be."""
    assert tokens(chat(1, 2, (1, 1)), chat(2, 1, (1, 1)), chat(3, 3)) is None
    chain = [chat(number, number - 1, (1, 1)) for number in range(1, MAX_SPANS)]
    assert tokens(*chain) == Usage(input_tokens=1, output_tokens=1, total_tokens=2)


def test_the_model_is_that_of_the_last_call() -> None:
    """The one that answered, where the span says so."""
    spans = [chat(1, named={"gen_ai.request.model": "a"}),
             chat(2, named={"gen_ai.request.model": "b", "gen_ai.response.model": "b-1"}), chat(3)]  # fmt: skip
    assert content_of_trace(spans).model == "b-1"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8) | st.sampled_from(['{"a": 1}', "[{}]", "[" * 50_000, "NaN", "\0\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
NAMES = st.sampled_from(
    ["gen_ai.operation.name", "openinference.span.kind", "gen_ai.tool.name", "gen_ai.tool.call.id", "error.type",
     "gen_ai.tool.call.arguments", "gen_ai.retrieval.documents", "gen_ai.usage.input_tokens", "llm.token_count.total",
     "gen_ai.output.messages", "retrieval.documents.0.document.id", "retrieval.documents.0.document.metadata",
     "llm.output_messages.0.message.tool_calls.0.tool_call.function.name", "gen_ai.request.model", "gen_ai.system"]
)  # fmt: skip
KINDS = st.sampled_from(["chat", "execute_tool", "retrieval", "embeddings", "invoke_agent"])
SPANS = st.builds(
    lambda number, parent, start, kind, attributes: span(
        number, parent, start=start, named={**attributes, **({"gen_ai.operation.name": kind} if kind else {})}
    ),
    st.integers(1, 12), st.none() | st.integers(1, 12), st.integers(0, 3), st.none() | KINDS,
    st.dictionaries(NAMES, VALUES, max_size=5),
)  # fmt: skip
BATCHES = st.lists(SPANS, max_size=12, unique_by=lambda one: one.span_id)


async def collected(spans: list[Span]) -> TraceContent:
    """Return what a trace says whose spans arrive in this order."""
    book = TraceBook()
    trace = book.open()
    own = [
        Span(trace.trace_id, one.span_id, one.parent_id, one.name, one.start_ns, one.end_ns, one.attributes)
        for one in spans
    ]
    book.add(own)
    return content_of_trace(trace.spans)


@given(BATCHES, st.randoms(use_true_random=False))
async def test_the_order_of_arrival_does_not_matter(spans: list[Span], order: random.Random) -> None:
    """Nor does a span that is sent again after a lost reply."""
    shuffled = [*spans, *order.sample(spans, len(spans) // 2)]
    order.shuffle(shuffled)
    assert await collected(shuffled) == await collected(spans)


@given(st.permutations(range(1, 6)))
async def test_tool_calls_are_in_the_order_they_began(numbers: list[int]) -> None:
    """Exporters send what ended first, first."""
    called = {"gen_ai.operation.name": "execute_tool"}
    spans = [span(number, named={**called, "gen_ai.tool.name": f"t{number}"}) for number in numbers]
    assert [call.name for call in (await collected(spans)).tool_calls] == ["t1", "t2", "t3", "t4", "t5"]


@given(BATCHES)
def test_whatever_spans_hold_the_answer_can_be_sent(spans: list[Span]) -> None:
    """Hostile attributes: any type, depth and text under any name."""
    content = content_of_trace(spans)
    response = AgentResponse(text="x", tool_calls=content.tool_calls, sources=content.sources, usage=content.usage)
    assert not answer_to_wire(response).HasField("error")


@given(st.recursive(VALUES, lambda inner: st.fixed_dictionaries(
    {}, optional={name: inner | st.lists(inner, max_size=2) for name in
                  ("resourceSpans", "scopeSpans", "spans", "traceId", "spanId", "attributes", "key", "value", "context",
                   "trace_id", "span_id", "status", "startTimeUnixNano", "start_time", "intValue", "kvlistValue")}),
    max_leaves=20))  # fmt: skip
def test_any_json_is_spans_or_refused(data: Any) -> None:
    """No other exception comes out of what an agent sends."""
    with contextlib.suppress(MalformedSpanError):
        spans_from_json(data)


@pytest.mark.parametrize("end", [10**400, -(10**20), 2**64])
def test_a_span_with_a_time_beyond_64_bits_is_left_out(end: int) -> None:
    """No arithmetic of an answer's trace overflows."""
    span = {"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "name": "n", "endTimeUnixNano": end}
    assert spans_from_json({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}) == ([], 1)


class Sends:
    """Stands where an agent is: sends spans and answers."""

    def __init__(self, book: TraceBook, spans: list[Span], answer: AgentResponse) -> None:
        self._book, self._spans, self._answer = book, spans, answer

    async def call(self, request: AgentRequest) -> AgentResponse:
        """Send all spans as those of the question's trace."""
        _, trace_id, root_id, _ = request.traceparent.split("-")
        self._book.add(
            Span(
                trace_id,
                _span.span_id,
                _span.parent_id or root_id,
                start_ns=_span.start_ns,
                attributes=_span.attributes,
            )
            for _span in self._spans
        )
        return self._answer

    async def aclose(self) -> None:
        """Nothing to close."""


async def answered(spans: list[Span], answer: AgentResponse, timeout_s: float = 0.3) -> AgentResponse:
    """Return an answer with what spans add."""
    book = TraceBook()
    caller = TracedCaller(Sends(book, spans, answer), book, wait_s=600.0, in_process=False)
    response = await caller.call(AgentRequest("r", "run", "c", "q", timeout_s=timeout_s))
    await caller.aclose()
    return response


async def test_a_trace_that_is_too_large_is_not_used_in_part() -> None:
    """Too many spans, and too large ones: the answer stays as it is and says so."""
    many = [chat(number, tokens=(1, 1)) for number in range(1, MAX_SPANS + 2)]
    large = [chat(number, tokens=(1, 1), named={"text": "x" * (MAX_TRACE_BYTES // 3)}) for number in range(1, 5)]
    for spans in (many, large):
        response = await answered(spans, AgentResponse(text="x"))
        assert response.usage is None
        (problem,) = response.metadata[METADATA_KEY]["problems"]
        assert problem == "the trace has more than 10,000 spans or 8 MiB: nothing of it is used"


async def test_documents_larger_than_an_answer_do_not_cost_the_answer() -> None:
    """Its text and tokens stay; calls and sources are left out, and the row says so."""
    documents = [{"id": str(number), "content": "x" * 300_000} for number in range(8)]
    named = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": documents}
    response = await answered([span(1, named=named), chat(2, tokens=(1, 1))], AgentResponse(text="x"))
    assert response.sources == ()
    assert response.usage is not None
    (problem,) = response.metadata[METADATA_KEY]["problems"]
    assert problem == "its tool calls and sources are larger than an answer may be: they are left out"
    assert answer_to_wire(response).text == "x"


async def test_the_wait_for_spans_ends_with_the_time_limit_of_the_question() -> None:
    """The orchestrator gives an answer up then, so that a longer wait would lose it."""
    response = await answered([], AgentResponse(text="x"))
    (problem,) = response.metadata[METADATA_KEY]["problems"]
    assert problem.startswith("no span of this trace arrived within 0.")


async def test_an_answer_that_failed_waits_for_no_span() -> None:
    """Those of an agent that was stopped may never end; a wait would only hold up the next attempt."""
    async with asyncio.timeout(60):
        response = await answered([], error_response(AgentErrorKind.TIMEOUT, "late"), timeout_s=600)
    assert "problems" not in response.metadata[METADATA_KEY]
