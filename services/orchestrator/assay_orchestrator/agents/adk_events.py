"""Reads events of Google ADK's server as an answer."""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from assay.model.answers.adk_events import (
    OWN_CALLS,
    REQUESTS,
    TYPED_OUTPUT_CALL,
    Stop,
    error_code,
    is_failure,
    is_retryable,
    returned_value,
    sources_of,
    usage_of,
)
from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    MalformedAnswerError,
    Source,
    clean_text,
    response_from_json,
)
from assay.model.answers.final_value import with_value
from assay.model.answers.response_limits import check_bounds
from assay.parsing.names import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    _Event = Mapping[str, Any]


def whole_events(reply: Any) -> list[_Event]:
    """Return the events of a reply of /run without the partial ones, which the others repeat.

    Raises:
        MalformedAnswerError: They are not events.
        AnswerTooLargeError: They exceed the size of an answer.
    """
    if not isinstance(reply, list) or not all(isinstance(event, dict) for event in reply):
        raise MalformedAnswerError(f"the reply of /run must be a list of events, not {kind_of(reply)}")
    check_bounds(reply, max_bytes=4 * 1024 * 1024)
    return [event for event in reply if event.get("partial") is not True]


def stops_of(events: Sequence[_Event]) -> list[Stop]:
    """Return the calls in the whole events of a turn that wait for a response from outside."""
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
    return list(stops.values())


def trace_of(events: Sequence[_Event], answered: Mapping[str, Any]) -> AgentResponse:
    """Return the tool calls, sources, tokens and model of a turn as an answer without text.

    Args:
        events: Its whole events.
        answered: The responses to its calls from outside, by call id.
    """
    sources: dict[tuple[str, str, str], Source] = {}
    for event in events:
        for source in sources_of(_mapping(event, "groundingMetadata"), _mapping(event, "citationMetadata")):
            sources.setdefault((source.id, source.uri, source.title), source)
    fields = {
        "text": "",
        "tool_calls": _tool_calls(events, answered),
        "model": next((event["modelVersion"] for event in reversed(events) if event.get("modelVersion")), ""),
        "finish_reason": next((event["finishReason"] for event in reversed(events) if event.get("finishReason")), ""),
    }
    check_bounds(fields)
    return dataclasses.replace(
        response_from_json(fields),
        sources=tuple(sources.values()),
        usage=usage_of([_mapping(event, "usageMetadata") for event in events if event.get("usageMetadata")]),
    )


def response_from_events(events: Sequence[_Event], answered: Mapping[str, Any]) -> AgentResponse:
    """Return the answer in the events of a turn.

    Its value is that of the last final event with a value: a text without thoughts, an output, or the result of a tool
        that
    serves as the answer. An error that no later final event follows becomes the answer's error.

    Args:
        events: Its whole events.
        answered: The responses to its calls from outside, by call id.

    Raises:
        MalformedAnswerError: They contain no answer.
        AnswerTooLargeError: They exceed the size of an answer.
    """
    value: Any = None
    output: Any = None
    error: AgentError | None = None
    typed: set[Any] = set()
    for event in events:
        if any(call.get("name") == TYPED_OUTPUT_CALL for call in _functions(event, "functionCall")):
            typed.add(event.get("author"))
        if event.get("output") is None and not _is_final(event):
            continue
        if event.get("longRunningToolIds") or _mapping(event, "actions").get("requestedToolConfirmations"):
            continue  # it ends in a stop
        text, returned = _value(event, typed), returned_value([event.get("output")])
        code = error_code(str(event.get("errorCode") or ""), str(event.get("finishReason") or ""))
        if code or text is not None or returned is not None:
            value, output = (returned, None) if text is None else (text, returned)
            error = _error(event, code) if code else None
    if error is None and value is None:
        raise MalformedAnswerError(f"none of the {len(events)} events of /run is a final response with a text")
    trace = trace_of(events, answered)
    if error is None:
        answer = with_value(value, trace)
        return answer if output is None else dataclasses.replace(answer, output=output)
    return dataclasses.replace(
        trace, text=value if isinstance(value, str) else "", status=AgentStatus.ERROR, error=error
    )


def _is_final(event: _Event) -> bool:
    """Return whether an event is an agent's final response, as ADK's `Event.is_final_response`."""
    if _mapping(event, "actions").get("skipSummarization") or event.get("longRunningToolIds"):
        return True
    parts = _parts(event)
    if any("functionCall" in part for part in parts):
        return False
    if event.get("errorCode"):
        return True
    return not any("functionResponse" in part for part in parts) and "codeExecutionResult" not in (parts or [{}])[-1]


def _value(event: _Event, typed: set[Any]) -> Any:
    """Return an event's value: tool results that serve as the answer, a text, or a text's JSON value; else None."""
    if responses := [_mapping(call, "response") for call in _functions(event, "functionResponse")]:
        return returned_value(responses) if _mapping(event, "actions").get("skipSummarization") else None
    text = _text(event)
    if text and event.get("author") in typed:
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return text or None


def _text(event: _Event) -> str:
    return "".join(
        part["text"] for part in _parts(event) if isinstance(part.get("text"), str) and not part.get("thought")
    )


def _error(event: _Event, code: str) -> AgentError:
    code = clean_text(code)
    message = clean_text(str(event.get("errorMessage") or "the event has no errorMessage"))
    return AgentError(AgentErrorKind.RAISED, f"{code}: {message}"[:4000], type=code[:200], retryable=is_retryable(code))


def _tool_calls(events: Sequence[_Event], answered: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls in order, each with the last response of its id; some models renumber their calls."""
    calls: list[dict[str, Any]] = []
    by_id: dict[str, dict[str, Any]] = {}
    for event in events:
        for call in _functions(event, "functionCall"):
            if call.get("name") not in OWN_CALLS:
                fields = {"name": call.get("name"), "id": call.get("id"), "arguments": call.get("args") or {}}
                calls.append(fields)
                if call.get("id"):
                    by_id[str(call["id"])] = fields
        actions = _mapping(event, "actions")
        waiting = {**_mapping(actions, "requestedToolConfirmations"), **_mapping(actions, "requestedAuthConfigs")}
        for returned in _functions(event, "functionResponse"):
            if returned.get("id") not in waiting:  # a placeholder before a person's answer is not a result
                _add_result(by_id.get(str(returned.get("id"))) or _first_open(calls, returned), returned)
    for call_id, response in answered.items():
        _add_result(by_id.get(call_id), {"response": response})
    return calls


def _first_open(calls: Sequence[dict[str, Any]], returned: _Event) -> dict[str, Any] | None:
    return next(
        (call for call in calls if call["name"] == returned.get("name") and not call["id"] and "result" not in call),
        None,
    )


def _add_result(call: dict[str, Any] | None, returned: _Event) -> None:
    if call is not None:
        response = _mapping(returned, "response")
        call.update(result=response, is_error=is_failure(response))


def _functions(event: _Event, name: str) -> Iterator[dict[str, Any]]:
    return (part[name] for part in _parts(event) if isinstance(part.get(name), dict))


def _parts(event: _Event) -> list[dict[str, Any]]:
    return _objects(_mapping(event, "content").get("parts"))


def _objects(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _mapping(holder: _Event, name: str) -> dict[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}
