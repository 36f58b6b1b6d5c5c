"""Parts of a request that a server does not know: fields, and numbers of enums.

An older server that ignored them would fail open: a condition that it does not know would match everything, and a cap
would be none. Questions to agents are the exception: an agent answers what it knows of a question.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

from assay.errors import InvalidInputError, Problem
from assay.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.message import Message

UNKNOWN_FIELD = "UNKNOWN_FIELD"
UNKNOWN_VALUE = "UNKNOWN_VALUE"
_STRICT, _LENIENT = "assay.", "assay.agent."


def is_strict(method: str) -> bool:
    """Return whether a method, by its full name, refuses requests with unknown parts."""
    service, _, name = method.removeprefix("/").partition("/")
    if not service.startswith(_STRICT) or service.startswith(_LENIENT):
        return False
    try:
        return name in descriptor_pool.Default().FindServiceByName(service).methods_by_name
    except KeyError:  # served without a contract
        return False


def check_known(message: Message, raw: bytes) -> None:
    """Refuse a message with parts that this version does not know.

    Args:
        message: The message; unknown fields are removed from it.
        raw: Its bytes.

    Raises:
        InvalidInputError: It has such parts; lists all of them with their paths. Unknown fields have their numbers.
    """
    size = message.ByteSize()
    message.DiscardUnknownFields()
    fields = list(_unknown_fields(type(message).FromString(raw), "")) if message.ByteSize() != size else []
    values = list(_unknown_values(message, "")) if _has_unknown_value(message) else []
    if not fields and not values:
        return
    remedy = f"to this server, Assay {__version__}: upgrade the server, or leave it out"
    problems = [Problem(f"this field is unknown {remedy}", field) for field in fields]
    problems += [Problem(f"the value {number} is unknown {remedy}", field) for field, number in values]
    raise InvalidInputError(problems, reason=UNKNOWN_FIELD if fields else UNKNOWN_VALUE)


def _unknown_fields(message: Message, path: str) -> Iterator[str]:
    unknown = UnknownFieldSet(message)
    for index in range(len(unknown)):
        yield f"{path}{unknown[index].field_number}"
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        if field.is_repeated:
            for index, part in enumerate(value):
                yield from _unknown_fields(part, f"{path}{field.name}[{index}].")
        else:
            yield from _unknown_fields(value, f"{path}{field.name}.")


class _EnumField(NamedTuple):
    """A field that has an enum, or a message with one."""

    name: str
    is_repeated: bool
    numbers: frozenset[int] | None


@cache
def _enum_fields(message: Descriptor) -> tuple[_EnumField, ...]:
    """Return the fields of a message by which enums can be reached."""
    return tuple(
        _EnumField(
            field.name,
            field.is_repeated,
            frozenset(field.enum_type.values_by_number) if field.enum_type is not None else None,
        )
        for field in message.fields
        if _has_enum(field, frozenset({message.full_name}))
    )


def _has_enum(field: FieldDescriptor, seen: frozenset[str]) -> bool:
    inner = field.message_type
    if inner is None or inner.full_name in seen:
        return field.enum_type is not None
    return any(_has_enum(part, seen | {inner.full_name}) for part in inner.fields)


def _has_unknown_value(message: Message) -> bool:
    """Return whether `_unknown_values` would yield anything, without building paths: nearly always not."""
    for name, is_repeated, numbers in _enum_fields(message.DESCRIPTOR):
        if numbers is None and not is_repeated:
            if message.HasField(name) and _has_unknown_value(getattr(message, name)):
                return True
            continue
        value = getattr(message, name)
        if numbers is None:
            for part in value:
                if _has_unknown_value(part):
                    return True
        elif not (numbers.issuperset(value) if is_repeated else value in numbers):
            return True
    return False


def _unknown_values(message: Message, path: str) -> Iterator[tuple[str, int]]:
    for name, is_repeated, numbers in _enum_fields(message.DESCRIPTOR):
        if numbers is None and not is_repeated and not message.HasField(name):
            continue
        value = getattr(message, name)
        parts = enumerate(value) if is_repeated else [(-1, value)]
        for index, part in parts:
            place = f"{path}{name}[{index}]" if is_repeated else f"{path}{name}"
            if numbers is None:
                yield from _unknown_values(part, f"{place}.")
            elif part not in numbers:
                yield place, part
