"""Events of Google ADK, as its server writes them, read as an answer."""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from assay.model.adk_events import (
    OWN_CALLS,
    REQUESTS,
    TYPED_OUTPUT_CALL,
    Stop,
    error_code,
    is_failure,
    is_retryable,
    output_tokens,
    returned_value,
)
from assay.model.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    MalformedAnswerError,
    clean_text,
    response_from_json,
)
from assay.model.final_value import with_value
from assay.model.response_limits import check_bounds
from assay.parsing.names import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    _Event = Mapping[str, Any]


def whole_events(reply: Any) -> list[_Event]:
    """Return the events of one reply of /run without the partial ones, which repeat what others hold.

    Raises:
        MalformedAnswerError: They are no events.
        AnswerTooLargeError: They are larger than an answer may be.
    """
    if not isinstance(reply, list) or not all(isinstance(event, dict) for event in reply):
        raise MalformedAnswerError(f"the reply of /run must be a list of events, not {kind_of(reply)}")
    check_bounds(reply, max_bytes=4 * 1024 * 1024)
    return [event for event in reply if event.get("partial") is not True]


def stops_of(events: Sequence[_Event], answered: Mapping[str, Any]) -> list[Stop]:
    """Return the calls that wait for a response from outside.

    Args:
        events: The whole events of a turn.
        answered: The responses that calls of it have got, by their ids.
    """
    stops: dict[str, Stop] = {}
    for event in events:
        waiting = event.get("longRunningToolIds") or ()
        for call in _functions(event, "functionCall"):
            call_id, name = str(call.get("id") or ""), str(call.get("name") or "")
            if call_id and (call_id in waiting or name in REQUESTS):
                agent = (str(event.get("author") or ""), str(event.get("branch") or ""))
                stops[call_id] = Stop(call_id, name, _mapping(call, "args"), agent)
        for returned in _functions(event, "functionResponse"):
            stops.pop(str(returned.get("id")), None)
    return [stop for stop in stops.values() if stop.id not in answered]


def trace_of(events: Sequence[_Event], answered: Mapping[str, Any]) -> AgentResponse:
    """Return the tool calls, sources, tokens and the model of a turn as an answer without a text.

    Args:
        events: Its whole events.
        answered: The responses that calls of it have got from outside, by their ids.
    """
    found = {
        "text": "",
        "tool_calls": list(_tool_calls(events, answered)),
        "sources": list(_sources(events)),
        "usage": _usage(events),
        "model": next((event["modelVersion"] for event in reversed(events) if event.get("modelVersion")), ""),
        "finish_reason": next((event["finishReason"] for event in reversed(events) if event.get("finishReason")), ""),
    }
    check_bounds(found)
    return response_from_json(found)


def response_from_events(events: Sequence[_Event], answered: Mapping[str, Any]) -> AgentResponse:
    """Return the answer that the events of a turn are.

    Its value is that of the last final event that has one: a text without thoughts, an output, or the result of a tool
    that is the answer. An error that no later final event follows is the answer's.

    Args:
        events: Its whole events.
        answered: The responses that calls of it have got from outside, by their ids.

    Raises:
        MalformedAnswerError: They are no answer.
        AnswerTooLargeError: They are larger than an answer may be.
    """
    value: Any = None
    error: AgentError | None = None
    typed: set[Any] = set()
    for event in events:
        if any(call.get("name") == TYPED_OUTPUT_CALL for call in _functions(event, "functionCall")):
            typed.add(event.get("author"))
        said = _value(event, typed) if _is_final(event) or event.get("output") is not None else None
        if code := error_code(str(event.get("errorCode") or ""), str(event.get("finishReason") or "")):
            value, error = said, _error(event, code)
        elif said not in (None, ""):
            value, error = said, None
    if error is None and value is None:
        raise MalformedAnswerError(f"none of the {len(events)} events of /run is a final response with a text")
    trace = trace_of(events, answered)
    if error is None:
        return with_value(value, trace)
    return dataclasses.replace(
        trace, text=value if isinstance(value, str) else "", status=AgentStatus.ERROR, error=error
    )


def _is_final(event: _Event) -> bool:
    """Return whether an event is the final response of an agent, as `Event.is_final_response` of ADK does."""
    if _mapping(event, "actions").get("skipSummarization") or event.get("longRunningToolIds"):
        return True
    parts = _parts(event)
    if any("functionCall" in part for part in parts):
        return False
    if event.get("errorCode"):
        return True
    return not any("functionResponse" in part for part in parts) and "codeExecutionResult" not in (parts or [{}])[-1]


def _value(event: _Event, typed: set[Any]) -> Any:
    """Return the value of a final event; None where it has none, or ends in a stop."""
    if event.get("longRunningToolIds") or _mapping(event, "actions").get("requestedToolConfirmations"):
        return None
    output = returned_value([event.get("output")])
    if responses := [_mapping(found, "response") for found in _functions(event, "functionResponse")]:
        return returned_value(responses) if _mapping(event, "actions").get("skipSummarization") else output
    text = _text(event)
    if text and event.get("author") in typed:
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return text or output


def _text(event: _Event) -> str:
    return "".join(
        part["text"] for part in _parts(event) if isinstance(part.get("text"), str) and not part.get("thought")
    )


def _error(event: _Event, code: str) -> AgentError:
    code = clean_text(code)
    message = clean_text(str(event.get("errorMessage") or "the event has no errorMessage"))
    return AgentError(AgentErrorKind.RAISED, f"{code}: {message}"[:4000], type=code[:200], retryable=is_retryable(code))


def _tool_calls(events: Sequence[_Event], answered: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the calls in order, each with the last response of its id."""
    results = dict(answered)
    for event in events:
        actions = _mapping(event, "actions")
        waiting = {**_mapping(actions, "requestedToolConfirmations"), **_mapping(actions, "requestedAuthConfigs")}
        for returned in _functions(event, "functionResponse"):
            if returned.get("id") not in waiting:  # what it has until a person answers is no result
                results[str(returned.get("id"))] = returned.get("response")
    for event in events:
        for call in _functions(event, "functionCall"):
            if call.get("name") not in OWN_CALLS:
                result = results.get(str(call["id"])) if call.get("id") else None
                yield {
                    "name": call.get("name"),
                    "id": call.get("id"),
                    "arguments": call.get("args") or {},
                    "result": result,
                    "is_error": isinstance(result, dict) and is_failure(result),
                }


def _sources(events: Sequence[_Event]) -> Iterator[dict[str, Any]]:
    """Yield what the answers are grounded on and what they cite."""
    for event in events:
        for chunk in _objects(_mapping(event, "groundingMetadata").get("groundingChunks")):
            found = _mapping(chunk, "web") or _mapping(chunk, "retrievedContext")
            yield {"title": found.get("title"), "uri": found.get("uri"), "content": found.get("text")}
        for citation in _objects(_mapping(event, "citationMetadata").get("citations")):
            yield {"title": citation.get("title"), "uri": citation.get("uri")}


def _usage(events: Sequence[_Event]) -> dict[str, int] | None:
    """Return the tokens of all calls of models; prompts of tools are input, thoughts are output."""
    calls = [event["usageMetadata"] for event in events if isinstance(event.get("usageMetadata"), dict)]
    if not calls:
        return None

    def count(call: Mapping[str, Any], name: str) -> int:
        value = call.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise MalformedAnswerError("a count of usageMetadata is no whole number")
        return value or 0

    def total(*names: str) -> int:
        return sum(count(call, name) for call in calls for name in names)

    def made(call: Mapping[str, Any]) -> int:
        given = count(call, "promptTokenCount") + count(call, "toolUsePromptTokenCount")
        names = ("candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount")
        return output_tokens(given, *(count(call, name) for name in names)) or 0

    parts = {"cache_read_tokens": "cachedContentTokenCount", "reasoning_tokens": "thoughtsTokenCount"}
    return {
        "input_tokens": total("promptTokenCount", "toolUsePromptTokenCount"),
        "output_tokens": sum(map(made, calls)),
        "total_tokens": total("totalTokenCount"),
        "requests": len(calls),
        **{name: total(key) for name, key in parts.items() if any(call.get(key) is not None for call in calls)},
    }


def _functions(event: _Event, name: str) -> Iterator[dict[str, Any]]:
    return (part[name] for part in _parts(event) if isinstance(part.get(name), dict))


def _parts(event: _Event) -> list[dict[str, Any]]:
    return _objects(_mapping(event, "content").get("parts"))


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _mapping(holder: _Event, name: str) -> dict[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}
