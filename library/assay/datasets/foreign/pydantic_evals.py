"""pydantic-evals datasets: cases with inputs, an expected output and evaluators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from assay.datasets.fields.aliases import is_blank
from assay.datasets.foreign.messages import place_inputs
from assay.datasets.foreign.parts import Parts, listed
from assay.datasets.records import BadRecordError, shown

NAME = "pydantic-evals"

FIELDS = {
    "id": "name",
    "input": "inputs",
    "variables": "inputs",
    "parameters": "inputs",
    "references": "expected_output",
    "assertions": "evaluators",
    "metadata": "metadata",
}
"""The format's own field names, by canonical field."""

_CASE = {"name", "inputs", "metadata", "expected_output", "evaluators"}


def matches(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Return whether a record is a case.

    Args:
        record: The record by snake-case names.
        keys: Its field names.
    """
    if "inputs" not in keys or keys & {"outputs", "expectations"}:
        return False
    return bool(keys & {"evaluators", "expected_output"}) or ("name" in keys and keys <= _CASE)


def convert(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record of a case; `oddity` reports evaluators that cannot be checks.

    Raises:
        BadRecordError: It cannot be read.
    """
    parts = Parts(record)
    expected = parts.take("expected_output")
    is_text = isinstance(expected, str | int | float) and not isinstance(expected, bool)
    evaluators = listed(parts.take("evaluators"))
    read = [_check(name, arguments, expected) for name, arguments in map(_evaluator, evaluators)]
    unread = [item for item, check in zip(evaluators, read, strict=True) if check is None]
    plain: dict[str, Any] = {
        "id": parts.take("name"),
        **place_inputs(parts.take("inputs"), parts.name("inputs")),
        "references": [str(expected)] if is_text else [],
        "assertions": [check for check in read if check],
        "expected": ({} if expected is None or is_text else {"expected_output": expected})
        | ({"evaluators": unread} if unread else {}),
    }
    return parts.finish(plain, parts.take("metadata"))


def oddity(record: Mapping[str, Any]) -> str:
    """Return the warning that names a case's unread evaluators; empty if all are read."""
    parts = Parts(record)
    expected = parts.take("expected_output")
    try:
        evaluators = list(map(_evaluator, listed(parts.take("evaluators"))))
        unread = [name for name, arguments in evaluators if _check(name, arguments, expected) is None]
    except BadRecordError:  # reported when the record is read
        return ""
    if not unread:
        return ""
    return f"does not read the evaluators {', '.join(sorted(set(unread)))}: list metrics in the spec in their place"


def with_common(top: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    """Return a function that adds the file's common evaluators to each case.

    Args:
        top: The data beside the cases.
    """
    common = listed(top.get("evaluators"))
    if not common:
        return lambda record: record
    return lambda record: {**record, "evaluators": [*common, *listed(record.get("evaluators"))]}


def _evaluator(item: object) -> tuple[str, Any]:
    """Return an evaluator's name and arguments: `Name`, `{Name: argument}`, or `{name: Name, arguments: ...}`."""
    if isinstance(item, str) and item:
        return item, {}
    if isinstance(item, Mapping) and isinstance(item.get("name"), str) and item.keys() <= {"name", "arguments"}:
        return item["name"], {} if item.get("arguments") is None else item["arguments"]
    if isinstance(item, Mapping) and len(item) == 1:
        name, arguments = next(iter(item.items()))
        return str(name), {} if arguments is None else arguments
    raise BadRecordError(f"must be an evaluator's name, or an object of one name, not {shown(item)}", "evaluators")


def _check(name: str, arguments: Any, expected: Any) -> dict[str, Any] | None:
    """Return the check for an evaluator: an empty one if it checks nothing, None if there is no equivalent."""
    if name == "EqualsExpected":
        if isinstance(expected, bool):
            return None
        return {} if is_blank(expected) else {"type": "equals", "value": expected}
    if name == "Contains":
        return _contains(arguments)
    if name == "MaxDuration":
        seconds = arguments.get("seconds") if isinstance(arguments, Mapping) else arguments
        if isinstance(seconds, int | float) and not isinstance(seconds, bool):
            return {"type": "latency", "threshold": seconds * 1000}
    return None


def _contains(arguments: Any) -> dict[str, Any] | None:
    options = arguments if isinstance(arguments, Mapping) else {"value": arguments}
    value = options.get("value")
    if isinstance(value, str) and value and not options.get("as_strings"):
        return {"type": "contains" if options.get("case_sensitive", True) else "icontains", "value": value}
    return None
