"""The arguments of a user's metric function, chosen by parameter name, and the meaning of its result."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

from assay.agent_host.argument import is_text_type
from assay.model.answers.agent_response import clean_text
from assay.model.metric_call import MAX_REASONING_CHARS, MetricOutcome, MetricResult
from assay.parsing.names import kind_of, nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.model.metric_call import MetricRequest

PARAMETERS: Mapping[str, Callable[[MetricRequest], Any]] = {
    "answer": lambda request: request.response.text,
    "text": lambda request: request.response.text,
    "response": lambda request: request.response,
    "case": lambda request: request.case,
    "reference": lambda request: next(iter(request.case.references), None),
    "references": lambda request: request.case.references,
    "request": lambda request: request.question,
    "question": lambda request: request.case.question,
}
"""The possible parameter names with their contents."""

_BY_TYPE = {"AgentResponse": "response", "Case": "case", "AgentRequest": "request"}
_FIELDS = {"value", "reasoning"}
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class MalformedResultError(ValueError):
    """A function's return value is not a metric's value; the message says what it is."""


@dataclass(frozen=True, slots=True)
class Binding:
    """Assigns `PARAMETERS` to a function's parameters: some by position, others by name."""

    positional: tuple[str, ...]
    named: Mapping[str, str]

    def call(self, function: Callable[..., Any], request: MetricRequest) -> Any:
        """Return a function's result for a request."""
        positional = [PARAMETERS[source](request) for source in self.positional]
        return function(*positional, **{name: PARAMETERS[source](request) for name, source in self.named.items()})


def bind(function: object) -> Binding | str:
    """Return the binding of a function as a metric, or why it cannot be one."""
    if inspect.isclass(function):
        return "is a class: name a function, or an instance that can be called"
    if not callable(function):
        return f"is a value of type {type(function).__name__}, which cannot be called: name a function"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "yields values, and a metric returns one: use `return`"
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "has no readable signature: name a function written in Python"
    positional, named, unknown = [], {}, []
    for index, parameter in enumerate(parameters):
        source = _source(parameter, is_first=index == 0)
        if source and parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            positional.append(source)
        elif source and parameter.kind in _NAMED:
            named[parameter.name] = source
        elif parameter.default is inspect.Parameter.empty and parameter.kind in (
            *_NAMED,
            inspect.Parameter.POSITIONAL_ONLY,
        ):
            unknown.append(parameter.name)
    if unknown:
        close = nearest(unknown[0], PARAMETERS)
        hint = f"; did you mean {close!r}?" if close else ""
        return f"has the parameter {unknown[0]!r}, and a metric receives {', '.join(PARAMETERS)}{hint}"
    if not positional and not named:
        return f"receives nothing of a row: give it a parameter of {', '.join(PARAMETERS)}"
    return Binding(tuple(positional), named)


def read_result(returned: object) -> MetricOutcome:
    """Return the meaning of a function's result.

    Raises:
        MalformedResultError: It is not a finite number, a truth value, None, a `MetricResult` or a mapping of one.
    """
    value, reasoning = _parts(returned)
    reasoning = clean_text(reasoning[:MAX_REASONING_CHARS])
    if callable(item := getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:
        value = item()  # a number of numpy or torch
    if value is None:
        return MetricOutcome(reasoning=reasoning)
    if isinstance(value, bool):
        return MetricOutcome(float(value), is_boolean=True, reasoning=reasoning)
    if not isinstance(value, Real):
        raise MalformedResultError(
            f"it returned {kind_of(value)}; a metric returns a number, True, False, None, an assay.MetricResult or a "
            "mapping with `value` and `reasoning`"
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise MalformedResultError(f"it returned {number}, which is not finite; return None if there is no value")
    return MetricOutcome(number, reasoning=reasoning)


def _source(parameter: inspect.Parameter, *, is_first: bool) -> str:
    """Return the element of `PARAMETERS` for a parameter: by its name, else by its type; empty for none."""
    if parameter.name in PARAMETERS:
        return parameter.name
    kind = parameter.annotation
    if is_first and is_text_type(kind):
        return "text"
    name = kind.strip("'\"").rpartition(".")[2] if isinstance(kind, str) else getattr(kind, "__name__", "")
    return _BY_TYPE.get(name, "")


def _parts(returned: object) -> tuple[Any, str]:
    value: Any
    reasoning: Any
    if isinstance(returned, MetricResult):
        value, reasoning = returned.value, returned.reasoning
    elif isinstance(returned, Mapping):
        unknown = [str(key) for key in returned if key not in _FIELDS]
        if unknown or "value" not in returned:
            fields = ", ".join(map(str, returned)) or "nothing"
            raise MalformedResultError(
                f"it returned a mapping with {fields[:200]}, where `value` and `reasoning` are due"
            )
        value, reasoning = returned["value"], returned.get("reasoning", "")
    else:
        return returned, ""
    if reasoning is None:
        return value, ""
    if not isinstance(reasoning, str):
        raise MalformedResultError(f"the reasoning must be a text, not {kind_of(reasoning)}")
    return value, reasoning
