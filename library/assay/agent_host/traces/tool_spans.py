"""Tool calls in a trace, by any of the spans' conventions.

A tool span is a call; its missing parts come from the model's request of that call. Without any tool span, the requests
count as calls. `docs/spec.md#traces` lists the conventions.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from assay.agent_host.traces.span_kinds import numbered, text_at, value_at
from assay.model.answers.agent_response import MalformedAnswerError, ToolCall, clean_text, json_text
from assay.model.answers.response_names import call_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.agent_host.traces.span import Span

_NAMES = ("gen_ai.tool.name", "tool.name", "tool_call.function.name", "ai.toolCall.name", "traceloop.entity.name",
          "genkit:name")  # fmt: skip
_IDS = ("gen_ai.tool.call.id", "tool_call.id", "tool.id", "ai.toolCall.id")
_ARGUMENTS = (
    "gen_ai.tool.call.arguments", "tool_arguments", "tool_call.function.arguments", "ai.toolCall.args",
    "ai.toolCall.input", "gcp.vertex.agent.tool_call_args", "input.value", "traceloop.entity.input",
    "langfuse.observation.input", "mlflow.spanInputs", "genkit:input", "gen_ai.prompt",
)  # fmt: skip
_RESULTS = (
    "gen_ai.tool.call.result", "tool_response", "ai.toolCall.result", "ai.toolCall.output",
    "gcp.vertex.agent.tool_response", "output.value", "traceloop.entity.output", "langfuse.observation.output",
    "mlflow.spanOutputs", "genkit:output", "gen_ai.completion",
)  # fmt: skip
_FAILURES = {"gen_ai.tool.status": "error", "langfuse.observation.level": "ERROR", "genkit:state": "error"}
"""Attributes that mark a failed tool, besides the span's status and `error.type`."""
_REPLIES = ("gen_ai.output.messages", "gcp.vertex.agent.llm_response", "gen_ai.completion",
            "langfuse.observation.output", "mlflow.spanOutputs")  # fmt: skip
"""Attributes of a model span that hold its whole reply as JSON."""
_INDEXED = ("gen_ai.completion", "llm.completions")
"""Prefixes of OpenLLMetry's and LiteLLM's reply attributes, with an attribute per part of a call."""
_ADK_RESPONSE = "gcp.vertex.agent.tool_response"
_DETAILS, _CHOICE, _TOOL_MESSAGE = "gen_ai.client.inference.operation.details", "gen_ai.choice", "gen_ai.tool.message"
_CALL_LISTS, _CALL_HOLDERS = ("tool_calls", "toolCalls"), ("toolUse", "tool_use", "function_call", "functionCall")
_CALL_TYPES = ("tool_call", "tool-call", "tool_use", "function_call")
_NO_TOOLS = ("", "(merged tools)")
"""Google ADK adds a span of this name to concurrent calls."""
_NO_ARGUMENTS = ("", "{}")
_NO_VALUE = "<not specified>"
"""Google ADK's text for a call without a response, such as a long-running tool's."""
_MAX_DEPTH = 50


def calls_of_trace(tools: Sequence[Span], models: Sequence[Span], parents: Mapping[str, str]) -> tuple[ToolCall, ...]:
    """Return the calls of a trace in the order of their start.

    Args:
        tools: The tool spans.
        models: The model spans.
        parents: The parent of every span of the trace, by id.
    """
    requests = list(_requests(models))
    calls = _executed(tools, parents)
    return tuple(_with_requested(calls, requests) if calls else requests)


def _executed(tools: Sequence[Span], parents: Mapping[str, str]) -> list[ToolCall]:
    """Return the calls in tool spans: spans with the same id, or nested ones of the same name, are one call."""
    calls: dict[str, ToolCall] = {}
    by_id: dict[str, str] = {}
    for span in tools:
        call = _call(span)
        if call.name in _NO_TOOLS:
            continue
        known = by_id.get(call.id) or next(
            (above for above in _ancestors(span, parents) if above in calls and _is_same(calls[above], call)), ""
        )
        if known:
            calls[known] = _merged(calls[known], call)
        else:
            calls[span.span_id] = call
        if call.id:
            by_id.setdefault(call.id, known or span.span_id)
    return list(calls.values())


def _ancestors(span: Span, parents: Mapping[str, str]) -> Iterator[str]:
    parent, seen = span.parent_id, {span.span_id}
    while parent and parent not in seen:
        yield parent
        seen.add(parent)
        parent = parents.get(parent, "")


def _is_same(outer: ToolCall, inner: ToolCall) -> bool:
    """Return whether a nested span repeats the outer call, as a second instrumentation or an MCP client does."""
    return outer.name == inner.name and all(
        not first or not second or first == second
        for first, second in ((outer.id, inner.id), (outer.arguments_json, inner.arguments_json))
    )


def _merged(call: ToolCall, other: ToolCall) -> ToolCall:
    return dataclasses.replace(
        call,
        id=call.id or other.id,
        arguments_json=call.arguments_json or other.arguments_json,
        result_json=call.result_json or other.result_json,
        is_error=call.is_error or other.is_error,
    )


def _call(span: Span) -> ToolCall:
    attributes = _with_events(span)
    result, has_failed = _result(value_at(attributes, *_RESULTS))
    is_marked = any(attributes.get(name) == word for name, word in _FAILURES.items())
    is_error = span.is_error or is_marked or has_failed or "error.type" in attributes
    response = _value(attributes.get(_ADK_RESPONSE))
    is_error = is_error or (isinstance(response, dict) and bool(response.get("error")))  # a key that ADK reserves
    if response == {"result": _NO_VALUE}:
        result = None
    if result is None and is_error:
        result = next((event.get("exception.message") for name, event in span.events if name == "exception"), None)
    name = text_at(attributes, *_NAMES) or span.name.removeprefix("execute_tool").removeprefix("tools/call").strip()
    return ToolCall(
        name=clean_text(name),
        id=clean_text(text_at(attributes, *_IDS)).replace(_NO_VALUE, ""),
        arguments_json=_as_json(_arguments(value_at(attributes, *_ARGUMENTS))),
        result_json=_as_json(result),
        is_error=is_error,
        duration_ms=(span.end_ns - span.start_ns) / 1e6 if span.end_ns >= span.start_ns > 0 else None,
    )


def _with_events(span: Span) -> dict[str, Any]:
    """Return a tool span's attributes completed by its events."""
    attributes: dict[str, Any] = {}
    for name, event in span.events:
        if name == _TOOL_MESSAGE:
            attributes["gen_ai.tool.call.arguments"] = event.get("content")
        elif name == _CHOICE:
            attributes["gen_ai.tool.call.result"] = event.get("message")
    return {**attributes, **span.attributes}


def _arguments(written: object) -> object:
    """Return a call's arguments, without the wrapping of instrumentations."""
    value = call_parts({"arguments": written}).arguments
    for _ in range(2):
        if not isinstance(value, dict):
            return value
        if value.keys() >= {"input_str", "inputs"}:  # OpenLLMetry, for LangChain
            inner = value["inputs"] or value["input_str"]
        elif "kwargs" in value and not value.get("args") and value.keys() <= {"args", "kwargs", _SMOLAGENTS}:
            inner = value["kwargs"]
        elif value.keys() == {"tool_name", "arguments"}:  # OpenLLMetry, for MCP
            inner = value["arguments"]
        elif value.keys() == {"input"} and isinstance(value["input"], str):  # LangSmith
            inner = value["input"]
        else:
            return value
        parsed = call_parts({"arguments": inner}).arguments
        if not isinstance(parsed, dict):
            return value if "input_str" in value or "input" in value else parsed
        value = parsed
    return value


_SMOLAGENTS = "sanitize_inputs_outputs"


def _result(written: object) -> tuple[object, bool]:
    """Return a call's result without its wrapping, and whether it is a failure."""
    value = _parsed(written) if isinstance(written, str) else written
    if isinstance(value, dict) and _wraps_output(value):
        written = value["output"]
        value = _parsed(written) if isinstance(written, str) else written
    if isinstance(value, dict) and (holder := "kwargs" if "lc" in value else "data" if "type" in value else ""):
        inner = value.get(holder)  # a LangChain message, from LangChain or OpenInference
        value = written = inner if isinstance(inner, dict) and "tool_call_id" in inner else value
    if not isinstance(value, dict):
        return written, False
    has_failed = any(value.get(name) is True for name in ("isError", "is_error"))
    if "tool_call_id" in value and "content" in value:
        return value["content"], has_failed or value.get("status") == "error"
    return written, has_failed


def _wraps_output(value: Mapping[str, Any]) -> bool:
    inner = value.get("output")
    is_message = isinstance(inner, dict) and "tool_call_id" in inner
    # OpenLLMetry, for LangChain; LangSmith
    return value.keys() == {"output", "kwargs"} or (value.keys() == {"output"} and is_message)


def _with_requested(calls: Sequence[ToolCall], requests: Sequence[ToolCall]) -> list[ToolCall]:
    """Return calls with the models' requested arguments if the tool spans have none."""
    by_id = {request.id: request for request in requests if request.id}
    by_name: dict[str, list[ToolCall]] = {}
    for request in requests:
        by_name.setdefault(request.name, []).append(request)
    counts, completed = Counter(call.name for call in calls), []
    nth_of = {name: iter(same) for name, same in by_name.items() if len(same) == counts[name]}
    for call in calls:
        nth = next(nth_of[call.name]) if call.name in nth_of else None
        asked = by_id.get(call.id, nth) if call.id else nth
        is_open = asked is not None and asked.arguments_json and call.arguments_json in _NO_ARGUMENTS
        completed.append(dataclasses.replace(call, arguments_json=asked.arguments_json) if asked and is_open else call)
    return completed


def _requests(models: Sequence[Span]) -> Iterator[ToolCall]:
    """Yield the calls that models requested, without repeats."""
    seen = set()
    for span in models:
        for call in next(filter(None, (list(calls) for calls in _requests_of(span))), []):
            if call.name and not (call.id and call.id in seen):
                seen.add(call.id)
                yield call


def _requests_of(span: Span) -> Iterator[Iterator[ToolCall]]:
    """Yield a model's requests by each convention; a span that follows several repeats itself."""
    yield _openinference(span)
    yield _indexed(span)
    yield _calls_within({"tool_calls": _value(span.attributes.get("ai.response.toolCalls"))})
    for name in _REPLIES:
        yield _calls_within(_value(span.attributes.get(name)))
    for name, event in span.events:
        if name == _DETAILS:
            yield _calls_within(_value(event.get("gen_ai.output.messages")))
        elif name == _CHOICE:
            yield _calls_within([_value(value) for value in event.values()])
    events = _value(span.attributes.get("events"))  # the first versions of pydantic-ai
    choices = (
        [entry for entry in events if isinstance(entry, dict) and entry.get("event.name") == _CHOICE] if events else []
    )
    yield _calls_within(choices)


def _openinference(span: Span) -> Iterator[ToolCall]:
    for message in numbered(span, "llm.output_messages"):
        for call in _entries(message, "message.tool_calls."):
            name = call.get("tool_call.function.name")
            yield _requested(name, call.get("tool_call.id"), call.get("tool_call.function.arguments"))
        if name := message.get("message.function_call_name"):
            yield _requested(name, None, message.get("message.function_call_arguments_json"))


def _indexed(span: Span) -> Iterator[ToolCall]:
    for prefix in _INDEXED:
        for reply in numbered(span, prefix):
            for call in (*_entries(reply, "tool_calls."), *_entries(reply, "function_call.", is_single=True)):
                yield _requested(call.get("name"), call.get("id"), call.get("arguments"))


def _entries(fields: Mapping[str, Any], prefix: str, *, is_single: bool = False) -> list[dict[str, Any]]:
    """Return the entries of a list in numbered attributes: PREFIX0.name, PREFIX0.id, …"""
    entries: dict[int, dict[str, Any]] = {}
    for key, value in fields.items():
        if not key.startswith(prefix):
            continue
        number, _, rest = ("0", "", key[len(prefix) :]) if is_single else key[len(prefix) :].partition(".")
        if number.isascii() and number.isdigit() and len(number) < 10:
            entries.setdefault(int(number), {})[rest] = value
    return [entries[number] for number in sorted(entries)]


def _calls_within(value: object, depth: int = 0) -> Iterator[ToolCall]:
    """Yield the calls in a model's reply, in any provider's or framework's form."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for item in value:
            yield from _calls_within(item, depth + 1)
    if not isinstance(value, dict):
        return
    listed = next((value[key] for key in _CALL_LISTS if isinstance(value.get(key), list) and value[key]), None)
    if listed is not None:
        yield from (_request(item) for item in listed if isinstance(item, dict))
    elif value.get("type") in _CALL_TYPES or any(isinstance(value.get(key), dict) for key in _CALL_HOLDERS):
        yield _request(value)
    else:
        for item in value.values():
            yield from _calls_within(item, depth + 1)


def _request(call: Mapping[str, Any]) -> ToolCall:
    parts = call_parts(call)
    return _requested(parts.name, parts.id, parts.arguments)


def _requested(name: object, call_id: object, arguments: object) -> ToolCall:
    return ToolCall(_text(name), _text(call_id), _as_json(arguments))


def _value(written: object) -> Any:
    return _parsed(written) if isinstance(written, str) else written


def _text(value: object) -> str:
    """Return a text; a number, such as an id, is written out."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return clean_text(value) if isinstance(value, str) else ""


def _as_json(value: object) -> str:
    """Return a value as JSON text: JSON text is unchanged, any other text becomes a JSON string."""
    if value is None:
        return ""
    if isinstance(value, str) and _parsed(value) is not None:
        return clean_text(value)
    try:
        return json_text(value, "a value")
    except MalformedAnswerError:
        return json_text(repr(value), "a value")


def _parsed(text: str) -> Any:
    """Return a text parsed as JSON; None if it is not JSON."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)
