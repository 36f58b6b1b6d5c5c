"""Converting a framework agent's result into an answer: text, typed output, and the trace of a failed call."""

from __future__ import annotations

import dataclasses
import inspect
import json
import reprlib
from typing import TYPE_CHECKING, Any, TypeVar

from assay.agent_host.lifespan import accepts
from assay.agent_host.progress import report_progress
from assay.errors import InvalidInputError, Problem
from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    MalformedAnswerError,
)
from assay.model.answers.final_value import with_value

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from assay.model.answers.agent_response import Interrupt

ResultT = TypeVar("ResultT")


def answer_with(value: object, trace: AgentResponse) -> AgentResponse:
    """Return the answer for an agent's final value, as `with_value` reads it.

    Args:
        value: The framework's final output.
        trace: The rest of the answer: tool calls, usage, model.

    Raises:
        MalformedAnswerError: There is no value, or it cannot be written as JSON; the row has the trace.
    """
    report_progress(lambda: trace)
    if isinstance(value, str):
        return dataclasses.replace(trace, text=value)
    if value is None:
        raise MalformedAnswerError("the agent ended without a final output")
    return with_value(plain(value), trace)


def plain(value: object) -> Any:
    """Return a value in JSON form: models and data classes become mappings, values unknown to JSON become texts.

    Raises:
        MalformedAnswerError: The value contains itself, is nested too deep, or its own code raised.
    """
    from pydantic_core import to_jsonable_python  # every framework installs it

    try:
        data = to_jsonable_python(value, serialize_unknown=True, bytes_mode="base64")
        return json.loads(json.dumps(data), parse_constant=str)  # NaN and the infinities
    except Exception as problem:
        raise MalformedAnswerError(f"{type(value).__qualname__} cannot be written as JSON: {problem}") from problem


def json_of(value: object) -> str:
    """Return a value as JSON text; a text of a JSON object or array is unchanged.

    A value that cannot be written becomes a short text, so that the rest of its trace is not lost.
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
    """Return the result of an agent's call; if it fails or times out, its row has the trace.

    Args:
        call: The call.
        trace: Returns the agent's trace so far.
    """
    report_progress(trace)
    return await call


def interrupted(trace: AgentResponse, interrupts: Sequence[Interrupt]) -> AgentResponse:
    """Return the answer of an agent that waits for a person.

    Args:
        trace: The agent's trace so far.
        interrupts: Its stops, those with a decision first; at least one has none.
    """
    return dataclasses.replace(trace, status=AgentStatus.INTERRUPTED, error=None, interrupts=tuple(interrupts))


def refused(answer: AgentResponse, explanation: str = "") -> AgentResponse:
    """Return a failed answer for a model that refused, or was cut off by the provider's content filter.

    Args:
        answer: An answer with the text that the model gave instead, or began.
        explanation: The explanation of the model or provider; empty if there is none.
    """
    message = "the model refused to answer, or the provider's content filter held the answer back"
    if explanation or answer.text:
        message += f": {(explanation or answer.text)[:500]}"
    error = AgentError(AgentErrorKind.RAISED, message, type="refusal")
    return dataclasses.replace(answer, status=AgentStatus.ERROR, error=error)


def check_provided(options: Mapping[str, Any], name: str) -> None:
    """Refuse an option, such as `deps`, that is neither an object for the agent nor a function of the request.

    Raises:
        InvalidInputError: The option is neither.
    """
    option = options.get(name)
    message = ""
    if inspect.isclass(option):
        message = f"names the class {option.__qualname__}: name an object of it, or a function of the request"
    elif inspect.isroutine(option):
        has_lifespan = "lifespan" in options
        if not accepts(option, 1) and not (has_lifespan and accepts(option, 2)):
            also = ", or also what the lifespan yields" if has_lifespan else ""
            message = f"names {option.__qualname__}, which takes other arguments than the request{also}"
    if message:
        raise InvalidInputError([Problem(message, f"agent.{name}")], reason="AGENT_NOT_FOUND")
