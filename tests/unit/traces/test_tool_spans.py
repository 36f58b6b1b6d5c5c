"""Calls of tools in traces: each convention with its right arguments, and failing tools marked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from assay.agent_host.traces.json_spans import spans_from_json
from assay.agent_host.traces.protobuf_spans import spans_from_protobuf
from assay.agent_host.traces.span import Span
from assay.agent_host.traces.traced_caller import content_of_trace
from assay.model.answers.agent_response import ToolCall

ARGUMENTS = {"order": 5}
WRITTEN = json.dumps(ARGUMENTS)
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 1, "gen_ai.usage.output_tokens": 1}


def span(number: int, parent: int | None = None, **more: Any) -> Span:
    """Return a span that begins and ends at its number."""
    parent_id = "" if parent is None else f"{parent:016x}"
    return Span("a" * 32, f"{number:016x}", parent_id, start_ns=number, end_ns=number, **more)


def calls(*spans: Span) -> list[tuple[str, str, Any, Any, bool]]:
    """Return name, id, arguments, result and failure of the calls of a trace."""
    content = content_of_trace(spans).tool_calls
    read = [(json.loads(call.arguments_json or "null"), json.loads(call.result_json or "null")) for call in content]
    return [(call.name, call.id, *both, call.is_error) for call, both in zip(content, read, strict=True)]


LANGCHAIN_MESSAGE = {"lc": 1, "type": "constructor", "kwargs": {"content": "late", "tool_call_id": "c1"}}
EXECUTED: dict[str, dict[str, Any]] = {
    "GenAI conventions": {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "track",
        "gen_ai.tool.call.arguments": WRITTEN, "gen_ai.tool.call.result": "late",
    },
    "pydantic-ai before": {"gen_ai.tool.name": "track", "tool_arguments": WRITTEN, "tool_response": "late"},
    "OpenInference": {
        "openinference.span.kind": "TOOL", "tool.name": "track", "input.value": "{'order': 5}", "output.value": "late",
        "tool.parameters": '{"type": "object"}',
    },
    "OpenInference of LlamaIndex": {
        "openinference.span.kind": "TOOL", "tool.name": "track", "output.value": "late",
        "input.value": json.dumps({"args": [], "kwargs": ARGUMENTS}),
    },
    "OpenInference of smolagents": {
        "openinference.span.kind": "TOOL", "tool.name": "track", "output.value": "late",
        "input.value": json.dumps({"args": [], "sanitize_inputs_outputs": True, "kwargs": ARGUMENTS}),
    },
    "OpenLLMetry of LangChain": {
        "traceloop.span.kind": "tool", "traceloop.entity.name": "track",
        "traceloop.entity.input": json.dumps(
            {"input_str": "{'order': 5}", "tags": [], "metadata": {}, "inputs": ARGUMENTS, "kwargs": {"color": "red"}}
        ),
        "traceloop.entity.output": json.dumps({"output": LANGCHAIN_MESSAGE, "kwargs": {}}),
    },
    "OpenLLMetry of LangChain before": {
        "traceloop.span.kind": "tool", "traceloop.entity.name": "track",
        "traceloop.entity.input": json.dumps({"input_str": "{'order': 5}", "inputs": None, "kwargs": {}}),
        "traceloop.entity.output": json.dumps({"output": "late", "kwargs": {}}),
    },
    "a decorator of Traceloop": {
        "traceloop.span.kind": "tool", "traceloop.entity.name": "track",
        "traceloop.entity.input": json.dumps({"args": [], "kwargs": ARGUMENTS}), "traceloop.entity.output": '"late"',
    },
    "OpenLLMetry of MCP": {
        "traceloop.span.kind": "tool", "traceloop.entity.name": "track",
        "traceloop.entity.input": json.dumps({"tool_name": "track", "arguments": ARGUMENTS}),
        "traceloop.entity.output": "late",
    },
    "Google ADK": {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "track",
        "gcp.vertex.agent.tool_call_args": WRITTEN, "gcp.vertex.agent.tool_response": '"late"',
    },
    "Vercel's AI SDK": {
        "operation.name": "ai.toolCall", "ai.operationId": "ai.toolCall", "ai.toolCall.name": "track",
        "ai.toolCall.args": WRITTEN, "ai.toolCall.result": '"late"',
    },
    "LangSmith": {
        "langsmith.span.kind": "tool", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "track",
        "gen_ai.prompt": json.dumps({"input": "{'order': 5}"}),
        "gen_ai.completion": json.dumps({"output": {"content": "late", "tool_call_id": "c1", "status": "success"}}),
    },
    "Genkit": {
        "genkit:type": "action", "genkit:metadata:subtype": "tool", "genkit:name": "track", "genkit:input": WRITTEN,
        "genkit:output": '"late"',
    },
}  # fmt: skip


@pytest.mark.parametrize("convention", EXECUTED)
def test_a_call_has_its_name_arguments_and_result(convention: str) -> None:
    """Whatever instrumentations write around them."""
    assert calls(span(1, attributes=EXECUTED[convention])) == [("track", "", ARGUMENTS, "late", False)]


@pytest.mark.parametrize(
    "attributes",
    [
        {"langfuse.observation.type": "tool", "langfuse.observation.input": json.dumps({"kwargs": ARGUMENTS})},
        {"mlflow.spanType": '"TOOL"', "mlflow.spanInputs": WRITTEN},
        {"mcp.method.name": "tools/call", "gen_ai.tool.call.arguments": ARGUMENTS},
    ],
)
def test_the_name_of_a_span_is_that_of_its_tool(attributes: dict[str, Any]) -> None:
    """Where no attribute names it."""
    assert calls(span(1, name="track", attributes=attributes)) == [("track", "", ARGUMENTS, None, False)]


@pytest.mark.parametrize(
    "attributes",
    [
        {"args": ["Oslo"], "kwargs": {}},
        {"kwargs": {"a": 1}, "city": "Oslo"},
        {"input": "Oslo"},
        {"arguments": {"a": 1}},
        {"input_str": "x", "inputs": None},
    ],
)
def test_arguments_of_these_names_stay(attributes: dict[str, Any]) -> None:
    """A tool may have parameters that are called as wrappers are."""
    named = {"gen_ai.tool.name": "look", "gen_ai.tool.call.arguments": json.dumps(attributes)}
    assert calls(span(1, attributes=named))[0][2] == attributes


EXCEPTION = ("exception", {"exception.type": "KeyError", "exception.message": "no order 5"})
TRACK = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "track"}


@pytest.mark.parametrize(
    ("tool", "result"),
    [
        (span(1, attributes=TRACK, is_error=True, events=(EXCEPTION,)), "no order 5"),
        (span(1, attributes=TRACK, is_error=True), None),
        (span(1, attributes={**TRACK, "error.type": "tool_error"}), None),
        (span(1, attributes={**TRACK, "gen_ai.tool.status": "error"}), None),
        (span(1, attributes={**TRACK, "langfuse.observation.level": "ERROR"}), None),
        (span(1, attributes={**EXECUTED["Genkit"], "genkit:state": "error"}), "late"),
        (
            span(1, attributes={**TRACK, "gen_ai.tool.call.result": '{"content": [], "isError": true}'}),
            {"content": [], "isError": True},
        ),
        (
            span(1, attributes={**TRACK, "output.value": '{"content": "no", "tool_call_id": "1", "status": "error"}'}),
            "no",
        ),
        (
            span(
                1,
                attributes={
                    "openinference.span.kind": "TOOL",
                    "tool.name": "track",
                    "output.value": json.dumps(
                        {"type": "tool", "data": {"content": "no", "tool_call_id": "1", "status": "error"}}
                    ),
                },
            ),
            "no",
        ),
        (span(1, attributes={**TRACK, "gcp.vertex.agent.tool_response": '{"error": "no"}'}), {"error": "no"}),
    ],
)
def test_a_failing_tool_is_marked(tool: Span, result: object) -> None:
    """By the span's status, an attribute of its convention, or what the tool returned."""
    ((_, _, _, found, is_error),) = calls(tool)
    assert (found, is_error) == (result, True)


def test_an_exception_that_a_tool_caught_is_no_failure() -> None:
    """Only the status says that the tool failed."""
    tool = span(1, attributes={**TRACK, "gen_ai.tool.call.result": "late"}, events=(EXCEPTION,))
    assert calls(tool) == [("track", "", None, "late", False)]


REQUEST = {"id": "c1", "type": "function", "function": {"name": "track", "arguments": WRITTEN}}
REQUESTED: dict[str, Span] = {
    "GenAI conventions": span(1, attributes={**CHAT, "gen_ai.output.messages": json.dumps(
        [{"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "track", "arguments": ARGUMENTS}]}]
    )}),
    "their event": span(1, attributes=CHAT, events=(("gen_ai.client.inference.operation.details", {
        "gen_ai.input.messages": json.dumps(
            [{"parts": [{"type": "tool_call", "id": "c0", "name": "earlier", "arguments": {}}]}]
        ),
        "gen_ai.output.messages": json.dumps(
            [{"parts": [{"type": "tool_call", "id": "c1", "name": "track", "arguments": ARGUMENTS}]}]
        ),
    }),)),
    "their older events": span(1, attributes=CHAT, events=(
        ("gen_ai.choice", {"gen_ai.event.content": json.dumps({"message": {"tool_calls": [REQUEST]}})}),
    )),
    "Strands": span(1, attributes=CHAT, events=(("gen_ai.choice", {"finish_reason": "tool_use", "message": json.dumps(
        [{"text": "so"}, {"toolUse": {"toolUseId": "c1", "name": "track", "input": ARGUMENTS}}]
    )}),)),
    "pydantic-ai before": span(1, attributes={**CHAT, "events": json.dumps([
        {"event.name": "gen_ai.assistant.message", "tool_calls": [{**REQUEST, "id": "c0"}]},
        {"event.name": "gen_ai.choice", "message": {"role": "assistant", "tool_calls": [REQUEST]}},
    ])}),
    "OpenInference": span(1, attributes={
        "openinference.span.kind": "LLM",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "track",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": WRITTEN,
    }),
    "OpenLLMetry": span(1, attributes={
        "gen_ai.system": "openai", "gen_ai.completion.0.tool_calls.0.id": "c1",
        "gen_ai.completion.0.tool_calls.0.name": "track", "gen_ai.completion.0.tool_calls.0.arguments": WRITTEN,
    }),
    "Vercel's AI SDK": span(1, attributes={
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.response.toolCalls": json.dumps([{"toolCallId": "c1", "toolName": "track", "input": WRITTEN}]),
    }),
    "Google ADK": span(1, attributes={**CHAT, "gcp.vertex.agent.llm_response": json.dumps(
        {"content": {"parts": [{"function_call": {"id": "c1", "name": "track", "args": ARGUMENTS}}]}}
    )}),
    "Langfuse": span(1, attributes={
        "langfuse.observation.type": "generation",
        "langfuse.observation.output": json.dumps({"role": "assistant", "tool_calls": [REQUEST]}),
    }),
}  # fmt: skip


@pytest.mark.parametrize("convention", REQUESTED)
def test_requests_of_models_are_calls_where_tools_have_no_spans(convention: str) -> None:
    """Each once; messages of earlier turns are none."""
    assert calls(REQUESTED[convention]) == [("track", "c1", ARGUMENTS, None, False)]


@pytest.mark.parametrize("convention", REQUESTED)
@pytest.mark.parametrize("call_id", ["c1", ""])
def test_a_call_without_arguments_has_those_of_its_request(convention: str, call_id: str) -> None:
    """By its id, or by its name where each of these calls has a request: content of tools may not be recorded."""
    named = {**TRACK, "gen_ai.tool.call.id": call_id, "gcp.vertex.agent.tool_call_args": "{}"}
    assert calls(REQUESTED[convention], span(2, attributes=named)) == [("track", call_id, ARGUMENTS, None, False)]


def test_the_nth_request_belongs_to_the_nth_call() -> None:
    """Of one name; with more calls than requests, none of them is known to be whose."""
    asked = [{**REQUEST, "id": "", "function": {"name": "track", "arguments": {"order": n}}} for n in (1, 2)]
    model = span(1, attributes={**CHAT, "gen_ai.output.messages": json.dumps([{"tool_calls": asked}])})
    tools = [span(number, attributes=TRACK) for number in (2, 3, 4)]
    assert [call[2] for call in calls(model, *tools[:2])] == [{"order": 1}, {"order": 2}]
    assert [call[2] for call in calls(model, *tools)] == [None, None, None]


def test_calls_of_google_adk_without_a_response_are_apart() -> None:
    """It writes one text for every id and result that it does not know."""
    absent = {
        "gen_ai.tool.call.id": "<not specified>",
        "gcp.vertex.agent.tool_response": '{"result": "<not specified>"}',
    }
    named = {**TRACK, **absent, "gcp.vertex.agent.tool_call_args": WRITTEN}
    assert calls(span(1, attributes=named), span(2, attributes=named)) == [("track", "", ARGUMENTS, None, False)] * 2


def test_spans_of_one_call_are_one_call() -> None:
    """A client of MCP within the tool, or two instrumentations; another call of the tool within it is its own."""
    outer = span(1, attributes=TRACK)
    named = {"mcp.method.name": "tools/call", "error.type": "tool_error", "gen_ai.tool.call.arguments": WRITTEN}
    client = span(2, 1, name="tools/call track", attributes=named)
    assert calls(outer, client) == [("track", "", ARGUMENTS, None, True)]
    again = span(3, 1, attributes={**TRACK, "gen_ai.tool.call.arguments": '{"order": 6}'})
    first = span(1, attributes={**TRACK, "gen_ai.tool.call.arguments": WRITTEN})
    assert [call[2] for call in calls(first, again)] == [ARGUMENTS, {"order": 6}]
    beside = span(4, attributes=TRACK)
    assert len(calls(outer, beside)) == 2


def test_strands_writes_calls_as_events() -> None:
    """Arguments and result are in events of the tool's span, in both encodings and in lines of the console."""
    events: list[dict[str, Any]] = [
        {"name": "gen_ai.tool.message", "attributes": {"role": "tool", "content": WRITTEN, "id": "c1"}},
        {"name": "gen_ai.choice", "attributes": {"message": '[{"text": "late"}]', "id": "c1"}},
        {"name": "a log", "attributes": {"content": "nothing"}},
    ]
    named = {**TRACK, "gen_ai.tool.call.id": "c1", "gen_ai.tool.status": "success"}
    context = {"trace_id": "0x" + "a" * 32, "span_id": "0x" + "b" * 16}
    (console,), _ = spans_from_json({"context": context, "name": "execute_tool track", "attributes": named,
                                     "events": events})  # fmt: skip

    request = ExportTraceServiceRequest()
    written = request.resource_spans.add().scope_spans.add().spans.add(trace_id=b"\xaa" * 16, span_id=b"\xbb" * 8)
    for key, value in named.items():
        written.attributes.add(key=key).value.string_value = value
    for event in events:
        added = written.events.add(name=str(event["name"]))
        for key, value in event["attributes"].items():
            added.attributes.add(key=key).value.string_value = value
    (binary,), _ = spans_from_protobuf(request.SerializeToString())

    def pairs(found: dict[str, str]) -> list[dict[str, Any]]:
        return [{"key": key, "value": {"stringValue": value}} for key, value in found.items()]

    otlp = {"traceId": "a" * 32, "spanId": "b" * 16, "attributes": pairs(named),
            "events": [{**event, "attributes": pairs(event["attributes"])} for event in events]}  # fmt: skip
    (json_span,), _ = spans_from_json({"resourceSpans": [{"scopeSpans": [{"spans": [otlp]}]}]})
    for one in (console, binary, json_span):
        assert [name for name, _ in one.events] == ["gen_ai.tool.message", "gen_ai.choice"]
        assert calls(one) == [("track", "c1", ARGUMENTS, [{"text": "late"}], False)]


def test_agents_and_workflows_of_openllmetry_are_no_models() -> None:
    """They name the system of their framework, and have no tokens of their own."""
    agent = span(1, attributes={"traceloop.span.kind": "agent", "gen_ai.system": "crewai"})
    model = span(2, 1, attributes={**CHAT, "gen_ai.system": "openai"})
    content = content_of_trace([agent, model])
    assert (content.problem, content.usage and content.usage.total_tokens) == ("", 2)


@pytest.mark.parametrize(
    "attributes",
    [
        {"ai.operationId": "ai.streamText.doStream", "ai.usage.promptTokens": 7, "ai.usage.completionTokens": 3},
        {"ai.operationId": "ai.generateText.doGenerate", "ai.usage.inputTokens": 7, "ai.usage.outputTokens": 3},
        {"langfuse.observation.type": "generation", "langfuse.observation.usage_details": '{"input": 7, "output": 3}'},
        {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.chat.tokenUsage": '{"input_tokens": 7, "output_tokens": 3}'},
    ],
)
def test_tokens_of_other_conventions(attributes: dict[str, Any]) -> None:
    """Their counts are those of the call."""
    usage = content_of_trace([span(1, attributes=attributes)]).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (7, 3, 10)


def test_deep_replies_are_bounded() -> None:
    """A reply that is nested without end has no calls that are read."""
    value: Any = {"tool_calls": [REQUEST]}
    for _ in range(60):
        value = [value]
    assert content_of_trace([span(1, attributes={**CHAT, "gen_ai.output.messages": value})]).tool_calls == ()
    assert content_of_trace([span(1, attributes={**CHAT, "gen_ai.output.messages": value[0]})]).tool_calls == ()


def test_a_call_has_the_time_of_its_span() -> None:
    """That of the outer one where a call has several."""
    outer = Span("a" * 32, "1" * 16, start_ns=10, end_ns=2_000_010, attributes=TRACK)
    inner = Span("a" * 32, "2" * 16, "1" * 16, start_ns=20, end_ns=30, attributes=TRACK)
    assert content_of_trace([outer, inner]).tool_calls == (ToolCall("track", duration_ms=2.0),)
