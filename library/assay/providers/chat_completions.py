"""Chat Completions: requests, replies, and replies in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.providers.errors import MalformedReplyError, error_without_status
from assay.providers.hosted_tools import pages_found
from assay.providers.messages import (
    NO_HEADERS,
    STOPS,
    Reply,
    Stop,
    explanation_of,
    name_in,
    text_in,
    text_of_parts,
    tokens_in,
    tool_call,
)
from assay.providers.streams import PartCount, Pieces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.providers.messages import Request


def request_body(request: Request) -> dict[str, Any]:
    """Return a request in the form of the protocol."""
    parameters = request.parameters
    system = "\n\n".join(filter(None, (request.shared_system, request.system)))
    body: dict[str, Any] = {
        **request.extra,
        "model": request.model,
        "messages": [
            *([{"role": "system", "content": system}] if system else []),
            *({"role": message.role, "content": message.content} for message in request.messages),
        ],
        parameters.token_field: parameters.max_tokens,
    }
    if parameters.temperature is not None:
        body["temperature"] = parameters.temperature
    if request.stream:
        body["stream"] = True
        if request.stream_usage:
            body["stream_options"] = {"include_usage": True}
    return body


def reply_from(data: Mapping[str, Any], headers: Mapping[str, str] = NO_HEADERS) -> Reply:
    """Return the reply in a completion.

    Raises:
        MalformedReplyError: It is none.
        ProviderStatusError: The choice is an error, as gateways send where the model's service broke off.
    """
    choices = data.get("choices")
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise MalformedReplyError("the reply does not hold one message of a model")
    error = choice.get("error")
    if isinstance(error, dict) and error.get("code"):
        raise error_without_status({"error": error}, headers)
    refusal = text_in(message.get("refusal") or _refusal_in(message.get("content")))
    finish = name_in(choice.get("finish_reason"))
    stop = Stop.REFUSED if refusal else STOPS.get(finish, Stop.COMPLETE)
    return Reply(
        text=_text_of(message.get("content")) or refusal,
        stop=stop,
        explanation=explanation_of(refusal or (_error_of(choice) if stop is Stop.BROKEN_OFF else "")),
        tokens=tokens_in(data.get("usage")),
        model=name_in(data.get("model")),
        finish_reason=finish,
        tool_calls=tuple(_tool_calls(message)),
        headers=headers,
        citations=tuple(
            citations_in(message.get("annotations")) or pages_found(data.get("search_results") or data.get("citations"))
        ),
        has_thoughts=_has_thoughts(message),
    )


class Chunks:
    """A completion assembled from chunks up to [DONE]: `assay.providers.streams.Assembly`."""

    has_ended = False

    def __init__(self) -> None:
        self._parts = PartCount()
        self._choices: dict[int, _Choice] = {}
        self._model: object = ""
        self._usage: object = None
        self._found: dict[str, Any] = {}

    def add(self, event: Mapping[str, Any]) -> bool:
        """Add a chunk; return whether it holds text."""
        self._model = self._model or event.get("model")
        self._usage = event.get("usage") or self._usage
        self._found |= {name: event[name] for name in ("search_results", "citations") if event.get(name)}
        choices = event.get("choices")
        has_text = False
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                has_text |= self._choice_of(choice).add(choice)
        return has_text

    def whole(self, *, ended: bool) -> Mapping[str, Any] | None:
        """Return the completion; None if it is incomplete."""
        if not ended and not any(choice.has_stopped for choice in self._choices.values()):
            return None
        choices = [choice.whole() for choice in self._choices.values()]
        return {"choices": choices, "model": self._model, "usage": self._usage, **self._found}

    def _choice_of(self, piece: Mapping[str, Any]) -> _Choice:
        index = piece.get("index")
        index = index if isinstance(index, int) else 0
        if index not in self._choices:
            self._parts.add()
            self._choices[index] = _Choice(self._parts)
        return self._choices[index]


class _Choice:
    """A message assembled from chunks."""

    def __init__(self, parts: PartCount) -> None:
        self._parts = parts
        self._content, self._refusal = Pieces(), Pieces()
        self._annotations: list[object] = []
        self._calls: list[_Call] = []
        self._latest: dict[object, _Call] = {}
        self._named: dict[tuple[object, object], _Call] = {}
        self._end: dict[str, Any] = {}

    @property
    def has_stopped(self) -> bool:
        return "finish_reason" in self._end

    def add(self, choice: Mapping[str, Any]) -> bool:
        self._end |= {name: choice[name] for name in ("finish_reason", "error") if choice.get(name)}
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return False
        content, annotations, calls, function = (
            delta.get(name) for name in ("content", "annotations", "tool_calls", "function_call")
        )
        for call in calls if isinstance(calls, list) else [{"function": function}] if function else ():
            if isinstance(call, dict):
                self._call_of(call).add(call)
        if isinstance(annotations, list):
            self._parts.add(len(annotations))
            self._annotations += annotations
        refused = self._refusal.add(delta.get("refusal") or _refusal_in(content))
        # A character may be cut between two pieces, so that only the whole text is cleaned.
        return self._content.add(content if isinstance(content, str) else _text_of(content)) or refused

    def whole(self) -> dict[str, Any]:
        message = {
            "content": str(self._content) or None,
            "refusal": str(self._refusal) or None,
            "annotations": self._annotations,
            "tool_calls": [call.whole() for call in self._calls],
        }
        return {**self._end, "message": message}

    def _call_of(self, piece: Mapping[str, Any]) -> _Call:
        """Return the call that a piece belongs to; some services give all calls the same index, or none."""
        index, name = piece.get("index"), piece.get("id")
        if isinstance(index, list | dict) or isinstance(name, list | dict):
            raise MalformedReplyError("the index or the id of a call of a tool is no number or text")
        # A call without an id is the only one of its index: every piece of the index belongs to it.
        call = self._latest.get(index)
        if call is not None and name and call.id:
            call = self._named.get((index, name))
        if call is None:
            self._parts.add()
            call = self._latest[index] = _Call()
            self._calls.append(call)
        if name and not call.id:
            call.id = name
            self._named[index, name] = call
        return call


class _Call:
    """A tool call assembled from chunks."""

    def __init__(self) -> None:
        self.id: object = None
        self._name: object = None
        self._text = Pieces()
        self._arguments: object = None

    def add(self, piece: Mapping[str, Any]) -> None:
        function = piece.get("function")
        if isinstance(function, dict):
            self._name = self._name or function.get("name")
            arguments = function.get("arguments")
            if not isinstance(arguments, str):
                self._arguments = self._arguments or arguments
            self._text.add(arguments)

    def whole(self) -> dict[str, Any]:
        return {"id": self.id, "function": {"name": self._name, "arguments": str(self._text) or self._arguments}}


def citations_in(annotations: object) -> list[dict[str, Any]]:
    """Return the web pages and files that a text's annotations cite, each once and in order."""
    pages: dict[tuple[str, str], dict[str, Any]] = {}
    for annotation in annotations if isinstance(annotations, list) else ():
        if isinstance(annotation, dict):
            # The one API has the fields within a field of the annotation's type, the other has them beside it.
            inner = annotation.get(str(annotation.get("type")))
            fields = inner if isinstance(inner, dict) else annotation
            place = {"uri": text_in(fields.get("url")), "id": text_in(fields.get("file_id"))}
            title = text_in(fields.get("title")) or text_in(fields.get("filename"))
            if any(place.values()):
                pages.setdefault((place["uri"], place["id"]), {**place, "title": title})
    return list(pages.values())


def _text_of(content: object) -> str:
    if isinstance(content, list):  # of parts, as Mistral's reasoning models answer
        return text_of_parts(content)
    if content is not None and not isinstance(content, str):
        raise MalformedReplyError("the content of the model's message is no text")
    return text_in(content)


def _has_thoughts(message: Mapping[str, Any]) -> bool:
    """Return whether a message has thoughts, in their own field or in the content."""
    content = message.get("content")
    kinds = [part.get("type") for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    return "thinking" in kinds or any(message.get(name) for name in ("reasoning_content", "reasoning", "thinking"))


def _refusal_in(content: object) -> object:
    parts: Sequence[object] = content if isinstance(content, list) else ()
    refusals = (part.get("refusal") for part in parts if isinstance(part, dict) and part.get("type") == "refusal")
    return next(refusals, None)


def _error_of(choice: Mapping[str, Any]) -> str:
    error = choice.get("error")
    return text_in(error.get("message") if isinstance(error, dict) else error)


def _tool_calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    value, function = message.get("tool_calls"), message.get("function_call")
    calls = []
    # The API's first form had one call, in a field of its own.
    for call in value if isinstance(value, list) and value else [{"function": function}]:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            calls.append(tool_call(call.get("id"), function.get("name"), function.get("arguments")))
    return calls
