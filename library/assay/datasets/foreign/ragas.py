"""Ragas samples: single questions, conversations, and the field names of older versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.datasets.foreign.answers import answer_of, retrieved_items
from assay.datasets.foreign.calls import called_tool
from assay.datasets.foreign.messages import conversation, messages_of
from assay.datasets.foreign.parts import Parts
from assay.datasets.records import BadRecordError

NAME = "ragas"

FIELDS = {
    "input": "user_input",
    "turns": "user_input",
    "references": "reference",
    "recorded": "response",
    "expected_sources": "reference_context_ids",
    "expected_tools": "reference_tool_calls",
}
"""The format's own field names, by canonical field."""

_OWN = {
    "retrieved_contexts", "reference_contexts", "retrieved_context_ids", "reference_context_ids", "rubrics",
    "reference_tool_calls", "reference_topics", "response", "reference",
}  # fmt: skip
_EXPECTED = ("reference_contexts", "rubrics", "rubric", "reference_topics")


def matches(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Return whether a record is a sample.

    Args:
        record: The record by snake-case names.
        keys: Its field names.
    """
    if "user_input" in keys:
        return bool(keys & _OWN) or isinstance(record["user_input"], list)
    return {"question", "contexts"} <= keys and bool(keys & {"ground_truth", "ground_truths"})


def convert(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record of a sample.

    A list of messages that ends with an answer is a conversation: the user's messages are its turns, and the last
        answer is recorded with all tool calls. A list that ends with the user's message is asked unchanged.

    Raises:
        BadRecordError: It cannot be read.
    """
    parts = Parts(record)
    asked = parts.take("user_input", "question")
    field = parts.name("user_input", "question")
    references = parts.texts("reference", "ground_truth", "ground_truths")
    expected = {name: value for name in _EXPECTED if (value := parts.take(name)) is not None}
    sources = parts.texts("reference_context_ids")
    ends: dict[str, Any] = {
        "references": references,
        "expected_sources": sources,
        "expected_tools": parts.tools("reference_tool_calls"),
    }
    messages = messages_of(asked, field) if isinstance(asked, list) else []
    if messages and messages[-1]["role"] in ("assistant", "tool"):
        return parts.finish({"turns": _turns(messages, ends, field), "recorded": _said(messages), "expected": expected})
    answer = parts.take("response", "answer")
    # Test sets of older versions have no answer; their contexts are the passages behind the question.
    passages = parts.texts("contexts") if answer is None and not parts.has("user_input") else []
    retrieved = retrieved_items(parts.texts("retrieved_contexts", "contexts") if not passages else [], _ids(parts))
    recorded = answer_of(answer, parts.name("response", "answer"), retrieved=retrieved, sources=_named(retrieved))
    plain = {**conversation(asked, field), **ends, "contexts": passages, "recorded": recorded, "expected": expected}
    return parts.finish(plain)


def _ids(parts: Parts) -> list[str]:
    return parts.texts("retrieved_context_ids")


def _named(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the items that sources can be compared by, which are those with an id."""
    return [dict(item) for item in items if "id" in item]


def _turns(messages: Sequence[Mapping[str, Any]], ends: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = [{"input": message["content"]} for message in messages if message["role"] == "user"]
    if not turns:
        raise BadRecordError("holds no message of the user", field)
    before = [dict(message) for message in messages if message["role"] == "system"]
    if before:
        turns[0]["history"] = before
    turns[-1] |= {name: value for name, value in ends.items() if value}
    return turns


def _said(messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    answers = [message["content"] for message in messages if message["role"] == "assistant" and message["content"]]
    calls = [
        called_tool(call, f"user_input[{index}].tool_calls[{position}]")
        for index, message in enumerate(messages)
        for position, call in enumerate(message.get("tool_calls", ()))
    ]
    return {"text": answers[-1] if answers else "", "tool_calls": calls, "metadata": {"messages": list(messages)}}
