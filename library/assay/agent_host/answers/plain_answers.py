"""Converting an agent's return value into plain data, or into a form that expressions can search."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import AgentResponse, MalformedAnswerError, response_to_json
from assay.model.answers.response_limits import MAX_DEPTH, MAX_VALUES, AnswerTooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_NAMED = 8


class AnswerMap:
    """Reads an agent's return values with the expressions of `agent.map`.

    Args:
        expressions: Valid JMESPath expressions by answer field.
    """

    def __init__(self, expressions: Mapping[str, str]) -> None:
        from assay.model.answers.response_expressions import ResponseExpressions  # imported here: it loads jmespath

        self._expressions = ResponseExpressions(expressions, "agent.map", "the object")

    def read(self, returned: object, text: str = "") -> AgentResponse:
        """Return the answer in an object.

        Args:
            returned: Any return value of the agent; attributes of objects count as fields.
            text: The text that was streamed before it, used if the expressions locate no other.

        Raises:
            MalformedAnswerError: An expression does not fit the object, or locates nothing.
            AnswerTooLargeError: The object, or a value located in it, is too large.
        """
        fields = {name: _unwrapped(value) for name, value in self._expressions.find(_searchable(returned)).items()}
        if text and not fields.get("text"):
            fields["text"] = text
        return self._expressions.answer(fields, lambda: _described(returned))


def is_answer(value: object) -> bool:
    """Return whether a value can be more than the text of an answer: a mapping, a data class or a model."""
    return isinstance(value, Mapping) or _is_dataclass(value) or _dump(value) is not None


def plain_value(value: object) -> Any:
    """Return a value with its data classes, pydantic models and enumerations converted to plain data.

    Raises:
        MalformedAnswerError: The value is nested more than 100 levels deep.
        AnswerTooLargeError: The value holds more than 200,000 values.
    """
    return _Conversion(_plain).of(value)


def _plain(value: object, convert: Callable[[object], Any]) -> Any:
    if isinstance(value, AgentResponse):
        return response_to_json(value)
    if _is_dataclass(value):
        return {field.name: convert(getattr(value, field.name)) for field in dataclasses.fields(value)}  # type: ignore[arg-type]  # it is one
    if (dump := _dump(value)) is not None:
        return dump(mode="json")
    return value


def _searchable(value: object) -> Any:
    """Return a value that expressions can search: lists, mappings, and objects whose attributes are fields."""
    return _Conversion(lambda item, _: _View(item)).of(value)


def _unwrapped(value: object) -> Any:
    return _Conversion(
        lambda item, convert: convert(item.value) if isinstance(item, _View) else _plain(item, convert)
    ).of(value)


class _View:
    """An object whose attributes are read on demand by an expression.

    Args:
        value: The object.
    """

    def __init__(self, value: object) -> None:
        self.value = value

    def get(self, name: str) -> Any:
        """Return an attribute, the way JMESPath looks up fields; None if there is none."""
        return _searchable(getattr(self.value, name, None))


class _Conversion:
    """Converts lists and mappings level by level, at bounded cost.

    Args:
        convert_object: Returns the plain data of an object, using the passed converter for nested objects.
    """

    def __init__(self, convert_object: Callable[[Any, Callable[[object], Any]], Any]) -> None:
        self._convert_object = convert_object
        self._depth = self._count = 0

    def of(self, value: object) -> Any:
        """Return the plain data of a value; plain data is returned unchanged."""
        if value is None or isinstance(value, str | bytes | bytearray | bool | int | float):
            return value.value if isinstance(value, Enum) else value
        if self._depth > MAX_DEPTH:
            raise MalformedAnswerError(f"it is nested more than {MAX_DEPTH} levels deep")
        self._depth += 1
        try:
            return self._of_object(value)
        finally:
            self._depth -= 1

    def _of_object(self, value: object) -> Any:
        if isinstance(value, Enum):
            return self.of(value.value)
        if isinstance(value, Mapping):
            self._charge(len(value))
            items = {key: self.of(item) for key, item in value.items()}
            same = isinstance(value, dict) and all(items[key] is item for key, item in value.items())
            return value if same else items
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self.of(dict(zip(value._fields, value, strict=False)))
        if isinstance(value, list | tuple):
            self._charge(len(value))
            return [self.of(item) for item in value]
        self._charge(1)
        return self._convert_object(value, self.of)

    def _charge(self, count: int) -> None:
        self._count += count
        if self._count > MAX_VALUES:
            raise AnswerTooLargeError(f"the answer holds more than {MAX_VALUES:,} values")


def _is_dataclass(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _dump(value: object) -> Callable[..., Any] | None:
    """Return the method that dumps a model of pydantic or a similar class; None for anything else."""
    dump = getattr(type(value), "model_dump", None)
    return value.model_dump if callable(dump) and not isinstance(value, type) else None  # type: ignore[attr-defined]  # it has just been found


def _described(returned: object) -> str:
    """Return an object's type and the names that expressions can begin with."""
    if isinstance(returned, Mapping):
        names = [str(name) for name in returned]
    else:
        names = [name for name in dir(returned) if not name.startswith("_")]
    shown = ", ".join(map(repr, names[:_MOST_NAMED])) + (", …" if len(names) > _MOST_NAMED else "")
    return f"the {type(returned).__name__} that was returned; fields found: {shown or 'none'}"
