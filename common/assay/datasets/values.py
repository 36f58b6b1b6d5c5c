"""The values of one record, each as the kind that its field is due to hold."""

from __future__ import annotations

import contextlib
import json
import math
from typing import TYPE_CHECKING, Any

from assay.datasets.fields import is_blank
from assay.datasets.records import find_unusable, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.datasets.fields import Layout

Trouble = list[tuple[str, str]]
"""What is wrong with one record, as (field, message) pairs."""


class Fields:
    """The values of one record by canonical name; gathers what is wrong."""

    def __init__(self, record: Mapping[str, Any], layout: Layout, trouble: Trouble, *, from_cells: bool) -> None:
        self.record = record
        self.layout = layout
        self.trouble = trouble
        self.from_cells = from_cells

    def find(self, name: str) -> tuple[str, Any]:
        """Return the field that holds a canonical one, and its value; None where there is none."""
        sources = self.layout.sources.get(name)
        if sources is None:
            return name, None
        for source in sources:
            value = self.record[source]
            if value is not None and value != "":
                return source, value
        return sources[0], self.record[sources[0]]

    def text(self, name: str) -> str:
        source, value = self.find(name)
        return "" if value is None else self.as_text(source, value)

    def as_text(self, where: str, value: object) -> str:
        if type(value) is str:
            return value
        if isinstance(value, str):
            return str(value)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.trouble.append((where, f"must be a string, not {shown(value)}"))
        elif isinstance(value, float) and not math.isfinite(value):
            self.trouble.append((where, f"must be a string, not {value}"))
        else:
            return str(value)
        return ""

    def texts(self, name: str, *, lists_in_cells: bool = True) -> tuple[str, ...]:
        source, value = self.find(name)
        if is_blank(value):
            return ()
        if self.from_cells and lists_in_cells and isinstance(value, str) and value.startswith("["):
            value = _listed(value)
        if isinstance(value, list):
            return tuple(self.as_text(f"{source}[{i}]", item) for i, item in enumerate(value) if item is not None)
        return (self.as_text(source, value),)

    def mapping(self, name: str) -> dict[str, Any]:
        source, value = self.find(name)
        if is_blank(value):
            return {}
        if self.from_cells and isinstance(value, str):
            value = object_in_cell(value)
        if isinstance(value, dict):
            return value
        self.trouble.append((source, f"must be an object, not {shown(value)}"))
        return {}

    def as_number(self, where: str, value: object, *, low: float = -math.inf, high: float = math.inf) -> float | None:
        """Return a finite number, also where a cell holds its digits; None after telling what is wrong."""
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
        """Return the field that holds a canonical list, and its items, in a cell as JSON; one value is one item."""
        source, value = self.find(name)
        if is_blank(value):
            return source, []
        if self.from_cells and isinstance(value, str) and value.lstrip().startswith(("[", "{")):
            value = json_in_cell(value)
        return source, value if isinstance(value, list) else [value]


def _listed(cell: str) -> Any:
    """Return the texts that a cell lists as JSON, or the cell."""
    try:
        value = json.loads(cell)
    except (ValueError, RecursionError):
        return cell
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else cell


def object_in_cell(cell: str) -> Any:
    """Return the object that a cell holds as JSON, or the cell."""
    return json_in_cell(cell) if cell.lstrip().startswith("{") else cell


def json_in_cell(cell: str) -> Any:
    """Return what a cell holds as JSON, or the cell."""
    try:
        value = json.loads(cell, parse_constant=_no_number, parse_float=_finite)
    except (ValueError, RecursionError):
        return cell
    return cell if find_unusable(value) else value


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is more than a number can be")
    return number


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
