"""The values of a record, checked against the types of their fields."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.datasets.fields.aliases import is_blank
from assay.datasets.records import shown
from assay.datasets.values.cells import may_list, texts_in_cell, value_in_cell
from assay.datasets.values.message_parts import parts_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from assay.datasets.fields.aliases import Layout

Trouble = list[tuple[str, str]]
"""The problems of a record, as (field, message) pairs."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of reading a record.

    Args:
        trouble: Problems.
        odd: Oddities, as (kind, field, message); one warning of each kind is shown.
    """

    trouble: Trouble = field(default_factory=list)
    odd: list[tuple[str, str, str]] = field(default_factory=list)


class Fields:
    """The values of a record by canonical name; collects problems."""

    def __init__(self, record: Mapping[str, Any], layout: Layout, findings: Findings, *, from_cells: bool) -> None:
        self.record = record
        self.layout = layout
        self.trouble = findings.trouble
        self.from_cells = from_cells
        self._odd = findings.odd

    def warn(self, kind: str, source: str, message: str) -> None:
        """Add an oddity of the record that does not refuse it."""
        self._odd.append((kind, source, message))

    def find(self, name: str) -> tuple[str, Any]:
        """Return the field for a canonical one, and its value; None if there is none."""
        sources = self.layout.sources.get(name)
        if sources is None:
            return name, None
        for source in sources:
            value = self.record[source]
            if value is not None and value != "":
                return source, value
        return sources[0], self.record[sources[0]]

    # Most canonical fields are absent: looking for the name first saves a third of the reading of a record.

    def text(self, name: str) -> str:
        if name not in self.layout.sources:
            return ""
        source, value = self.find(name)
        return "" if value is None else self.as_text(source, value)

    def as_text(self, where: str, value: object) -> str:
        if type(value) is str:
            return value
        if isinstance(value, str):
            return str(value)
        if (joined := parts_text(value)) is not None:
            return joined
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.trouble.append((where, f"must be a string, not {shown(value)}"))
        elif isinstance(value, float) and not math.isfinite(value):
            self.trouble.append((where, f"must be a string, not {value}"))
        else:
            return str(value)
        return ""

    def texts(self, name: str, *, lists_in_cells: bool = True) -> tuple[str, ...]:
        """Return the texts of a list; a single text becomes a list, unless it is itself written as one."""
        if name not in self.layout.sources:
            return ()
        source, value = self.find(name)
        if is_blank(value):
            return ()
        if isinstance(value, str) and may_list(value):
            items = texts_in_cell(value)
            if lists_in_cells and items is not None:
                value = items
            elif self.from_cells and (items or (lists_in_cells and _is_in_brackets(value))):
                self._warn_of_list(source)
        if isinstance(value, list) and parts_text(value) is None:
            return tuple(self.as_text(f"{source}[{i}]", item) for i, item in enumerate(value) if item is not None)
        return (self.as_text(source, value),)

    def _warn_of_list(self, source: str) -> None:
        self.warn(
            "list",
            source,
            f"{shown(source)} looks like a list and is read as one text; for a list, use a JSON list in a column with "
            "a plural name, such as references",
        )

    def names(self, name: str, split: Callable[[str], tuple[list[str], str]]) -> tuple[str, ...]:
        """Return the names in a list, or in a text with separators.

        Args:
            name: The canonical field.
            split: Returns the names in a text, and any doubt about them.
        """
        if name not in self.layout.sources:
            return ()
        source, value = self.find(name)
        if not isinstance(value, str) or value.lstrip().startswith("[") or texts_in_cell(value) is not None:
            return self.texts(name)
        names, doubt = split(value)
        if doubt:
            self.warn(f"{name} {doubt}", source, f"{shown(value)} is read as {doubt}; to be exact, write a JSON list")
        return tuple(self.as_text(source, text) for text in names)

    def mapping(self, name: str) -> dict[str, Any]:
        if name not in self.layout.sources:
            return {}
        source, value = self.find(name)
        if is_blank(value):
            return {}
        if isinstance(value, str):
            value = value_in_cell(value)
        if isinstance(value, dict):
            return value
        self.trouble.append((source, f"must be an object, not {shown(value)}"))
        return {}

    def as_number(self, where: str, value: object, *, low: float = -math.inf, high: float = math.inf) -> float | None:
        """Return a finite number, also from a cell with its digits; None after reporting a problem."""
        number = math.nan
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
        elif self.from_cells and isinstance(value, str):
            with contextlib.suppress(ValueError):
                number = float(value)
        if math.isfinite(number) and low <= number <= high:
            return number
        due = "a number" if low == -math.inf else f"a number from {low:g} to {high:g}"
        if low > -math.inf and high == math.inf:
            due = f"a number of at least {low:g}"
        self.trouble.append((where, f"must be {due}, not {shown(value)}"))
        return None

    def items(self, name: str) -> tuple[str, list[Any]]:
        """Return the field for a canonical list, and its items; a single value is one item."""
        if name not in self.layout.sources:
            return name, []
        source, value = self.find(name)
        if is_blank(value):
            return source, []
        if isinstance(value, str):
            value = value_in_cell(value)
        return source, value if isinstance(value, list) else [value]


def _is_in_brackets(text: str) -> bool:
    return text.lstrip()[:1] == "[" and text.rstrip()[-1:] == "]"
