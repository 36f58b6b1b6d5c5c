"""Validation of documents against the JSON Schema of reports, limited to the keywords that it uses.

The package jsonschema needs a minute for the rows of a large run; this module needs a second.
"""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from assay.text.unsafe_text import shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Check = Callable[[Any, str, list[str]], None]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_KNOWN = {"$schema", "$id", "$ref", "$defs", "title", "description", "type", "enum", "const", "properties", "required",
          "additionalProperties", "items", "minItems", "maxItems", "minimum", "maximum"}  # fmt: skip


@functools.cache
def results_schema() -> dict[str, Any]:
    """Return the JSON Schema of results.json."""
    schema: dict[str, Any] = json.loads((files("assay.reports") / "results.schema.json").read_text("utf-8"))
    return schema


def problems_of_head(document: object) -> list[str]:
    """Return the problems of a document without its rows; empty if there are none."""
    return _problems(_check_of_head(), document, "")


def problems_of_row(row: object, where: str) -> list[str]:
    """Return the problems of a row; empty if there are none.

    Args:
        where: What the row is called in the sentences, e.g. "rows[0]".
    """
    return _problems(_check_of_row(), row, where)


def _problems(check: Check, value: object, where: str) -> list[str]:
    problems: list[str] = []
    check(value, where, problems)
    return problems


@functools.cache
def _check_of_head() -> Check:
    schema = results_schema()
    return _compiled({**schema, "required": [name for name in schema["required"] if name != "rows"]}, schema)


@functools.cache
def _check_of_row() -> Check:
    schema = results_schema()
    return _compiled(schema["$defs"]["row"], schema)


def _compiled(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Check:
    """Return the function that checks a value against a schema."""
    assert schema.keys() <= _KNOWN, f"the schema of reports uses words that are not checked: {schema.keys() - _KNOWN}"
    if "$ref" in schema:
        return _compiled(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    checks = [
        *([_type_check(schema["type"])] if "type" in schema else []),
        *([_choice_check(schema["enum"])] if "enum" in schema else []),
        *([_choice_check([schema["const"]])] if "const" in schema else []),
        *([_range_check(schema)] if {"minimum", "maximum"} & schema.keys() else []),
        *([_items_check(schema, root)] if {"items", "minItems", "maxItems"} & schema.keys() else []),
        *([_object_check(schema, root)] if {"properties", "required", "additionalProperties"} & schema.keys() else []),
    ]

    if len(checks) == 1:
        return checks[0]

    def check(value: Any, where: str, problems: list[str]) -> None:
        before = len(problems)
        for check_keyword in checks:
            check_keyword(value, where, problems)
            if len(problems) > before:
                return

    return check


def _type_check(wanted: str | list[str]) -> Check:
    names = [wanted] if isinstance(wanted, str) else wanted
    types = tuple(type_of_name for name in names for type_of_name in _TYPES[name])
    takes_bool = "boolean" in names
    whole = "integer" in names and "number" not in names

    def check(value: Any, where: str, problems: list[str]) -> None:
        if type(value) in types:
            return
        fits = isinstance(value, types) and (takes_bool or not isinstance(value, bool))
        if not fits and whole and isinstance(value, float) and value.is_integer():
            fits = True  # 3.0 is an integer in JSON Schema
        if not fits:
            problems.append(_said(where, f"must be {' or '.join(names)}", value))

    return check


def _choice_check(choices: list[Any]) -> Check:
    def check(value: Any, where: str, problems: list[str]) -> None:
        # 0 and false are equal in Python, and not in JSON.
        if not any(value == choice and isinstance(value, bool) is isinstance(choice, bool) for choice in choices):
            named = ", ".join(json.dumps(choice) for choice in choices)
            problems.append(_said(where, f"must be one of {named}" if len(choices) > 1 else f"must be {named}", value))

    return check


def _range_check(schema: Mapping[str, Any]) -> Check:
    low, high = schema.get("minimum"), schema.get("maximum")

    def check(value: Any, where: str, problems: list[str]) -> None:
        if not isinstance(value, (int, float)):
            return
        if low is not None and value < low:
            problems.append(_said(where, f"must be at least {low}", value))
        if high is not None and value > high:
            problems.append(_said(where, f"must be at most {high}", value))

    return check


def _items_check(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Check:
    item = _compiled(schema["items"], root) if "items" in schema else None
    low, high = schema.get("minItems", 0), schema.get("maxItems")

    def check(value: Any, where: str, problems: list[str]) -> None:
        if not isinstance(value, list):
            return
        if len(value) < low or (high is not None and len(value) > high):
            wanted = f"{low}" if high == low else f"{low} or more"
            problems.append(f"{where}: has {len(value)} entries, and must have {wanted}")
        if item is not None:
            for index, entry in enumerate(value):
                item(entry, f"{where}[{index}]", problems)

    return check


def _object_check(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Check:
    required = schema.get("required", [])
    names = frozenset(required)
    properties = {name: _compiled(subschema, root) for name, subschema in schema.get("properties", {}).items()}
    other = schema.get("additionalProperties")
    others = _compiled(other, root) if isinstance(other, dict) else None

    def check(value: Any, where: str, problems: list[str]) -> None:
        if not isinstance(value, dict):
            return
        before = len(problems)
        if not names <= value.keys():
            problems += [f"{name} is missing" for name in required if name not in value]
        for name, item in value.items():
            if (check_property := properties.get(name, others)) is not None:
                check_property(item, name if name in properties else shorten(name, 60), problems)
        if where and len(problems) > before:  # paths are only made for problems: a large run has no time for others
            problems[before:] = [f"{where}.{problem}" for problem in problems[before:]]

    return check


def _said(where: str, rule: str, value: object) -> str:
    return f"{where or 'the document'}: {rule}, not {shorten(json.dumps(value), 60)}"
