"""OpenAI's Responses API: requests, replies, and replies in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.providers.chat_completions import citations_in
from assay.providers.errors import MalformedReplyError, error_without_status
from assay.providers.hosted_tools import pages_found, response_calls, waiting_calls
from assay.providers.messages import (
    NO_HEADERS,
    STOPS,
    Reply,
    Stop,
    explanation_of,
    name_in,
    text_in,
    tokens_in,
)
from assay.providers.streams import PartCount

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from assay.providers.messages import Request

_STATUSES = ("completed", "incomplete", "failed", "cancelled")
_SEARCHES = ("web_search_call", "file_search_call")
_TEXT_EVENTS = ("response.output_text.delta", "response.refusal.delta")
_LAST_EVENTS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


def request_body(request: Request) -> dict[str, Any]:
    """Return a request in the form of the API. The service stores nothing, as with Chat Completions."""
    parameters = request.parameters
    body: dict[str, Any] = {
        "store": False,
        **request.extra,
        "model": request.model,
        "input": [{"role": message.role, "content": message.content} for message in request.messages],
        "max_output_tokens": parameters.max_tokens,
    }
    if system := "\n\n".join(filter(None, (request.shared_system, request.system))):
        body["instructions"] = system
    if parameters.temperature is not None:
        body["temperature"] = parameters.temperature
    if request.stream:
        body["stream"] = True
    return body


def reply_from(data: Mapping[str, Any], headers: Mapping[str, str] = NO_HEADERS) -> Reply:
    """Return the reply in a response.

    Raises:
        MalformedReplyError: It is none, or the model is still at it.
        ProviderStatusError: The service failed after it had accepted the request.
    """
    output, status = data.get("output"), name_in(data.get("status"))
    if status == "failed":
        raise error_without_status({"error": data.get("error")}, headers)
    if not isinstance(output, list) or status not in ("", *_STATUSES):
        raise MalformedReplyError("the reply does not hold a finished response of a model")
    parts = list(_parts(output))
    refusal = "".join(text_in(part.get("refusal")) for part in parts if part.get("type") == "refusal")
    text = "".join(text_in(part.get("text")) for part in parts if part.get("type") == "output_text")
    stop, finish = _stop_of(data, status)
    stop = Stop.REFUSED if refusal else stop
    return Reply(
        text=text or refusal,
        stop=stop,
        explanation=explanation_of(refusal or (finish if stop is Stop.BROKEN_OFF else "")),
        tokens=tokens_in(data.get("usage")),
        model=name_in(data.get("model")),
        finish_reason=finish,
        tool_calls=tuple(response_calls(output)),
        headers=headers,
        citations=tuple(
            citations_in([annotation for part in parts for annotation in _annotations(part)])
            or pages_found([item for item in output if isinstance(item, dict) and item.get("type") in _SEARCHES])
        ),
        waits=tuple(waiting_calls(output)),
    )


class Events:
    """A response in events, the last of which contains all of it: `assay.providers.streams.Assembly`."""

    def __init__(self) -> None:
        self.has_ended = False
        self._response: dict[str, Any] | None = None
        self._items: list[object] = []
        self._parts = PartCount()

    def add(self, event: Mapping[str, Any]) -> bool:
        """Add an event; return whether it holds text."""
        kind, response = event.get("type"), event.get("response")
        if kind == "response.output_item.done":
            self._parts.add()
            self._items.append(event.get("item"))
        elif kind in _LAST_EVENTS:
            self.has_ended = True
            if isinstance(response, dict):
                # Some services leave out of the last event what they have sent before.
                self._response = {**response, "output": self._items} if response.get("output") == [] else response
        return kind in _TEXT_EVENTS and bool(event.get("delta"))

    def whole(self, *, ended: bool) -> Mapping[str, Any] | None:
        """Return the response; None if it has not arrived."""
        return self._response


def _parts(output: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of the messages; thoughts are items of another type."""
    for item in output:
        content = item.get("content") if isinstance(item, dict) and item.get("type") == "message" else None
        yield from (part for part in content if isinstance(part, dict)) if isinstance(content, list) else ()


def _annotations(part: Mapping[str, Any]) -> list[object]:
    listed = part.get("annotations")
    return listed if isinstance(listed, list) else []


def _stop_of(data: Mapping[str, Any], status: str) -> tuple[Stop, str]:
    """Return why a model stopped, in our word and in the API's."""
    if status == "incomplete":
        details = data.get("incomplete_details")
        reason = name_in(details.get("reason")) if isinstance(details, dict) else ""
        return STOPS.get(reason, Stop.BROKEN_OFF), reason or status
    return Stop.BROKEN_OFF if status == "cancelled" else Stop.COMPLETE, status
