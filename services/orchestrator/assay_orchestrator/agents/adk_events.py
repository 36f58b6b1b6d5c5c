"""Events of Google ADK, as its server writes them, read as an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.model.adk_events import OWN_CALLS, is_retryable, output_tokens
from assay.model.agent_response import AgentResponse, MalformedAnswerError, response_from_json
from assay.model.response_limits import check_bounds
from assay.parsing.names import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    _Event = Mapping[str, Any]


def response_from_events(events: Any) -> AgentResponse:
    """Return the answer that the events of one run are.

    The text is that of the last final event that has one, without thoughts; an error that no later final event follows
    is the answer's. Partial events repeat what others hold.

    Raises:
        MalformedAnswerError: They are no events.
        AnswerTooLargeError: They are larger than an answer may be.
    """
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise MalformedAnswerError(f"the reply of /run must be a list of events, not {kind_of(events)}")
    check_bounds(events, max_bytes=4 * 1024 * 1024)
    whole = [event for event in events if event.get("partial") is not True]
    text, error = "", None
    for event in whole:
        if event.get("errorCode"):
            error = _error(event)
        said = _text(event)
        if said and _is_final(event):
            text = said
            error = error if event.get("errorCode") else None
    found = {
        "text": text,
        "error": error,
        "tool_calls": list(_tool_calls(whole)),
        "sources": list(_sources(whole)),
        "usage": _usage(whole),
        "model": next((event["modelVersion"] for event in reversed(whole) if event.get("modelVersion")), ""),
        "finish_reason": next((event["finishReason"] for event in reversed(whole) if event.get("finishReason")), ""),
    }
    check_bounds(found)
    if error is None and not text and not found["tool_calls"]:
        raise MalformedAnswerError(f"none of the {len(whole)} events of /run is a final response with a text")
    return response_from_json(found)


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


def _text(event: _Event) -> str:
    return "".join(
        part["text"] for part in _parts(event) if isinstance(part.get("text"), str) and not part.get("thought")
    )


def _error(event: _Event) -> dict[str, Any]:
    code = str(event["errorCode"])
    message = str(event.get("errorMessage") or "the event has no errorMessage")
    return {"message": f"{code}: {message}", "type": code[:200], "retryable": is_retryable(code)}


def _tool_calls(events: Sequence[_Event]) -> Iterator[dict[str, Any]]:
    """Yield the calls in order, each with the response of its id."""
    answers = {str(found.get("id")): found for event in events for found in _functions(event, "functionResponse")}
    for event in events:
        for call in _functions(event, "functionCall"):
            if call.get("name") in OWN_CALLS:
                continue
            answer = answers.get(str(call["id"])) if call.get("id") else None
            yield {
                "name": call.get("name"),
                "id": call.get("id"),
                "arguments": call.get("args") or {},
                "result": answer.get("response") if answer is not None else None,
                # ADK reserves this key of a response for errors.
                "is_error": answer is not None and bool(_mapping(answer, "response").get("error")),
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
