"""OpenAI evals: input and ideal, and the hosted export that wraps them in `item`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assay.datasets import open_dataset
from assay.model.answers.agent_response import Message
from assay.model.case import Case

Write = Callable[..., str]
Read = Callable[..., list[Case]]
Refusal = Callable[..., list[str]]

SAMPLES: list[dict[str, Any]] = [
    {
        "input": [
            {"role": "system", "content": "Answer with the capital only."},
            {"role": "system", "name": "example_user", "content": "Spain?"},
            {"role": "system", "name": "example_assistant", "content": "Madrid"},
            {"role": "user", "content": "France?"},
        ],
        "ideal": ["Paris", "paris"],
    },
    {"input": "عاصمة السعودية؟", "ideal": "الرياض"},
]


def test_samples(write: Write, wired: Read) -> None:
    """Messages before the last are history with their names; every ideal is right."""
    france, arabia = wired(write("samples.jsonl", SAMPLES))
    assert (france.input, france.references) == ("France?", ("Paris", "paris"))
    assert [message.name for message in france.turns[0].history] == ["", "example_user", "example_assistant"]
    assert france.turns[0].history[0] == Message("system", "Answer with the capital only.")
    assert (arabia.input, arabia.references) == ("عاصمة السعودية؟", ("الرياض",))
    info = open_dataset("samples.jsonl").check()
    assert (info.format, info.case_count, info.reference_count) == ("openai-evals/jsonl", 2, 2)
    assert info.mapping == {"input": "input", "history": "history", "references": "ideal"}


def test_a_pointer_of_git_lfs(write: Write, refusal: Refusal) -> None:
    """The registry keeps its samples in Git LFS: a pointer in their place is told as such."""
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
    assert "is a Git LFS pointer, not the dataset: run `git lfs pull`" in refusal(write("samples.jsonl", pointer))[0]


def test_hosted_items(write: Write, wired: Read) -> None:
    """An item's question and answer are read under their usual names; a sample is the recorded answer."""
    items = [
        {"item": {"question": "Q", "ground_truth": "A", "topic": "t"}, "sample": {"output_text": "said"}},
        {"item": {"input": "R", "ideal": ["B"]}},
    ]
    one, two = wired(write("items.jsonl", items))
    assert (one.input, one.references, one.metadata) == ("Q", ("A",), {"topic": "t"})
    assert one.recorded is not None
    assert one.recorded.text == "said"
    assert (two.input, two.references, two.recorded) == ("R", ("B",), None)
    assert open_dataset("items.jsonl").check().recorded_count == 1


def test_hosted_items_without_a_question_fill_a_prompt(write: Write, wired: Read) -> None:
    """The author of an item chooses its fields: they are variables, and the mapping says which is the question."""
    item = {"item": {"ticket_text": "My monitor is dark", "correct_label": "Hardware", "priority": 2}}
    (case,) = wired(write("items.jsonl", [item]))
    assert (case.input, case.variables) == ("", {"ticket_text": "My monitor is dark", "priority": 2})
    assert case.references == ("Hardware",)
    (case,) = wired("items.jsonl", field_map={"input": "ticket_text", "category": "correct_label"})
    assert (case.input, case.category, case.parameters) == ("My monitor is dark", "Hardware", {"priority": 2})


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"item": {}}, "item: holds nothing: a case needs a question"),
        ({"sample": {"output_text": "A"}}, "sample: lacks the `item` that it answers"),
        ({"item": {"input": "Q"}, "sample": {"model": "m"}}, "sample: holds no text `output_text`"),
        ({"datasource_item": {"input": "Q"}, "results": []}, "datasource_item: makes it a result of an evaluation"),
        ({"input": [{"role": "user", "content": {"a": 1}}], "ideal": "A"}, "input[0].content: must be a string"),
        ({"input": [], "ideal": "A"}, "input: must end with the message that is to be answered"),
        ({"input": "Q", "ideal": [["A"]]}, "ideal[0]: must be a string"),
    ],
)
def test_records_that_are_refused(write: Write, refusal: Refusal, record: dict[str, Any], message: str) -> None:
    """Exports without items, results of evaluations and wrong values are refused with file, line and field."""
    (problem,) = refusal(write("x.jsonl", [*SAMPLES, record]), format="openai-evals")
    assert problem.startswith(f"x.jsonl:3: record 3, {message}"), problem


def test_values_that_fill_a_prompt_are_read_once(write: Write, wired: Read) -> None:
    """A variable is no metadata beside that: nothing of an item is kept twice."""
    (case,) = wired(write("items.jsonl", [{"item": {"City": "Riyadh", "ideal": "yes", "category": "c"}}]))
    assert case.variables == {"City": "Riyadh"}
    assert (case.metadata, case.expected, case.category) == ({}, {}, "c")
