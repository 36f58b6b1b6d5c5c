"""Plain objects to protobuf messages and back, and from the JSON that a store keeps: derived from their fields.

A field of the plain class is the message's field of the same name, or one whose name says more about its form:
`left_out` is `left_out_count`, `options` is the text `options_json`, `timeout_s` is `timeout_ms`. A value that is
absent, or 0 or empty where the message cannot show the difference, is the plain field's default, else None. A field
without a counterpart is an error at import, on either side.

For what travels once a run. Rows, answers and cases have functions of their own: there are 100,000 of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from google.protobuf.message import Message

from assay.wire.json_text import mapping_from_text, mapping_to_text

if TYPE_CHECKING:
    from collections.abc import Iterable


P = TypeVar("P")
M = TypeVar("M", bound=Message)
E = TypeVar("E", bound=Enum)
U = TypeVar("U")


class Part(Protocol):
    """Converts the value of one field, or each value of a repeated one."""

    @property
    def to_wire(self) -> Callable[[Any], Any]:
        """Returns what the message holds."""

    @property
    def from_wire(self) -> Callable[[Any], Any]:
        """Returns the plain value of a message."""

    def from_json(self, value: Any, /) -> Any:
        """Return the plain value of what a store holds."""


class EnumConverter(Generic[E, U]):
    """Members of an enum to those of a message's, which have the same names behind a prefix.

    Args:
        plain: The plain enum.
        wire: The message's, as generated.
        unknown: What a number stands for that this version does not know; None for nothing.
        renamed: Names in the message that differ, by plain name.
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

    def known(self, numbers: Iterable[int]) -> frozenset[E]:
        """Return the members of some numbers, without those that this version does not know."""
        return frozenset(self._members[number] for number in numbers if number in self._members)

    def from_json(self, value: Any) -> E:
        """Return the member of a value."""
        return self._plain(value)


@dataclass(frozen=True, slots=True)
class Functions:
    """Two functions as a part, whose plain values a store holds as they are."""

    to_wire: Callable[[Any], Any]
    from_wire: Callable[[Any], Any]

    def from_json(self, value: Any) -> Any:
        """Return the value."""
        return value


@dataclass(frozen=True, slots=True)
class Spread:
    """A field that has another shape in the message, of one field or several.

    Args:
        fields: The message's fields.
        to_wire: Makes their values, by name.
        from_wire: Makes the plain value of the message.
    """

    fields: tuple[str, ...]
    to_wire: Callable[[Any], dict[str, Any]]
    from_wire: Callable[[Any], Any]


class Converter(Generic[P, M]):
    """Converts objects of one dataclass.

    Args:
        plain: The dataclass.
        message: Its message.
        parts: Converters of fields that hold other objects, or sequences of them, by plain name.
        sequences: What makes the plain value of a repeated field, by plain name; `tuple` where nothing is said.
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
        unused = set(known) - {name for each in self._spread.values() for name in each.fields}
        self._fields = []
        for each in dataclasses.fields(plain):  # type: ignore[arg-type]  # P is a dataclass
            if each.name in self._spread:
                continue
            name = (renamed or {}).get(each.name) or next((n for n in _names(each.name) if n in unused), "")
            if name not in unused:
                raise TypeError(f"{plain.__name__}.{each.name} has no counterpart in {message.DESCRIPTOR.full_name}")
            unused.remove(name)
            make = (sequences or {}).get(each.name, tuple)
            self._fields.append(_Field(each, known[name], (parts or {}).get(each.name), make))
        if unused:
            raise TypeError(f"{message.DESCRIPTOR.full_name} has more than {plain.__name__}: {sorted(unused)}")

    def part(self, name: str, part: Part) -> None:
        """Give a field its converter afterwards: one that needs this one."""
        for each in self._fields:
            if each.name == name:
                each.part = part

    def to_wire(self, value: P) -> M:
        """Return the message of an object."""
        given = {each.wire: each.to_wire(getattr(value, each.name)) for each in self._fields}
        for name, spread in self._spread.items():
            given |= spread.to_wire(getattr(value, name))
        return self._message(**given)

    def from_wire(self, message: M) -> P:
        """Return the object of a message.

        Raises:
            ValueError: A JSON text is not a JSON object.
        """
        found = {each.name: each.from_wire(message) for each in self._fields}
        for name, spread in self._spread.items():
            found[name] = spread.from_wire(message)
        return self._plain(**found)

    def from_json(self, data: Mapping[str, Any]) -> P:
        """Return the object that `dataclasses.asdict` made, of this version or an earlier one."""
        found = {each.name: each.from_json(data[each.name]) for each in self._fields if each.name in data}
        return self._plain(**found, **{name: data[name] for name in self._spread if name in data})


def _names(name: str) -> tuple[str, ...]:
    return name, f"{name}_count", f"{name}_json", f"{name.removesuffix('_s')}_ms"


class _Field:
    """One field, on both sides."""

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
        # A message within that is not sent has all of its defaults, unless the plain field has one.
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
        return [self.part.to_wire(each) for each in value] if self._is_repeated else self.part.to_wire(value)

    def from_wire(self, message: Any) -> Any:
        if self._has_presence and not message.HasField(self.wire) and not self._is_due:
            return None if self._plain.default is MISSING else self._plain.default
        value = getattr(message, self.wire)
        if self._is_map:
            return dict(sorted(value.items()))
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
