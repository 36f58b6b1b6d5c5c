"""The events of an ADK invocation as an answer: its text, tool calls, sources, tokens, or why there is none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from assay.model.adk_events import OUTPUT_TOOLS, is_retryable, output_tokens
from assay.model.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    Source,
    ToolCall,
    Usage,
    clean_text,
    json_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from google.adk.events.event import Event
    from google.genai import types

_NOT_ENDED = AgentError(AgentErrorKind.RAISED, "ADK ended without a final response")


class EventReader:
    """Reads the events of one invocation, in their order; `response` is the answer so far."""

    def __init__(self) -> None:
        self.invocation_id = ""
        """The invocation's id; empty before its first event."""
        self._text = ""
        self._output: object = None
        self._error: AgentError | None = _NOT_ENDED
        self._calls: dict[str, _Call] = {}
        self._sources: dict[tuple[str, str, str], Source] = {}
        self._counts: dict[str, int] = {}
        self._model = ""
        self._finish_reason = ""

    def add(self, event: Event) -> None:
        """Read the next event; fragments of a streamed one are left out, since it repeats them all."""
        self.invocation_id = event.invocation_id or self.invocation_id
        if event.partial:
            return
        self._add_calls(event)
        self._add_usage(event.usage_metadata)
        for source in _sources(event):
            self._sources.setdefault((source.id, source.uri, source.title), source)
        self._model = clean_text(event.model_version or "") or self._model
        if event.output is not None:
            self._output = event.output
        if event.is_final_response():
            self._add_final(event)

    def response(self, *, is_interrupted: bool = False) -> AgentResponse:
        """Return the answer.

        Args:
            is_interrupted: Whether the invocation raised: a call that has no result then is the one that failed, or
                ran beside it.
        """
        output = None if self._output is None else json.loads(_json(self._output))
        text = self._text or (output if isinstance(output, str) else "")
        return AgentResponse(
            status=AgentStatus.SUCCESS if self._error is None else AgentStatus.ERROR,
            text=clean_text(text),
            error=self._error,
            output=None if isinstance(output, str) else output,
            tool_calls=tuple(call.as_tool_call(is_interrupted=is_interrupted) for call in self._calls.values()),
            sources=tuple(self._sources.values()),
            usage=Usage(**self._counts) if self._counts else None,
            finish_reason=self._finish_reason,
            model=self._model,
        )

    def _add_final(self, event: Event) -> None:
        """Take the text or the error of a final response: there is one for each agent, and the last one counts."""
        parts = event.content.parts or [] if event.content else []
        text = "".join(part.text for part in parts if part.text and not part.thought)
        if event.error_code:
            self._error = _error(_word(event.error_code), clean_text(event.error_message or ""))
        elif text:
            self._error = None
        else:
            # Such as one that changes the state of the session, or the end of a workflow.
            self._error = None if self._error is _NOT_ENDED else self._error
            return
        self._text = text
        self._finish_reason = _word(event.finish_reason)

    def _add_calls(self, event: Event) -> None:
        for call in event.get_function_calls():
            if call.name not in OUTPUT_TOOLS:
                call_id = call.id or f"{event.id}/{len(self._calls)}"
                self._calls[call_id] = _Call(clean_text(call.name or "?"), clean_text(call.id or ""), _json(call.args))
        for answer in event.get_function_responses():
            call = self._calls.get(answer.id or "") or self._first_open(answer.name)
            if call is not None:
                # The type of ADK's that carries it reserves this key for errors.
                call.is_error = bool((answer.response or {}).get("error"))
                call.result_json = _json(answer.response)

    def _first_open(self, name: str | None) -> _Call | None:
        return next((call for call in self._calls.values() if call.name == name and not call.result_json), None)

    def _add_usage(self, found: types.GenerateContentResponseUsageMetadata | None) -> None:
        if found is None:
            return
        counts: dict[str, int | None] = {
            "input_tokens": _sum(found.prompt_token_count, found.tool_use_prompt_token_count),
            "output_tokens": output_tokens(
                _sum(found.prompt_token_count, found.tool_use_prompt_token_count),
                found.candidates_token_count,
                found.thoughts_token_count,
                found.total_token_count,
            ),
            "total_tokens": found.total_token_count,
            "cache_read_tokens": found.cached_content_token_count,
            "reasoning_tokens": found.thoughts_token_count,
            "requests": 1,
        }
        for name, count in counts.items():
            if count is not None:
                self._counts[name] = self._counts.get(name, 0) + count


@dataclass(slots=True)
class _Call:
    name: str
    id: str
    arguments_json: str
    result_json: str = ""
    is_error: bool = False

    def as_tool_call(self, *, is_interrupted: bool) -> ToolCall:
        is_error = self.is_error or (is_interrupted and not self.result_json)
        return ToolCall(self.name, self.id, self.arguments_json, self.result_json, is_error)


def _error(code: str, message: str) -> AgentError:
    status = int(code) if code.isascii() and code.isdigit() and 400 <= int(code) <= 599 else None
    return AgentError(
        kind=AgentErrorKind.RAISED if status is None else AgentErrorKind.HTTP_STATUS,
        message=f"the model answered with error {code}{f': {message}' if message else ''}"[:4000],
        type=code[:200],
        http_status=status,
        retryable=is_retryable(code),
    )


def _sources(event: Event) -> Iterator[Source]:
    """Yield what an answer is grounded on, then what it cites."""
    grounding, citations = event.grounding_metadata, event.citation_metadata
    for chunk in (grounding.grounding_chunks or []) if grounding else []:
        for kind in ("retrieved_context", "web", "maps", "image"):
            found = getattr(chunk, kind)
            if found is not None:
                yield _source(found.model_dump(exclude_none=True))
    for citation in (citations.citations or []) if citations else []:
        yield _source(citation.model_dump(include={"title", "uri"}, exclude_none=True))


def _source(found: Mapping[str, Any]) -> Source:
    def text(*names: str) -> str:
        return clean_text(next((str(found[name]) for name in names if found.get(name)), ""))

    return Source(
        id=text("document_name", "place_id"),
        title=text("title", "domain"),
        uri=text("uri", "source_uri", "image_uri"),
        content=text("text"),
    )


def _word(value: object) -> str:
    """Return the word of an enumeration of ADK's, whose errors have such words or texts of their own."""
    return clean_text(str(getattr(value, "value", value) or ""))


def _json(value: object) -> str:
    """Return what a tool or an agent in this process handed over as JSON text, or what it can be: any object may be."""
    try:
        return clean_text(to_json(value, fallback=repr, inf_nan_mode="strings", bytes_mode="base64").decode())
    except ValueError:  # lone surrogates, and what holds itself
        return json_text(repr(value), "tool_calls")


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None and second is None else (first or 0) + (second or 0)
