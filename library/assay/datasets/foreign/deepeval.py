"""DeepEval's test cases and goldens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.datasets.fields.aliases import ALIASES, is_blank
from assay.datasets.fields.field_names import folded
from assay.datasets.foreign.answers import answer_of, retrieved_items
from assay.datasets.foreign.calls import called_tool
from assay.datasets.foreign.parts import Parts, listed, text_of
from assay.datasets.records import BadRecordError, shown
from assay.datasets.values.cells import value_in_cell

NAME = "deepeval"

FIELDS = {
    "input": "input",
    "references": "expected_output",
    "recorded": "actual_output",
    "contexts": "context",
    "expected_tools": "expected_tools",
    "metadata": "additional_metadata",
}
"""The format's own field names, by canonical field."""

_COUNTS = {
    "input_tokens": ("input_tokens", "input_token_count", "prompt_tokens"),
    "output_tokens": ("output_tokens", "output_token_count", "completion_tokens"),
    "total_tokens": ("total_tokens", "token_count"),
    "cost_usd": ("token_cost", "cost"),
}
_LISTS = {"context": "|", "retrieval_context": "|", "tools_called": ";", "expected_tools": ";"}
_TALK = {"scenario", "expected_outcome", "chatbot_role", "user_description"}
_OWN = {"expected_output", "actual_output", "retrieval_context", "tools_called", "additional_metadata"}
_SHARED = {"expected_output", "actual_output"}
_OTHER_REFERENCES = tuple(name for name in ALIASES["references"] if name not in _SHARED)


def matches(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Return whether a record is a test case.

    Plain records may also use `actual_output` and `expected_output`: a record with only these of DeepEval's names, and
        with a reference under another name, is plain.

    Args:
        record: The record by snake-case names.
        keys: Its field names.
    """
    if "turns" in keys and keys & _TALK:
        return True
    named_otherwise = is_blank(record.get("expected_output")) and any(
        not is_blank(record.get(name)) for name in _OTHER_REFERENCES
    )
    return isinstance(record.get("input"), str) and bool(keys & (_OWN - _SHARED if named_otherwise else _OWN))


def convert(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record of a test case.

    Lists may be written as texts, in tables and in JSON. `context` holds the passages given with the case; retrieved
    items, calls and counts belong to the recorded answer.

    Raises:
        BadRecordError: It cannot be read.
    """
    parts = Parts(_with_lists(record))
    for name in ("turns", "scenario"):
        parts.refuse(name, why="makes it a conversation, which is not read: give its turns as `turns` of a plain case")
    plain: dict[str, Any] = {
        "input": text_of(parts.take("input"), "input") if parts.has("input") else None,
        "references": parts.texts("expected_output"),
        "contexts": parts.texts("context"),
        "expected_tools": parts.tools("expected_tools"),
        "recorded": _recorded(parts),
    }
    return parts.finish(plain, parts.take("additional_metadata"))


def _with_lists(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with lists parsed from texts: `|` separates passages, `;` tools."""
    record: dict[str, Any] = {}
    for name, cell in raw.items():
        value = cell
        mark = _LISTS.get(folded(name))
        if isinstance(cell, str) and mark:
            value = value_in_cell(cell)
        if mark and isinstance(value, str):
            value = [item.strip() for item in value.split(mark) if item.strip()]
        record[name] = value
    return record


def _recorded(parts: Parts) -> dict[str, Any] | None:
    texts = parts.texts("retrieval_context")
    answer = parts.take("actual_output")
    called = parts.take("tools_called")
    calls = [called_tool(item, f"{parts.name('tools_called')}[{index}]") for index, item in enumerate(listed(called))]
    if answer is None and not texts and not calls:
        return None
    usage = {name: _number(parts, *names) for name, names in _COUNTS.items()}
    usage = {name: int(count) if name != "cost_usd" else count for name, count in usage.items() if count is not None}
    seconds = _number(parts, "completion_time")
    return answer_of(
        answer,
        parts.name("actual_output"),
        retrieved=retrieved_items(texts) or None,
        tool_calls=None if called is None or called == "" else calls,
        latency_ms=None if seconds is None else seconds * 1000,
        usage=usage or None,
    )


def _number(parts: Parts, *names: str) -> float | None:
    value = parts.take(*names)
    if is_blank(value):
        return None
    try:
        number = float(value) if not isinstance(value, bool) else -1.0
    except (TypeError, ValueError, OverflowError):
        number = -1.0
    if not 0 <= number < float("inf"):
        raise BadRecordError(f"must be a number of at least 0, not {shown(value)}", parts.name(*names))
    return number
