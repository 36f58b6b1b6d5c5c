"""Answers of agents, as objects and as JSON.

The names match `protos/assay/agent/v1/agent.proto`. A missing value is None, never 0. Python agents return this JSON
shape, replies of HTTP agents are mapped to it, datasets may record it, and the store keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_request import AgentRequest, Message
from assay.model.answers.interrupts import Interrupt, InterruptKind, interrupt_to_json, is_waiting, read_interrupts
from assay.model.answers.response_fields import (
    MalformedAnswerError,
    as_amount,
    as_count,
    as_items,
    as_mapping,
    as_number,
    as_text,
    clean_text,
    json_text,
    json_value,
    shown,
)
from assay.model.answers.response_limits import MAX_TRACEBACK_CHARS
from assay.model.answers.response_names import (
    PASSAGE_KEYS,
    RETRIEVED_KEYS,
    SOURCE_KEYS,
    TOOL_CALL_KEYS,
    call_parts,
    fields_of,
    source_parts,
)
from assay.model.answers.response_text import find_text_key, missing_text
from assay.model.answers.usage_names import COST_KEYS, USAGE_KEYS, read_counts, unread_names
from assay.parsing.names import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "AgentError",
    "AgentErrorKind",
    "AgentRequest",
    "AgentResponse",
    "AgentStatus",
    "Attempt",
    "Interrupt",
    "InterruptKind",
    "MalformedAnswerError",
    "Message",
    "Source",
    "ToolCall",
    "Usage",
    "clean_text",
    "error_response",
    "json_text",
    "response_from_json",
    "response_to_json",
]


class AgentStatus(StrEnum):
    """The status that the agent reports for its answer."""

    SUCCESS = "success"
    OUT_OF_SCOPE = "out_of_scope"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    """The agent waits for a person; every rule counts this as an agent error."""

    @property
    def is_failed(self) -> bool:
        """Whether there is no answer: the agent failed or waits for a person."""
        return self in FAILED_STATUSES


FAILED_STATUSES = (AgentStatus.ERROR.value, AgentStatus.INTERRUPTED.value)
"""The statuses that stores and reports count as agent errors."""


class AgentErrorKind(StrEnum):
    """The kind of an agent's failure."""

    RAISED = "raised"
    TIMEOUT = "timeout"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    UNREACHABLE = "unreachable"
    HTTP_STATUS = "http_status"
    NOT_RECORDED = "not_recorded"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class AgentError:
    """Why an agent did not answer.

    Args:
        kind: The kind of failure.
        message: A sentence or two for the user.
        type: The exception's type or the provider's error code, if there is one.
        http_status: The HTTP status, if there is one.
        retryable: Whether a retry may help.
        retry_after_s: The agent server's retry-after, in seconds; not on the wire.
        traceback: A Python agent's traceback without Assay's frames, or the last lines of a command's stderr; otherwise
            empty.
    """

    kind: AgentErrorKind
    message: str
    type: str = ""
    http_status: int | None = None
    retryable: bool = False
    retry_after_s: float | None = None
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A failed attempt at getting an answer."""

    latency_ms: float
    error: AgentError


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call; arguments and result are JSON text."""

    name: str
    id: str = ""
    arguments_json: str = ""
    result_json: str = ""
    is_error: bool = False
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A document, record, event or citation."""

    id: str = ""
    title: str = ""
    uri: str = ""
    content: str = ""
    score: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost; all counts are inclusive."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    requests: int | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class AgentResponse:
    """An agent's answer.

    Args:
        status: The status that the agent reports.
        text: The final answer; for an SQL agent its insights.
        error: Set if and only if status is ERROR.
        output: Structured output: any JSON value; None if there is none.
        sql: The SQL that the agent ran.
        data_rows: Rows that the SQL returned.
        tool_calls: Tool calls in order; None if the agent does not report them.
        sources: Sources by rank, best first.
        retrieved: Retrieved items; None if the agent does not retrieve.
        usage: Tokens and cost, if known.
        latency_ms: Wall time of the successful attempt, measured by the client.
        reported_latency_ms: The agent's own measurement.
        finish_reason: Why the model stopped.
        model: The model that answered.
        attempts: Earlier failed attempts, oldest first.
        metadata: Other data that the agent returns.
        time_to_first_token_ms: Time from the question to the first part of a streamed text.
        cold: Whether this was the first call of the agent's process, or the orchestrator process's first call in the
            run.
        thoughts: The model's thoughts before its answer; not scored.
        interrupts: The agent's stops for a person, in order, those without a decision last. If any lacks a decision,
            the status is INTERRUPTED, unless the agent failed.
    """

    status: AgentStatus = AgentStatus.SUCCESS
    text: str = ""
    error: AgentError | None = None
    output: Any = None
    sql: str | None = None
    data_rows: int | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    sources: tuple[Source, ...] = ()
    retrieved: tuple[Source, ...] | None = None
    usage: Usage | None = None
    latency_ms: float | None = None
    reported_latency_ms: float | None = None
    finish_reason: str = ""
    model: str = ""
    attempts: tuple[Attempt, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    time_to_first_token_ms: float | None = None
    cold: bool = False
    thoughts: str = ""
    interrupts: tuple[Interrupt, ...] = ()

    @property
    def is_failed(self) -> bool:
        """Whether there is no answer: the agent failed or waits for a person."""
        return self.status.is_failed


def error_response(kind: AgentErrorKind, message: str, **details: Any) -> AgentResponse:
    """Return the response of a failed agent; `details` are further fields of AgentError."""
    return AgentResponse(status=AgentStatus.ERROR, error=AgentError(kind=kind, message=message[:4000], **details))


_PARTS: Mapping[str, tuple[str, ...]] = {
    "tool_calls": TOOL_CALL_KEYS,
    "sources": SOURCE_KEYS,
    "retrieved": (*RETRIEVED_KEYS, *PASSAGE_KEYS),
    "usage": USAGE_KEYS,
}
"""The parts of an answer that other tools name differently, and their names."""
_OWN_PARTS = {"tool_calls", "sources", *RETRIEVED_KEYS, "usage"}
_STRUCTURED = ("output", "sql", "data_rows", "tool_calls", "sources", "retrieved")
"""Fields that make a mapping an answer even without a text."""
_KNOWN = {"status", "text", "error", "output", "sql", "data_rows", "latency_ms", "reported_latency_ms",
          "finish_reason", "model", "attempts", "metadata", "time_to_first_token_ms", "cold", "interrupts",
          *_OWN_PARTS}  # fmt: skip
_PLAIN = {"status", "text", "latency_ms"}
_ANSWERED = (AgentStatus.SUCCESS.value, AgentStatus.OUT_OF_SCOPE.value)


def response_from_json(data: object) -> AgentResponse:
    """Return the response that `data` describes.

    Args:
        data: A string (the answer's text) or a mapping with the names of `AgentResponse`. Any of `TEXT_KEYS` may hold
            its text; tool calls, sources, retrieved documents and usage may have the names in `response_names` and
            `usage_names`. A source may be a string (its title), and so may an `error` (its message). Unknown names, and
            a usage that cannot be read, go to `metadata`.

    Raises:
        MalformedAnswerError: `data` has another shape or no text, or a non-empty part has no known name; the message
            names the field, or the fields present.
    """
    if isinstance(data, str):
        return AgentResponse(text=as_text(data, "text"))
    if not isinstance(data, dict):
        raise MalformedAnswerError(f"an answer is a string or a mapping with a 'text' field, not {kind_of(data)}")
    if data.keys() <= _PLAIN and data.get("status") in _ANSWERED and isinstance(data.get("text"), str):
        # Most answers are such, and a run reads each several times; the rest of this takes five times as long.
        latency_ms = as_amount(data.get("latency_ms"), "latency_ms")
        return AgentResponse(AgentStatus(data["status"]), as_text(data["text"], "text"), latency_ms=latency_ms)
    error = _error(data.get("error"))
    interrupts = read_interrupts(data.get("interrupts") or (), "interrupts")
    status = _status(data.get("status"), error, interrupts)
    if status is AgentStatus.ERROR and error is None:
        error = AgentError(AgentErrorKind.RAISED, "the agent reported status error without saying why")
    text_key = find_text_key(data)
    keys = {part: _part_key(data, part) for part in _PARTS}
    has_thoughts = isinstance(data.get("thoughts"), str)
    known = {*_KNOWN, text_key, *keys.values(), *(("thoughts",) if has_thoughts else ())}
    unknown = {key: value for key, value in data.items() if key not in known}
    text = as_text(data[text_key], text_key) if text_key is not None else ""
    if status is AgentStatus.INTERRUPTED and not is_waiting(interrupts):
        interrupts = (*interrupts, Interrupt(message=text[:4000]))  # the agent's message is its question to a person
    usage = _usage(data.get(keys["usage"]), keys["usage"])
    metadata = {**as_mapping(data.get("metadata"), "metadata"), **{str(key): value for key, value in unknown.items()}}
    if (unread := _unread_usage(data.get(keys["usage"]), usage)) is not None:
        metadata.setdefault("usage", unread)  # a metric reports the names that it has
    response = AgentResponse(
        status=status,
        text=text,
        error=error if status is AgentStatus.ERROR else None,
        output=json_value(data.get("output"), "output") if text_key != "output" else None,
        sql=as_text(data["sql"], "sql") if data.get("sql") is not None else None,
        data_rows=as_count(data.get("data_rows"), "data_rows"),
        tool_calls=_tool_calls(data.get(keys["tool_calls"]), keys["tool_calls"]),
        sources=_sources(data.get(keys["sources"]), keys["sources"]) or (),
        retrieved=_sources(data.get(keys["retrieved"]), keys["retrieved"]),
        usage=usage,
        latency_ms=as_amount(data.get("latency_ms"), "latency_ms"),
        reported_latency_ms=as_amount(data.get("reported_latency_ms"), "reported_latency_ms"),
        finish_reason=as_text(data.get("finish_reason"), "finish_reason"),
        model=as_text(data.get("model"), "model"),
        attempts=tuple(_attempt(item, i) for i, item in enumerate(as_items(data.get("attempts"), "attempts"))),
        metadata=json_value(metadata, "metadata"),
        time_to_first_token_ms=as_amount(data.get("time_to_first_token_ms"), "time_to_first_token_ms"),
        cold=data.get("cold") is True,
        thoughts=as_text(data["thoughts"], "thoughts") if has_thoughts else "",
        interrupts=interrupts,
    )
    structured = [keys.get(name, name) for name in _STRUCTURED]
    if text_key is None and status is AgentStatus.SUCCESS and not _is_structured(data, structured, unknown):
        raise missing_text(data)
    return response


def response_to_json(response: AgentResponse) -> dict[str, Any]:
    """Return the response as a JSON object without empty fields."""
    data: dict[str, Any] = {"status": response.status.value, "text": response.text}
    if response.error is not None:
        data["error"] = _error_to_json(response.error)
    for name in ("output", "sql", "data_rows", "latency_ms", "reported_latency_ms", "time_to_first_token_ms"):
        value = getattr(response, name)
        if value is not None:
            data[name] = value
    for name in ("finish_reason", "model", "metadata", "cold", "thoughts"):
        if getattr(response, name):
            data[name] = getattr(response, name)
    if response.tool_calls is not None:
        data["tool_calls"] = [_without_absent(_fields(call)) for call in response.tool_calls]
    if response.sources:
        data["sources"] = [_without_absent(_fields(source)) for source in response.sources]
    if response.retrieved is not None:
        data["retrieved"] = [_without_absent(_fields(source)) for source in response.retrieved]
    if response.usage is not None:
        data["usage"] = _without_absent(_fields(response.usage))
    if response.interrupts:
        data["interrupts"] = [interrupt_to_json(interrupt) for interrupt in response.interrupts]
    if response.attempts:
        data["attempts"] = [
            {"latency_ms": attempt.latency_ms, "error": _error_to_json(attempt.error)} for attempt in response.attempts
        ]
    return data


def _part_key(data: dict[Any, Any], part: str) -> str:
    """Return the field that holds a part of an answer; another tool's name counts if its value fits the part."""
    held = [
        key for key in _PARTS[part] if data.get(key) is not None and (key in _OWN_PARTS or _can_be(part, data[key]))
    ]
    # An empty list yields to another field that holds the items it lacks.
    return next((key for key in held if data[key] not in ([], (), {})), held[0] if held else part)


def _can_be(part: str, value: object) -> bool:
    if part == "usage":
        return isinstance(value, dict)
    return isinstance(value, list | tuple) and all(
        isinstance(item, dict) or (isinstance(item, str) and part != "tool_calls") for item in value
    )


def _is_structured(data: dict[Any, Any], structured: Iterable[str], unknown: dict[Any, Any]) -> bool:
    """Return whether a mapping is an answer without a text; a text under an unknown name may be meant as its text."""
    if any(isinstance(value, str) and value for value in unknown.values()):
        return False
    return any(data.get(name) is not None for name in structured)


def _fields(item: ToolCall | Source | Usage) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__slots__}


def _without_absent(data: dict[str, Any]) -> dict[str, Any]:
    # An explicit 0 counts as data, although 0 == False.
    return {
        key: value
        for key, value in data.items()
        if value is not None and value is not False and value != "" and value != {}
    }


def _error_to_json(error: AgentError) -> dict[str, Any]:
    return {"kind": error.kind.value, "message": error.message} | _without_absent(
        {
            "type": error.type,
            "http_status": error.http_status,
            "retryable": error.retryable,
            "retry_after_s": error.retry_after_s,
            "traceback": error.traceback,
        }
    )


def _status(value: object, error: AgentError | None, interrupts: tuple[Interrupt, ...]) -> AgentStatus:
    if value is None or value == "":
        if error is not None:
            return AgentStatus.ERROR
        return AgentStatus.INTERRUPTED if is_waiting(interrupts) else AgentStatus.SUCCESS
    try:
        status = AgentStatus(str(value).strip().lower())
    except ValueError:
        known = "success, out_of_scope, error or interrupted"
        raise MalformedAnswerError(f"status must be {known}, not {shown(value)}") from None
    if is_waiting(interrupts) and not status.is_failed:
        raise MalformedAnswerError(f"status must be interrupted, not {status}: one of the interrupts has no decision")
    return status


def _error(value: object) -> AgentError | None:
    if value is None or value is False or value == "":
        return None
    if isinstance(value, str):
        return AgentError(AgentErrorKind.RAISED, as_text(value, "error")[:4000])
    data = as_mapping(value, "error")
    kind = data.get("kind", AgentErrorKind.RAISED)
    if not isinstance(kind, str) or kind not in {known.value for known in AgentErrorKind}:
        kind = AgentErrorKind.RAISED
    return AgentError(
        kind=AgentErrorKind(kind),
        message=as_text(data.get("message"), "error.message")[:4000] or "the agent reported an error without a message",
        type=as_text(data.get("type"), "error.type"),
        http_status=as_count(data.get("http_status"), "error.http_status", most=2**32 - 1),
        retryable=data.get("retryable") is True,
        retry_after_s=as_number(data.get("retry_after_s"), "error.retry_after_s"),
        traceback=as_text(data.get("traceback"), "error.traceback")[:MAX_TRACEBACK_CHARS],
    )


def _attempt(value: object, index: int) -> Attempt:
    data = as_mapping(value, f"attempts[{index}]")
    error = _error(data.get("error")) or AgentError(AgentErrorKind.RAISED, "unknown")
    return Attempt(latency_ms=as_amount(data.get("latency_ms"), f"attempts[{index}].latency_ms") or 0.0, error=error)


def _tool_calls(value: object, where: str) -> tuple[ToolCall, ...] | None:
    if value is None:
        return None
    return tuple(_tool_call(item, f"{where}[{index}]") for index, item in enumerate(as_items(value, where)))


def _tool_call(value: object, where: str) -> ToolCall:
    data = as_mapping(value, where)
    call = call_parts(data)
    name = as_text(call.name, f"{where}.name")
    if not name:
        raise MalformedAnswerError(f"{where}.name is missing; its fields are {fields_of(data)}")
    if call.unread and data.get("arguments_json") is None:
        raise MalformedAnswerError(f"{where}.arguments is missing: rename {call.unread[0][:60]!r} if it has them")
    return ToolCall(
        name=name,
        id=as_text(call.id, f"{where}.id"),
        arguments_json=_json_field(data, "arguments", call.arguments, f"{where}.{call.arguments_key}"),
        result_json=_json_field(data, "result", call.result, f"{where}.result"),
        is_error=call.is_error,
        duration_ms=as_amount(data.get("duration_ms"), f"{where}.duration_ms"),
    )


def _json_field(data: dict[str, Any], name: str, value: object, where: str) -> str:
    if data.get(f"{name}_json") is not None:
        return as_text(data[f"{name}_json"], f"{where}_json")
    return "" if value is None else json_text(value, where)


def _sources(value: object, where: str) -> tuple[Source, ...] | None:
    if value is None:
        return None
    return tuple(
        Source(content=clean_text(item))
        if isinstance(item, str) and where in PASSAGE_KEYS
        else _source(item, f"{where}[{index}]")
        for index, item in enumerate(as_items(value, where))
    )


def _source(value: object, where: str) -> Source:
    if isinstance(value, str):
        return Source(title=as_text(value, where))
    data = as_mapping(value, where)
    as_mapping(data.get("metadata"), f"{where}.metadata")
    for name in ("id", "title", "uri", *(() if isinstance(data.get("content"), dict) else ("content",))):
        as_text(data.get(name), f"{where}.{name}")
    as_number(data.get("score"), f"{where}.score")
    parts = source_parts(data)
    others = [item for key, item in data.items() if key not in ("metadata", "score")]
    if parts.is_empty and any(item not in (None, "", [], {}) for item in others):
        raise MalformedAnswerError(
            f"{where} has no name: its fields are {fields_of(data)}; write its title, uri, id or content"
        )
    own = {"id", "title", "uri", "content", "score", "metadata", *parts.used}
    extra = {str(key): item for key, item in data.items() if key not in own}
    return Source(
        id=clean_text(parts.id),
        title=clean_text(parts.title),
        uri=clean_text(parts.uri),
        content=clean_text(parts.content),
        score=parts.score,
        metadata=json_value({**(data.get("metadata") or {}), **extra}, f"{where}.metadata"),
    )


def _usage(value: object, where: str) -> Usage | None:
    """Return a usage; None if it has no known name."""
    if value is None:
        return None
    data = as_mapping(value, where)
    counts = read_counts(data, lambda count, name: as_count(count, f"{where}.{name}"))
    cost = next((data[key] for key in COST_KEYS if data.get(key) is not None), None)
    if data and not counts and cost is None:
        return None
    return Usage(**counts, cost_usd=as_amount(cost, f"{where}.cost_usd"))


def _unread_usage(raw: object, usage: Usage | None) -> object:
    """Return the raw usage if it may hold counts under unknown names; else None."""
    is_counted = usage is not None and (
        usage.cost_usd is not None or (usage.input_tokens is not None and usage.output_tokens is not None)
    )
    return raw if isinstance(raw, dict) and not is_counted and unread_names(raw) else None
