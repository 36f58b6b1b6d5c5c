"""Messages of any contract, made from its descriptors: valid, at the bounds of their types, mutated, cut off."""

from __future__ import annotations

import json
import random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import EncodeError, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from google.protobuf.descriptor import Descriptor

Field: TypeAlias = Any
"""A field's descriptor: protobuf has two classes of them, of which its stubs know one at a time."""
_DEPTH = 6
_NESTED = 5_000
_SURROGATE = b"\xed\xa0\x80"
_FLOATS = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, 0.5, -1.0, 1e308, -1e308, 5e-324, 2.0**63)
_KINDS = FieldDescriptor
_INTEGERS: Mapping[int, tuple[int, int]] = {
    _KINDS.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    _KINDS.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    _KINDS.CPPTYPE_UINT32: (0, 2**32 - 1),
    _KINDS.CPPTYPE_UINT64: (0, 2**64 - 1),
}
_TAME: Mapping[int, Sequence[Any]] = {
    _KINDS.TYPE_DOUBLE: (0.5, 1.0), _KINDS.TYPE_UINT32: (1, 2), _KINDS.TYPE_UINT64: (1, 2), _KINDS.TYPE_INT32: (1,),
    _KINDS.TYPE_INT64: (1,), _KINDS.TYPE_BOOL: (True, False), _KINDS.TYPE_ENUM: (1,),
}  # fmt: skip
_IDS = frozenset({"run_id", "dataset_id", "request_id"})
_WILDNESS = (0.0, 0.03, 0.1, 0.3, 1.0)
"""How likely a value of a message is one at the bounds of its type: most go through many checks before that."""
_TEXTS = (
    "", " ", "a", "x" * 10_000, "\x00", "a\x00b", "\ufffd", "\u202eabc", "روبوت", "😀" * 100, "\x1b]52;c;eA==\x07",
    "a\nb", "%s%n{}", "../../etc/passwd", "'; DROP TABLE runs; --", "${HOME}", "{{input}}", "-1", "1e999", "NaN",
)  # fmt: skip
_JSON = (
    "", "null", "{}", "[]", "1", '"x"', "{", "{]", '{"a": NaN}', '{"a": Infinity}', '{"a": 1e999}', '{"a": 1, "a": 2}',
    "[" * _NESTED + "]" * _NESTED, '{"a":' * _NESTED + "1" + "}" * _NESTED, "[" * 900 + "]" * 900, "[" * 90 + "]" * 90,
    '{"a": ' + "9" * 5_000 + "}", '{"n": 9223372036854775808}', '{"\\u0000": "\\u0000"}', '{"a": "\\ud800"}',
    '{"threshold": 0.5}', '{"threshold": -1}', '{"pattern": "(a+)+$"}', '{"formula": "exact_match"}', '{"k": []}',
    '{"schema": {"$id": "http://[", "$ref": "x"}}', '{"schema": {"$ref": "#"}}', '{"response": "' + "(" * 5_000 + '"}',
    '{"body": {"a": "{{input}}"}, "method": "POST"}', '{"temperature": 1e999}', '{"url": "http://[::1"}',
)  # fmt: skip


class MessageMaker:
    """Makes messages with one source of randomness.

    Args:
        rng: The randomness.
        known: What texts of a field may be that means something to the server, by the field's name.
        examples: Messages as a user would send them, by the name of their type.
    """

    def __init__(
        self,
        rng: random.Random,
        known: Mapping[str, Sequence[str]],
        examples: Mapping[str, Sequence[Message]] = MappingProxyType({}),
    ) -> None:
        self._rng = rng
        self._known = known
        self._examples = examples
        self._wildness = 1.0
        self._position = 0

    def wire(self, descriptor: Descriptor, position: int | None = None) -> bytes:
        """Return the bytes of a message, or what is left of them.

        Args:
            descriptor: Its type.
            position: Where in its stream it is, None outside of one: contracts list the parts of a `oneof` in the
                order in which they come.
        """
        self._wildness = self._rng.choice(_WILDNESS)
        in_order = position is not None and self._rng.random() < 0.8
        self._position = position if position is not None and in_order else self._rng.randrange(10)
        raw = self._serialised(descriptor, in_order=in_order)
        kind = self._rng.random()
        if kind < 0.75:
            return raw
        if kind < 0.92:
            for _ in range(self._rng.randint(1, 8)):
                raw = self._rng.choice(_MUTATIONS)(self._rng, raw)
            return raw
        if kind < 0.97:
            return raw[: self._rng.randint(0, len(raw))]
        return self._rng.randbytes(self._rng.choice((0, 1, 10, 1000)))

    def _serialised(self, descriptor: Descriptor, *, in_order: bool) -> bytes:
        message = message_factory.GetMessageClass(descriptor)()
        examples = self._examples.get(descriptor.full_name, ())
        if examples and self._rng.random() < 0.6:
            last = len(examples) - 1
            message.CopyFrom(examples[min(self._position, last)] if in_order else self._rng.choice(examples))
            self._vary(message)
        else:
            self._fill(message, 0)
        try:
            return message.SerializeToString()
        except EncodeError:  # nested deeper than the library writes
            return b""

    def _fill(self, message: Message, depth: int) -> None:
        chosen = {oneof.name: self._part(oneof.fields, depth) for oneof in message.DESCRIPTOR.oneofs}
        for field in message.DESCRIPTOR.fields:
            oneof = field.containing_oneof
            if oneof is not None and chosen[oneof.name] != field.name:
                continue
            if self._rng.random() < (0.25 if self._is_wild() else 0.1):
                continue
            if field.message_type is not None and depth >= _DEPTH:
                continue
            self._set(message, field, depth)

    def _vary(self, message: Message) -> None:
        """Change some of the fields that are set."""
        for field, value in message.ListFields():
            if field.name in _IDS and self._known.get(field.name):
                setattr(message, field.name, self._text(field.name))
            elif self._is_wild():
                message.ClearField(field.name)
                self._set(message, field, 1)
            elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
                for part in value if field.is_repeated else (value,):
                    self._vary(part)
        if self._is_wild():
            self._set(message, self._rng.choice(message.DESCRIPTOR.fields), 1)

    def _part(self, fields: Sequence[Field], depth: int) -> str:
        chosen: str = (self._rng.choice(fields) if depth else fields[min(self._position, len(fields) - 1)]).name
        return chosen

    def _is_wild(self) -> bool:
        return self._rng.random() < self._wildness

    def _set(self, message: Message, field: Field, depth: int) -> None:
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if is_map:
            self._set_entries(getattr(message, field.name), field)
        elif field.is_repeated:
            many = getattr(message, field.name)
            for _ in range(self._count(field)):
                if field.message_type is not None:
                    self._fill(many.add(), depth + 1)
                else:
                    many.append(self._scalar(field))
        elif field.message_type is not None:
            part = getattr(message, field.name)
            part.SetInParent()
            self._fill(part, depth + 1)
        else:
            setattr(message, field.name, self._scalar(field))

    def _set_entries(self, entries: Any, field: Field) -> None:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        for _ in range(self._rng.choice((0, 1, 3))):
            if value.message_type is not None:
                self._fill(entries[self._scalar(key)], _DEPTH)
            else:
                entries[self._scalar(key)] = self._scalar(value)

    def _count(self, field: Field) -> int:
        if self._wildness == 1.0 and self._rng.random() < 0.005:
            return 100 if field.message_type is not None else 10_000
        return self._rng.choice((0, 1, 2, 3)) if self._is_wild() else 1

    def _scalar(self, field: Field) -> Any:
        kind = field.cpp_type
        if not self._is_wild() and field.type in _TAME:
            return self._rng.choice(_TAME[field.type])
        if kind in _INTEGERS:
            least, most = _INTEGERS[kind]
            return self._rng.choice((0, 1, 2, 3, 10, 1000, least, most, max(least, -1), most // 2 + 1))
        if kind in (_KINDS.CPPTYPE_DOUBLE, _KINDS.CPPTYPE_FLOAT):
            return self._rng.choice(_FLOATS)
        if kind == _KINDS.CPPTYPE_BOOL:
            return self._rng.random() < 0.5
        if kind == _KINDS.CPPTYPE_ENUM:
            return self._rng.choice((*field.enum_type.values_by_number, 99, 2**31 - 1, -1))
        if field.type == _KINDS.TYPE_BYTES:
            return self._rng.randbytes(self._rng.choice((0, 1, 100)))
        return self._text(field.name)

    def _text(self, name: str) -> str:
        known = self._known.get(name, ())
        if known and self._rng.random() < (0.97 if name in _IDS else 0.7):
            return self._rng.choice(known)
        if not self._is_wild():
            return "{}" if name.endswith("_json") else f"a{self._rng.randrange(1000)}"
        if name.endswith("_json") and self._rng.random() < 0.9:
            return self._rng.choice(_JSON) if self._rng.random() < 0.8 else json.dumps(self._value(0))
        if self._rng.random() < 0.002:
            return "x" * 1_100_000
        return self._rng.choice(_TEXTS)

    def _value(self, depth: int) -> object:
        """Return something that JSON can say."""
        kind = self._rng.randrange(6 if depth < 4 else 4)
        simple = (None, self._rng.choice(_TEXTS[:16]), self._rng.choice((0, 1, -1, 2**63, 0.5)), True)
        if kind < 4:
            return simple[kind]
        if kind == 4:
            return [self._value(depth + 1) for _ in range(self._rng.randint(0, 3))]
        return {self._rng.choice(("type", "value", "a", "", "$ref")): self._value(depth + 1) for _ in range(3)}


def _flip(rng: random.Random, raw: bytes) -> bytes:
    if not raw:
        return raw
    at = rng.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ (1 << rng.randrange(8))]) + raw[at + 1 :]


def _insert(rng: random.Random, raw: bytes) -> bytes:
    at = rng.randint(0, len(raw))
    return raw[:at] + rng.choice((b"\x00", b"\xff" * 10, _SURROGATE, b"\x0b" * 120, b"\x80" * 11)) + raw[at:]


def _delete(rng: random.Random, raw: bytes) -> bytes:
    at = rng.randint(0, len(raw))
    return raw[:at] + raw[at + rng.randint(1, 16) :]


def _repeat(rng: random.Random, raw: bytes) -> bytes:
    begin, end = sorted((rng.randint(0, len(raw)), rng.randint(0, len(raw))))
    return raw[:end] + raw[begin : min(end, begin + 1000)] * rng.choice((1, 1, 50)) + raw[end:]


def _surrogate(rng: random.Random, raw: bytes) -> bytes:
    if len(raw) < len(_SURROGATE):
        return raw
    at = rng.randint(0, len(raw) - len(_SURROGATE))
    return raw[:at] + _SURROGATE + raw[at + len(_SURROGATE) :]


_MUTATIONS: Sequence[Callable[[random.Random, bytes], bytes]] = (_flip, _flip, _insert, _delete, _repeat, _surrogate)
