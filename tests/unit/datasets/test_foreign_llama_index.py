"""LlamaIndex: labelled examples with query, reference answer and reference contexts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assay.datasets import open_dataset
from assay.model.case import Case

Write = Callable[..., str]
Read = Callable[..., list[Case]]
Refusal = Callable[..., list[str]]

DATASET: dict[str, Any] = {
    "examples": [
        {
            "query": "What did the author do?",
            "query_by": {"model_name": "m", "type": "ai"},
            "reference_contexts": ["He wrote.", "He painted."],
            "reference_answer": "He wrote and painted.",
            "reference_answer_by": {"model_name": "m", "type": "ai"},
        },
        {
            "query": "Where?",
            "query_by": None,
            "reference_contexts": None,
            "reference_answer": "In Cambridge.",
            "reference_answer_by": None,
        },
    ],
    "class_name": "LabelledRagDataset",
}


def test_examples(write: Write, wired: Read) -> None:
    """Query and answer are question and reference; passages stay with the metrics, they are no names of sources."""
    one, two = wired(write("rag_dataset.json", DATASET))
    assert (one.input, one.references) == ("What did the author do?", ("He wrote and painted.",))
    assert one.turns[0].expected_sources == ()
    assert one.expected["reference_contexts"] == ["He wrote.", "He painted."]
    assert one.metadata == {"query_by": {"model_name": "m", "type": "ai"}}
    assert (two.input, two.references, two.expected) == ("Where?", ("In Cambridge.",), {})
    info = open_dataset("rag_dataset.json").check()
    assert (info.format, info.case_count, info.reference_count) == ("llama-index/json", 2, 2)
    assert info.mapping == {"input": "query", "references": "reference_answer", "metadata": "metadata"}


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ({"query": {"a": 1}, "query_by": None, "reference_answer": "A"}, "query: must be a string"),
        ({"query": "Q", "query_by": None, "reference_answer": {"a": 1}}, "reference_answer: must be a string"),
        (
            {"query": "Q", "reference_answer": "A", "reference_contexts": ["a", 1.5, []]},
            "reference_contexts[2]: must be a string",
        ),
        ({"query": "", "query_by": None, "reference_answer": "A"}, "input: is missing"),
    ],
)
def test_examples_that_are_refused(write: Write, refusal: Refusal, example: dict[str, Any], message: str) -> None:
    """What is no text is refused with file, line and field."""
    (problem,) = refusal(write("x.jsonl", [*DATASET["examples"], example]))
    assert problem.startswith(f"x.jsonl:3: record 3, {message}"), problem
