"""Cells of tables that hold lists and objects: as JSON, or as Python writes them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from assay.datasets.records import find_unusable
from assay.datasets.values import json_in_cell

__all__ = ["opened", "value_in_cell"]

_MAX_LITERAL_CHARS = 64 * 1024
_MAX_BRACKETS = 2000


def opened(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a table with the lists and objects in its cells."""
    return {name: value_in_cell(cell) if isinstance(cell, str) else cell for name, cell in row.items()}


def value_in_cell(cell: str) -> Any:
    """Return the list or object that a cell holds, or the cell."""
    text = cell.strip()
    if not (text.startswith("[") and text.endswith("]")) and not (text.startswith("{") and text.endswith("}")):
        return cell
    value = json_in_cell(text)
    if isinstance(value, str):
        value = _literal(text)
    return value if isinstance(value, list | dict) else cell


def _literal(text: str) -> Any:
    """Return what Python's way of writing lists and objects says, as tables written from data frames have it."""
    # The parser of literals is no match for texts that are made to exhaust it.
    if len(text) > _MAX_LITERAL_CHARS or sum(map(text.count, "[{(")) > _MAX_BRACKETS or _is_deep(text):
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return text
    return text if find_unusable(value) or not _is_json(value) else value


def _is_deep(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char in "[{(") - (char in ")}]")
        if depth > 50:
            return True
    return False


def _is_json(value: Any) -> bool:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            if not all(isinstance(key, str) for key in item):
                return False
            pending += item.values()
        elif isinstance(item, list):
            pending += item
        elif not (item is None or isinstance(item, str | bool | int) or (isinstance(item, float) and item == item)):
            return False
    return True
