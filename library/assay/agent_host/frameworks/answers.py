"""What an agent of a framework gave back, as an answer: its text, its typed output, and what it did until it failed."""

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
    """Return the answer of an agent's final value, as `with_value` reads it.

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
    return with_value(plain(value), trace)


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


def check_provided(options: Mapping[str, Any], name: str) -> None:
    """Refuse an option, such as `deps`, that is neither an object for the agent nor a function of the request.

    Raises:
        InvalidInputError: It is neither.
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
