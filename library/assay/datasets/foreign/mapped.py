"""The user's own mapping for records of another tool's format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from assay.datasets.fields.aliases import ALIASES
from assay.datasets.fields.field_names import folded
from assay.datasets.foreign.answers import recorded_in

Convert = Callable[[Mapping[str, Any]], dict[str, Any]]

_HOLDERS = ("inputs", "item")


def with_mapping(convert: Convert, field_map: Mapping[str, str]) -> Convert:
    """Return a converter that puts mapped fields where the user's mapping says.

    A field is looked up in the record and in its `inputs`.

    Args:
        convert: The format's own converter.
        field_map: The user's mapping, from canonical names to the record's.
    """
    named = {canonical: source for canonical, source in field_map.items() if source}
    if not named:
        return convert

    def convert_mapped(record: Mapping[str, Any]) -> dict[str, Any]:
        data, put, beside = _taken(record, named)
        plain = convert(data)
        if "input" in put:
            # The former input, or values that filled a prompt, are passed along with the question.
            spare = beside | {name: plain.pop(name) for name in ("input",) if name in plain}
            spare |= plain.pop("variables", {})
            if spare:
                plain["parameters"] = plain.get("parameters", {}) | spare
        for canonical, value in put.items():
            for alias in ALIASES[canonical]:
                plain.pop(alias, None)
            plain[canonical] = recorded_in(value, canonical) if canonical == "recorded" else value
        return plain

    return convert_mapped


def _taken(
    record: Mapping[str, Any], named: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the record without mapped fields, these by canonical name, and the siblings of a mapped question."""
    data, put = dict(record), {}
    beside: dict[str, Any] = {}
    for canonical, source in named.items():
        if key := _same(source, data):
            put[canonical] = data.pop(key)
            continue
        for holder in _HOLDERS:
            inner = data.get(holder)
            if isinstance(inner, Mapping) and (key := _same(source, inner)):
                put[canonical] = inner[key]
                data[holder] = {name: value for name, value in inner.items() if name != key}
    inputs = record.get("inputs")
    if "input" in put and isinstance(inputs, Mapping) and data.get("inputs") != inputs:
        beside = data.pop("inputs")
    return data, put, beside


def _same(name: str, names: Mapping[str, Any]) -> str:
    if name in names:
        return name
    return next((known for known in names if folded(str(known)) == folded(name)), "")
