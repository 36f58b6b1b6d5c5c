"""Converters between data classes and protobuf messages, and from stored JSON, derived from the fields.

A field of the data class corresponds to the message's field of the same name, or of a name that adds its form:
`left_out` to `left_out_count`, `options` to the text `options_json`, `timeout_s` to `timeout_ms`. An absent value, or a
0 or empty value that looks absent in the message, becomes the data class's default, else None. A field without
a counterpart on either side is an error at import.

For objects sent once per run. Rows, answers and cases have hand-written functions, because there are 100,000 of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from google.protobuf.message import Message

from assay.errors import InvalidInputError, Problem
from assay.wire.json_text import mapping_from_text, mapping_to_text

if TYPE_CHECKING:
    from collections.abc import Iterable


P = TypeVar("P")
M = TypeVar("M", bound=Message)
E = TypeVar("E", bound=Enum)
U = TypeVar("U")


class Part(Protocol):
    """Converts the value of a field, or each value of a repeated field."""

    @property
    def to_wire(self) -> Callable[[Any], Any]:
        """Return the message's value."""

    @property
    def from_wire(self) -> Callable[[Any], Any]:
        """Return the plain value of a message's value."""

    def from_json(self, value: Any, /) -> Any:
        """Return the plain value of a stored value."""


class EnumConverter(Generic[E, U]):
    """Converts members of an enum to those of a message's enum, which have the same names with a prefix.

    Args:
        plain: The plain enum.
        wire: The message's generated enum.
        unknown: The member for numbers unknown to this version; None for none.
        renamed: The message's names that differ, by plain name.
    """

    def __init__(self, plain: type[E], wire: Any, *, unknown: U, **renamed: str) -> None:
        prefix = wire.keys()[0].removesuffix("UNSPECIFIED")
        self._numbers = {member: wire.Value(prefix + renamed.get(member.name, member.name)) for member in plain}
        self._members = {number: member for member, number in self._numbers.items()}
        self._plain = plain
        self._unknown = unknown

    def to_wire(self, member: E) -> Any:
        """Return the number of a member."""
        return self._numbers[member]

    def from_wire(self, number: int) -> E | U:
        """Return the member of a number."""
        return self._members.get(number, self._unknown)

    def from_json(self, value: Any) -> E:
        """Return the member of a stored value."""
        return self._plain(value)


class WordConverter:
    """Converts words to the members of a message's enum: "five-looks" to RULE_FIVE_LOOKS of an enum Rule.

    Args:
        wire: The message's generated enum.
        words: The words.
    """

    def __init__(self, wire: Any, words: Iterable[str]) -> None:
        prefix = wire.keys()[0].removesuffix("UNSPECIFIED")
        self._numbers = {word: wire.Value(prefix + word.upper().replace("-", "_")) for word in words}
        self._words = {number: word for word, number in self._numbers.items()}

    def to_wire(self, word: str) -> Any:
        """Return the number of a word.

        Raises:
            InvalidInputError: There is no such word.
        """
        if word not in self._numbers:
            raise InvalidInputError([Problem(f"must be one of {', '.join(self._numbers)}, not {word!r}")])
        return self._numbers[word]

    def from_wire(self, number: int) -> str:
        """Return the word of a number; empty for UNSPECIFIED and for numbers unknown to this version."""
        return self._words.get(number, "")

    def from_json(self, value: Any) -> str:
        """Return the stored word."""
        return str(value)


@dataclass(frozen=True, slots=True)
class Functions:
    """A part made of two functions; the store holds its plain values unchanged."""

    to_wire: Callable[[Any], Any]
    from_wire: Callable[[Any], Any]

    def from_json(self, value: Any) -> Any:
        """Return the value unchanged."""
        return value


@dataclass(frozen=True, slots=True)
class Spread:
    """A field that has another shape in the message and may use several of its fields.

    Args:
        fields: The message's fields.
        to_wire: Returns their values, by name.
        from_wire: Returns the plain value of the message.
    """

    fields: tuple[str, ...]
    to_wire: Callable[[Any], dict[str, Any]]
    from_wire: Callable[[Any], Any]


class Converter(Generic[P, M]):
    """Converts the objects of a data class.

    Args:
        plain: The data class.
        message: The message class.
        parts: Converters of fields with other objects, or sequences of them, by plain name.
        sequences: Constructors of the plain values of repeated fields, by plain name; `tuple` by default.
        renamed: Fields with other names in the message, by plain name.
        spread: Fields with other shapes in the message, by plain name.

    Raises:
        TypeError: A field has no counterpart.
    """

    def __init__(
        self,
        plain: type[P],
        message: type[M],
        *,
        parts: Mapping[str, Part] | None = None,
        sequences: Mapping[str, Callable[[Iterable[Any]], Any]] | None = None,
        renamed: Mapping[str, str] | None = None,
        spread: Mapping[str, Spread] | None = None,
    ) -> None:
        self._plain, self._message = plain, message
        self._spread = spread or {}
        known = message.DESCRIPTOR.fields_by_name
        unused = set(known) - {name for field in self._spread.values() for name in field.fields}
        self._fields = []
        for field in dataclasses.fields(plain):  # type: ignore[arg-type]  # P is a dataclass
            if field.name in self._spread:
                continue
            name = (renamed or {}).get(field.name) or next((n for n in _names(field.name) if n in unused), "")
            if name not in unused:
                raise TypeError(f"{plain.__name__}.{field.name} has no counterpart in {message.DESCRIPTOR.full_name}")
            unused.remove(name)
            make = (sequences or {}).get(field.name, tuple)
            self._fields.append(_Field(field, known[name], (parts or {}).get(field.name), make))
        if unused:
            raise TypeError(f"{message.DESCRIPTOR.full_name} has more than {plain.__name__}: {sorted(unused)}")

    def part(self, name: str, part: Part) -> None:
        """Set the converter of a field afterwards, for converters that refer to each other."""
        for field in self._fields:
            if field.name == name:
                field.part = part

    def to_wire(self, value: P) -> M:
        """Return the message for an object."""
        values = {field.wire: field.to_wire(getattr(value, field.name)) for field in self._fields}
        for name, spread in self._spread.items():
            values |= spread.to_wire(getattr(value, name))
        return self._message(**values)

    def from_wire(self, message: M) -> P:
        """Return the object in a message.

        Raises:
            ValueError: A JSON text is not a JSON object.
        """
        values = {field.name: field.from_wire(message) for field in self._fields}
        for name, spread in self._spread.items():
            values[name] = spread.from_wire(message)
        return self._plain(**values)

    def from_json(self, data: Mapping[str, Any]) -> P:
        """Return the object from the result of `dataclasses.asdict`, of this version or an earlier one."""
        values = {field.name: field.from_json(data[field.name]) for field in self._fields if field.name in data}
        return self._plain(**values, **{name: data[name] for name in self._spread if name in data})


def _names(name: str) -> tuple[str, ...]:
    return name, f"{name}_count", f"{name}_json", f"{name.removesuffix('_s')}_ms"


class _Field:
    """A field, on both sides."""

    def __init__(
        self,
        plain: dataclasses.Field[Any],
        wire: Any,
        part: Part | None,
        sequence: Callable[[Iterable[Any]], Any],
    ) -> None:
        self.name, self.wire, self.part = plain.name, wire.name, part
        self._plain = plain
        self._sequence = sequence
        self._is_map = wire.message_type is not None and wire.message_type.GetOptions().map_entry
        self._is_repeated = wire.is_repeated and not self._is_map
        self._has_presence = wire.has_presence
        # An unsent inner message has all of its defaults, unless the data class's field has one of its own.
        self._is_due = wire.message_type is not None and plain.default is MISSING
        self._is_text = wire.name == f"{plain.name}_json"
        self._is_ms = plain.name.endswith("_s") and wire.name.endswith("_ms")

    def to_wire(self, value: Any) -> Any:
        if value is None:
            return None
        if self._is_text:
            return mapping_to_text(value)
        if self._is_ms:
            return round(value * 1000)
        if self.part is None:
            return value
        return [self.part.to_wire(field) for field in value] if self._is_repeated else self.part.to_wire(value)

    def from_wire(self, message: Any) -> Any:
        if self._has_presence and not message.HasField(self.wire) and not self._is_due:
            return None if self._plain.default is MISSING else self._plain.default
        value = getattr(message, self.wire)
        if self._is_map:
            return dict(sorted(value.items()))  # maps of messages have no order of their own
        if self._is_repeated:
            return self._sequence(value if self.part is None else map(self.part.from_wire, value))
        if self._is_text:
            return mapping_from_text(value)
        if not value and not self._has_presence and self._plain.default is not MISSING:
            return self._plain.default
        if self.part is not None:
            return self.part.from_wire(value)
        return value / 1000 if self._is_ms else value

    def from_json(self, value: Any) -> Any:
        if value is None:
            return None
        if self._is_repeated:
            return self._sequence(value if self.part is None else map(self.part.from_json, value))
        return value if self.part is None else self.part.from_json(value)
