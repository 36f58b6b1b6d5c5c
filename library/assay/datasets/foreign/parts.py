"""Placing the fields of another tool's record in a plain record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.datasets.fields.aliases import ALIASES, gives_away, is_blank
from assay.datasets.fields.field_names import folded
from assay.datasets.foreign.calls import expected_tool
from assay.datasets.records import BadRecordError, shown
from assay.datasets.values.cells import value_in_cell
from assay.datasets.values.message_parts import parts_text
from assay.model.answers.response_names import CALL_FIELDS

_OWN = frozenset(
    alias for name, found in ALIASES.items() if name not in ("input", "turns", "references") for alias in found
)
_TELLING = ("solution", "correct", "gold")


class Parts:
    """The fields of a record, taken one by one; `finish` places the rest."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record = record
        self._names: dict[str, str] = {}
        for key in record:
            self._names.setdefault(folded(key), key)
        self._taken: set[str] = set()
        self._details: dict[str, Any] = {}

    def take(self, *names: str) -> Any:
        """Return the value of the first of these fields that is not empty; None if there is none."""
        for name in names:
            key = self._names.get(name)
            if key is not None and not is_blank(self._record[key]):
                self._taken.add(key)
                return self._record[key]
        return None

    def has(self, *names: str) -> bool:
        """Return whether any of these fields is not empty."""
        return any(name in self._names and not is_blank(self._record[self._names[name]]) for name in names)

    def name(self, *names: str) -> str:
        """Return the record's own name for the first of these fields that is present, for messages."""
        return next((self._names[name] for name in names if name in self._names), names[0])

    def mapping(self, *names: str) -> dict[str, Any]:
        """Return the object in a field; an empty one if there is none.

        Raises:
            BadRecordError: The field holds another type.
        """
        value = self.take(*names)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise BadRecordError(f"must be an object, not {shown(value)}", self.name(*names))
        return dict(value)

    def texts(self, *names: str) -> list[str]:
        """Return the texts in a field; a single text becomes a list.

        Raises:
            BadRecordError: The field holds another type.
        """
        return texts_of(self.take(*names), self.name(*names))

    def tools(self, *names: str, where: str = "") -> list[dict[str, Any]]:
        """Return the expected tool calls in a field; their further details are kept under `expected`.

        Args:
            names: The field's names.
            where: The path of the record, for messages.

        Raises:
            BadRecordError: An item does not name a tool.
        """
        items, field = listed(self.take(*names)), f"{where}{self.name(*names)}"
        if any(isinstance(item, Mapping) and not item.keys() <= CALL_FIELDS for item in items):
            self._details[self.name(*names)] = items
        return [expected_tool(item, f"{field}[{index}]") for index, item in enumerate(items)]

    def rest(self) -> dict[str, Any]:
        """Return the non-empty fields that were not taken, and details of tools."""
        left = {name: value for name, value in self._record.items() if name not in self._taken}
        return self._details | {name: value for name, value in left.items() if value not in (None, "", [], {})}

    def refuse(self, *names: str, why: str) -> None:
        """Refuse the record if any of these fields is not empty.

        Raises:
            BadRecordError: Such a field is not empty.
        """
        for name in names:
            value = self.take(name)
            if value is not None and value not in ([], {}):
                raise BadRecordError(why, self.name(name))

    def finish(self, plain: dict[str, Any], metadata: object = None) -> dict[str, Any]:
        """Return the plain record without empty fields, completed by the fields that were not taken.

        Fields with Assay's names keep them; fields that would reveal the answer go to `expected`, which agents do not
        see; all others go to the metadata.

        Args:
            plain: The plain record so far.
            metadata: The tool's own metadata.
        """
        kept: dict[str, Any] = {}
        expected = self._details | dict(plain.pop("expected", None) or {})
        for name, value in _pairs(metadata):
            (expected if tells(name) else kept).setdefault(name, value)
        plain = {name: value for name, value in plain.items() if value is not None and value not in ("", [], {})}
        for name, value in self._record.items():
            if name in self._taken or is_blank(value):
                continue
            if name == "expected" and isinstance(value, Mapping):
                expected = {**value, **expected}
            elif tells(name):
                expected.setdefault(name, value)
            elif name == "metadata":
                kept |= {key: item for key, item in _pairs(value) if key not in kept}
            elif folded(name) in _OWN and name not in plain:
                plain[name] = value
            else:
                kept.setdefault(name, value)
        return plain | ({"expected": expected} if expected else {}) | ({"metadata": kept} if kept else {})


def tells(name: str) -> bool:
    """Return whether a field of this name would reveal the answer."""
    plain = folded(name)
    return plain not in _OWN and (gives_away(plain) or plain.startswith(_TELLING))


def _pairs(value: object) -> list[tuple[str, Any]]:
    if is_blank(value):
        return []
    if isinstance(value, str):
        value = value_in_cell(value)
    return list(value.items()) if isinstance(value, Mapping) else [("metadata", value)]


def listed(value: Any) -> list[Any]:
    """Return the items of a list; a single value becomes a list, an absent one an empty list."""
    if is_blank(value):
        return []
    return value if isinstance(value, list) else [value]


def text_of(value: object, field: str) -> str:
    """Return a text or the digits of a number; the parts of a text list are joined.

    Raises:
        BadRecordError: The value has another type.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if (joined := parts_text(value)) is not None:
        return joined
    raise BadRecordError(f"must be a string, not {shown(value)}", field)


def texts_of(value: object, field: str) -> list[str]:
    """Return a list's items as texts; a single text becomes a list.

    Raises:
        BadRecordError: An item is not a text.
    """
    items = listed(value)
    many = isinstance(value, list)
    return [
        text_of(item, f"{field}[{index}]" if many else field) for index, item in enumerate(items) if item is not None
    ]
