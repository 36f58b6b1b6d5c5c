"""OpenAI's evals: input and ideal, by themselves or wrapped in `item`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.datasets.foreign.messages import conversation
from assay.datasets.foreign.parts import Parts
from assay.datasets.records import BadRecordError

__all__ = ["FIELDS", "NAME", "convert", "matches"]

NAME = "openai-evals"

FIELDS = {"input": "input", "references": "ideal"}
"""Canonical field to the format's own."""

# The fields of a wrapped item are whatever its author chose.
_QUESTIONS = ("input", "question", "query", "prompt")
_ANSWERS = ("ideal", "reference", "reference_answer", "expected_output", "ground_truth", "correct_answer", "answer")


def matches(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Return whether a record is a sample.

    Args:
        record: The record by snake-case names.
        keys: These names.
    """
    if isinstance(record.get("item"), Mapping):
        return keys <= {"item", "sample", "id", "metadata"}
    return "ideal" in keys and isinstance(record.get("input"), str | list)


def convert(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record of a sample; its own `sample` of an answer is the recorded one.

    Raises:
        BadRecordError: It cannot be read.
    """
    outer = Parts(record)
    item = outer.mapping("item")
    if not item:
        return _plain(outer)
    inner = Parts(item)
    plain = _plain(inner, _QUESTIONS, _ANSWERS)
    sample = outer.mapping("sample")
    if sample and not isinstance(sample.get("output_text"), str):
        raise BadRecordError("holds no text `output_text`: give the answer there, or leave the sample out", "sample")
    if sample:
        plain["recorded"] = {"text": sample["output_text"]}
    return outer.finish({"id": outer.take("id"), **plain}, plain.pop("metadata", None))


def _plain(
    parts: Parts, questions: tuple[str, ...] = ("input",), answers: tuple[str, ...] = ("ideal",)
) -> dict[str, Any]:
    asked = conversation(parts.take(*questions), parts.name(*questions))
    return parts.finish({**asked, "references": parts.texts(*answers)})
