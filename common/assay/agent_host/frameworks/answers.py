"""What an agent of a framework gave back, as an answer: its text, its typed output, and what it did until it failed."""

from __future__ import annotations

import dataclasses
import inspect
import json
import reprlib
from typing import TYPE_CHECKING, Any, TypeVar

from assay.agent_host.progress import report_progress
from assay.errors import InvalidInputError, Problem
from assay.model.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    MalformedAnswerError,
    response_from_json,
)
from assay.model.response_text import find_text_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from assay.model.agent_request import AgentRequest
    from assay.model.agent_response import Interrupt

ResultT = TypeVar("ResultT")

_FIELDS = ("status", "sql", "data_rows", "sources", "retrieved", "events", "retrieved_items")
_READ = ("text", "output", "status", "error", "sql", "data_rows", "sources", "retrieved", "interrupts")


def answer_with(value: object, trace: AgentResponse) -> AgentResponse:
    """Return the answer of an agent's final value.

    A text is the text of the answer. Anything else is its structured output; of a mapping the text is taken from the
    fields that have it in every answer, and so are `status`, `sql`, `data_rows`, `sources` and `retrieved`. A value
    without a text is written out as JSON.

    Args:
        value: What the framework calls the final output.
        trace: The rest of the answer: tool calls, usage, model.

    Raises:
        MalformedAnswerError: There is no value, or it cannot be written as JSON; its row has the trace.
    """
    report_progress(lambda: trace)
    if isinstance(value, str):
        return dataclasses.replace(trace, text=value)
    if value is None:
        raise MalformedAnswerError("the agent ended without a final output")
    data = plain(value)
    if not isinstance(data, dict):
        return dataclasses.replace(trace, text=json.dumps(data, ensure_ascii=False), output=data)
    key = find_text_key(data)
    said = data[key] if key is not None else None
    text = str(said) if isinstance(said, str | bool | int | float) else json.dumps(data, ensure_ascii=False)
    read = response_from_json({"text": text, "output": data, **_answer_fields(data)})
    found = {name: getattr(read, name) for name in _READ if getattr(read, name) not in (None, "", ())}
    return dataclasses.replace(trace, **found)


def _answer_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a typed output that an answer has too, where they can be read: their type is the user's."""
    fields: dict[str, Any] = {}
    for name in _FIELDS:
        if data.get(name) is not None:
            try:
                response_from_json({"text": "", name: data[name]})
            except MalformedAnswerError:
                continue
            fields[name] = data[name]
    if fields.get("status") == AgentStatus.ERROR and isinstance(data.get("error"), str):
        fields["error"] = data["error"]
    return fields


def plain(value: object) -> Any:
    """Return a value as JSON has it: models and dataclasses become mappings, and what JSON lacks becomes a text.

    Raises:
        MalformedAnswerError: It contains itself, is nested too deep, or its own code raised.
    """
    from pydantic_core import to_jsonable_python  # every framework brings it

    try:
        data = to_jsonable_python(value, serialize_unknown=True, bytes_mode="base64")
        return json.loads(json.dumps(data), parse_constant=str)  # NaN and the infinities
    except Exception as problem:
        raise MalformedAnswerError(f"{type(value).__qualname__} cannot be written as JSON: {problem}") from problem


def json_of(value: object) -> str:
    """Return a value as JSON text; a text that is a JSON object or array stays as it is.

    A value that cannot be written becomes a short text of it, so that the rest of its trace is not lost.
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            json.loads(value)
        except (ValueError, RecursionError):
            pass
        else:
            return value
    try:
        return json.dumps(plain(value), ensure_ascii=False)
    except MalformedAnswerError:
        return json.dumps(reprlib.repr(value), ensure_ascii=False)


async def traced(call: Awaitable[ResultT], trace: Callable[[], AgentResponse]) -> ResultT:
    """Return what a call of an agent returns; the row of a call that fails or times out has its trace.

    Args:
        call: The call.
        trace: Returns what the agent has done until now.
    """
    report_progress(trace)
    return await call


def unfinished(trace: AgentResponse, message: str) -> AgentResponse:
    """Return the answer of an agent that waits for input of a person; asking again does not help."""
    error = AgentError(AgentErrorKind.RAISED, message[:4000], type="InputRequired")
    return dataclasses.replace(trace, status=AgentStatus.ERROR, error=error)


def interrupted(trace: AgentResponse, interrupts: Sequence[Interrupt]) -> AgentResponse:
    """Return the answer of an agent that waits for a person.

    Args:
        trace: What the agent did until then.
        interrupts: What it stopped at, those with a decision first; one at least has none.
    """
    return dataclasses.replace(trace, status=AgentStatus.INTERRUPTED, error=None, interrupts=tuple(interrupts))


def refused(answer: AgentResponse, explanation: str = "") -> AgentResponse:
    """Return the answer of a model that refused, or that the provider's content filter cut off, as a failed one.

    Args:
        answer: With the text that the model gave in place of an answer, or began.
        explanation: What the model or the provider says about it; empty where it says nothing.
    """
    message = "the model refused to answer, or the provider's content filter held the answer back"
    if explanation or answer.text:
        message += f": {(explanation or answer.text)[:500]}"
    error = AgentError(AgentErrorKind.RAISED, message, type="refusal")
    return dataclasses.replace(answer, status=AgentStatus.ERROR, error=error)


async def made_for(option: object, request: AgentRequest) -> Any:
    """Return the object that an option gives an agent for a request: what its function returns, or the object."""
    made = option(request) if inspect.isroutine(option) else option
    return await made if inspect.iscoroutine(made) else made


def check_not_class(option: object, name: str) -> None:
    """Refuse an option that names a class where an object of it is needed.

    Raises:
        InvalidInputError: It does.
    """
    if inspect.isclass(option):
        message = f"names the class {option.__qualname__}: name an object of it, or a function of the request"
        raise InvalidInputError([Problem(message, f"agent.{name}")], reason="AGENT_NOT_FOUND")
