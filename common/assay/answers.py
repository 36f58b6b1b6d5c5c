"""What an agent is asked and what it answers, as plain objects and as JSON.

The names are those of `protos/assay/v1/agent.proto`. Absent is None, never 0. The JSON shape is the one
that a Python agent may return, an HTTP agent is mapped to, a dataset may record, and the store keeps.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "AgentError",
    "AgentErrorKind",
    "AgentRequest",
    "AgentResponse",
    "AgentStatus",
    "Attempt",
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
    """The agent's own word about its answer."""

    SUCCESS = "success"
    OUT_OF_SCOPE = "out_of_scope"
    ERROR = "error"


class AgentErrorKind(StrEnum):
    """What kind of failure an agent's error is."""

    RAISED = "raised"
    TIMEOUT = "timeout"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    UNREACHABLE = "unreachable"
    HTTP_STATUS = "http_status"
    NOT_RECORDED = "not_recorded"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; `role` is system, user, assistant or tool."""

    role: str
    content: str
    name: str = ""
    tool_call_id: str = ""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One question to an agent: one attempt at one turn of one repeat of one case.

    Args:
        request_id: Unique per case, turn, repeat and attempt.
        run_id: The run that asks.
        case_id: The case that is asked.
        input: This turn's text from the user.
        repeat_index: Which repeat of the case, from 0.
        turn_index: Which turn, from 0.
        session_id: The same for all turns of one case and repeat.
        idempotency_key: The same for every attempt at this turn.
        history: Earlier messages, oldest first.
        variables: Template variables.
        parameters: Call parameters such as filters.
        metadata: Free labels of the case.
        timeout_s: How long the agent may take, in seconds.
    """

    request_id: str
    run_id: str
    case_id: str
    input: str
    repeat_index: int = 0
    turn_index: int = 0
    session_id: str = ""
    idempotency_key: str = ""
    history: tuple[Message, ...] = ()
    variables: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class AgentError:
    """Why an agent did not answer.

    Args:
        kind: The kind of failure.
        message: A sentence or two for people.
        type: The exception's type or the provider's error code, where there is one.
        http_status: The HTTP status, where there is one.
        retryable: Whether asking again may help.
        retry_after_s: How long the agent's server asked to be left alone, in seconds; not on the wire.
    """

    kind: AgentErrorKind
    message: str
    type: str = ""
    http_status: int | None = None
    retryable: bool = False
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One failed try at getting an answer."""

    latency_ms: float
    error: AgentError


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool; arguments and result are JSON text."""

    name: str
    id: str = ""
    arguments_json: str = ""
    result_json: str = ""
    is_error: bool = False
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """One document, record, event or citation."""

    id: str = ""
    title: str = ""
    uri: str = ""
    content: str = ""
    score: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost; buckets are inclusive."""

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
        status: The agent's own word.
        text: The final answer; for an SQL agent its insights.
        error: Set exactly when status is ERROR.
        output: Structured output: any JSON value, None where there is none.
        sql: The SQL that was run.
        data_rows: Rows that the SQL returned.
        tool_calls: In the order they were made.
        sources: In rank order, best first.
        retrieved: Items retrieved; None where the agent does not retrieve.
        usage: Tokens and cost, where known.
        latency_ms: Wall time of the successful attempt, measured by the caller.
        reported_latency_ms: The agent's own measurement.
        finish_reason: Why a model stopped.
        model: The model that answered.
        attempts: Earlier attempts that failed, oldest first.
        metadata: Anything else the agent wants to keep.
    """

    status: AgentStatus = AgentStatus.SUCCESS
    text: str = ""
    error: AgentError | None = None
    output: Any = None
    sql: str | None = None
    data_rows: int | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    sources: tuple[Source, ...] = ()
    retrieved: tuple[Source, ...] | None = None
    usage: Usage | None = None
    latency_ms: float | None = None
    reported_latency_ms: float | None = None
    finish_reason: str = ""
    model: str = ""
    attempts: tuple[Attempt, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)


class MalformedAnswerError(ValueError):
    """The answer has not the shape of an answer; the message says which field and what was expected."""


def error_response(kind: AgentErrorKind, message: str, **details: Any) -> AgentResponse:
    """Return the answer of an agent that failed; `details` are further fields of AgentError."""
    return AgentResponse(status=AgentStatus.ERROR, error=AgentError(kind=kind, message=message[:4000], **details))


_INT_FIELDS = ("input_tokens", "output_tokens", "total_tokens", "cache_read_tokens", "cache_write_tokens",
               "reasoning_tokens", "requests")  # fmt: skip
_MAX_DEPTH = 100
_RETRIEVED_NAMES = ("retrieved", "events", "retrieved_items")
_KNOWN = {"status", "text", "error", "output", "sql", "data_rows", "tool_calls", "sources", "usage",
          "latency_ms", "reported_latency_ms", "finish_reason", "model", "attempts", "metadata",
          *_RETRIEVED_NAMES}  # fmt: skip


def response_from_json(data: object) -> AgentResponse:
    """Return the answer that `data` describes.

    Args:
        data: A string (the answer's text) or a mapping with the names of `AgentResponse`. `events` and
            `retrieved_items` are read as `retrieved`; a source may be a string (its title); an `error`
            may be a string (its message). Unknown names go to `metadata`; a mapping of nothing else is no
            answer, but a text under a name that is not read.

    Raises:
        MalformedAnswerError: `data` has another shape; the message names the field.
    """
    if isinstance(data, str):
        return AgentResponse(text=_text(data, "text"))
    if not isinstance(data, dict):
        raise MalformedAnswerError(f"an answer is a text or a mapping with a 'text' field, not {type(data).__name__}")
    if data and not _KNOWN & data.keys():
        found = ", ".join(_shown(key) for key in list(data)[:5])
        raise MalformedAnswerError(f"a mapping has its text in the field 'text', and this one has only {found}")
    error = _error(data.get("error"))
    status = _status(data.get("status"), error)
    if status is AgentStatus.ERROR and error is None:
        error = AgentError(AgentErrorKind.RAISED, "the agent reported status error without saying why")
    unknown = {key: value for key, value in data.items() if key not in _KNOWN}
    metadata = {**_mapping(data.get("metadata"), "metadata"), **{str(key): value for key, value in unknown.items()}}
    return AgentResponse(
        status=status,
        text=_text(data.get("text"), "text"),
        error=error if status is AgentStatus.ERROR else None,
        output=_json_value(data.get("output"), "output"),
        sql=_text(data["sql"], "sql") if data.get("sql") is not None else None,
        data_rows=_count(data.get("data_rows"), "data_rows"),
        tool_calls=tuple(_tool_call(item, i) for i, item in enumerate(_list(data.get("tool_calls"), "tool_calls"))),
        sources=_sources(data.get("sources"), "sources") or (),
        retrieved=next((_sources(data[name], name) for name in _RETRIEVED_NAMES if data.get(name) is not None), None),
        usage=_usage(data.get("usage")),
        latency_ms=_number(data.get("latency_ms"), "latency_ms"),
        reported_latency_ms=_number(data.get("reported_latency_ms"), "reported_latency_ms"),
        finish_reason=_text(data.get("finish_reason"), "finish_reason"),
        model=_text(data.get("model"), "model"),
        attempts=tuple(_attempt(item, i) for i, item in enumerate(_list(data.get("attempts"), "attempts"))),
        metadata=_json_value(metadata, "metadata"),
    )


def response_to_json(response: AgentResponse) -> dict[str, Any]:
    """Return the answer as a JSON object that leaves out what is absent."""
    data: dict[str, Any] = {"status": response.status.value, "text": response.text}
    if response.error is not None:
        data["error"] = _error_to_json(response.error)
    for name in ("output", "sql", "data_rows", "latency_ms", "reported_latency_ms"):
        value = getattr(response, name)
        if value is not None:
            data[name] = value
    for name in ("finish_reason", "model", "metadata"):
        if getattr(response, name):
            data[name] = getattr(response, name)
    if response.tool_calls:
        data["tool_calls"] = [_without_absent(_fields(call)) for call in response.tool_calls]
    if response.sources:
        data["sources"] = [_without_absent(_fields(source)) for source in response.sources]
    if response.retrieved is not None:
        data["retrieved"] = [_without_absent(_fields(source)) for source in response.retrieved]
    if response.usage is not None:
        data["usage"] = _without_absent(_fields(response.usage))
    if response.attempts:
        data["attempts"] = [
            {"latency_ms": attempt.latency_ms, "error": _error_to_json(attempt.error)} for attempt in response.attempts
        ]
    return data


def _fields(item: ToolCall | Source | Usage) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__slots__}


def _without_absent(data: dict[str, Any]) -> dict[str, Any]:
    # 0 is a number that was given, although it equals False.
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
        }
    )


def _status(value: object, error: AgentError | None) -> AgentStatus:
    if value is None or value == "":
        return AgentStatus.ERROR if error is not None else AgentStatus.SUCCESS
    try:
        return AgentStatus(str(value).strip().lower())
    except ValueError:
        raise MalformedAnswerError(f"status must be success, out_of_scope or error, not {_shown(value)}") from None


def _error(value: object) -> AgentError | None:
    if value is None or value is False or value == "":
        return None
    if isinstance(value, str):
        return AgentError(AgentErrorKind.RAISED, _text(value, "error")[:4000])
    data = _mapping(value, "error")
    kind = data.get("kind", AgentErrorKind.RAISED)
    if not isinstance(kind, str) or kind not in {known.value for known in AgentErrorKind}:
        kind = AgentErrorKind.RAISED
    return AgentError(
        kind=AgentErrorKind(kind),
        message=_text(data.get("message"), "error.message")[:4000] or "the agent reported an error without a message",
        type=_text(data.get("type"), "error.type"),
        http_status=_count(data.get("http_status"), "error.http_status", below=2**32),
        retryable=data.get("retryable") is True,
        retry_after_s=_number(data.get("retry_after_s"), "error.retry_after_s"),
    )


def _attempt(value: object, index: int) -> Attempt:
    data = _mapping(value, f"attempts[{index}]")
    error = _error(data.get("error")) or AgentError(AgentErrorKind.RAISED, "unknown")
    return Attempt(latency_ms=_number(data.get("latency_ms"), f"attempts[{index}].latency_ms") or 0.0, error=error)


def _tool_call(value: object, index: int) -> ToolCall:
    where = f"tool_calls[{index}]"
    data = _mapping(value, where)
    name = _text(data.get("name"), f"{where}.name")
    if not name:
        raise MalformedAnswerError(f"{where}.name is missing")
    return ToolCall(
        name=name,
        id=_text(data.get("id"), f"{where}.id"),
        arguments_json=_json_text(data, "arguments", where),
        result_json=_json_text(data, "result", where),
        is_error=data.get("is_error") is True,
        duration_ms=_number(data.get("duration_ms"), f"{where}.duration_ms"),
    )


def _json_text(data: dict[str, Any], name: str, where: str) -> str:
    if data.get(f"{name}_json") is not None:
        return _text(data[f"{name}_json"], f"{where}.{name}_json")
    if data.get(name) is None:
        return ""
    return json_text(data[name], f"{where}.{name}")


def json_text(value: object, where: str) -> str:
    """Return `value` as JSON text, or raise MalformedAnswerError naming `where`."""
    try:
        return clean_text(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as problem:
        raise MalformedAnswerError(f"{where} cannot be written as JSON: {problem}") from None


def _json_value(value: Any, where: str) -> Any:
    """Return `value` as it comes back from JSON, so that it can be stored and sent whatever it was."""
    if value is None:
        return None
    plain = json.loads(json_text(value, where))
    level = [plain]
    for _ in range(_MAX_DEPTH):
        level = [child for item in level for child in _children(item)]
        if not level:
            return plain
    raise MalformedAnswerError(f"{where} is nested more than {_MAX_DEPTH} levels deep")


def _children(item: Any) -> Iterable[Any]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()


def _sources(value: object, where: str) -> tuple[Source, ...] | None:
    if value is None:
        return None
    return tuple(_source(item, f"{where}[{index}]") for index, item in enumerate(_list(value, where)))


def _source(value: object, where: str) -> Source:
    if isinstance(value, str):
        return Source(title=_text(value, where))
    data = _mapping(value, where)
    known = {"id", "title", "uri", "content", "score", "metadata"}
    extra = {str(key): item for key, item in data.items() if key not in known}
    return Source(
        id=_text(data.get("id"), f"{where}.id"),
        title=_text(data.get("title"), f"{where}.title"),
        uri=_text(data.get("uri"), f"{where}.uri"),
        content=_text(data.get("content"), f"{where}.content"),
        score=_number(data.get("score"), f"{where}.score"),
        metadata=_json_value({**_mapping(data.get("metadata"), f"{where}.metadata"), **extra}, f"{where}.metadata"),
    )


def _usage(value: object) -> Usage | None:
    if value is None:
        return None
    data = _mapping(value, "usage")
    counts = {name: _count(data.get(name), f"usage.{name}") for name in _INT_FIELDS}
    return Usage(**counts, cost_usd=_number(data.get("cost_usd"), "usage.cost_usd"))


def _text(value: object, where: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | int | float):
        return str(value)
    if not isinstance(value, str):
        raise MalformedAnswerError(f"{where} must be a text, not {type(value).__name__}")
    return clean_text(value)


def clean_text(text: str) -> str:
    """Return the text with NUL and lone surrogates, which no store or wire takes, replaced by U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _number(value: object, where: str) -> float | None:
    if value is None:
        return None
    try:
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except OverflowError:
        pass  # a whole number beyond every float
    raise MalformedAnswerError(f"{where} must be a finite number, not {_shown(value)}")


def _count(value: object, where: str, *, below: int = 2**63) -> int | None:
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < below:
        raise MalformedAnswerError(f"{where} must be a whole number from 0, not {_shown(value)}")
    return value


def _list(value: object, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise MalformedAnswerError(f"{where} must be a list, not {type(value).__name__}")
    return list(value)


def _mapping(value: object, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedAnswerError(f"{where} must be a mapping, not {type(value).__name__}")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
