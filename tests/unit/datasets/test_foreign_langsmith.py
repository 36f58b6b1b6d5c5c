"""LangSmith: inputs, and outputs that are the reference."""

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

EXAMPLES: list[dict[str, Any]] = [
    {
        "id": "6f1c",
        "created_at": "2024-05-01T10:00:00",
        "dataset_id": "d",
        "inputs": {"question": "What is LangSmith?", "lang": "en"},
        "outputs": {"answer": "A platform.", "sources": ["docs"]},
        "metadata": {"split": ["base"]},
    },
    {"id": "6f1d", "inputs": {"text": "Only text"}, "outputs": {"label": "good"}, "metadata": None},
    {"id": "6f1e", "inputs": {"a": 1, "b": "x"}, "outputs": None},
]


def test_examples(write: Write, wired: Read) -> None:
    """The text of outputs is the reference, not a recorded answer; what else is in them stays with the metrics."""
    one, two, three = wired(write("x.jsonl", EXAMPLES))
    assert (one.case_id, one.input, one.parameters) == ("6f1c", "What is LangSmith?", {"lang": "en"})
    assert (one.references, one.expected, one.recorded) == (("A platform.",), {"sources": ["docs"]}, None)
    assert one.metadata == {"split": ["base"], "created_at": "2024-05-01T10:00:00", "dataset_id": "d"}
    assert (two.input, two.references) == ("Only text", ("good",))
    assert (three.input, three.variables, three.references) == ("", {"a": 1, "b": "x"}, ())


def test_the_reading_is_told(write: Write, read: Read) -> None:
    """Outputs may be earlier answers: one warning says how they are read and how to choose."""
    name = write("x.jsonl", EXAMPLES)
    info = open_dataset(name).check()
    assert (info.format, info.reference_count, info.recorded_count) == ("langsmith/jsonl", 2, 0)
    (warning,) = info.warnings
    assert str(warning).startswith("x.jsonl:1: record 1: treating `outputs` as the reference, as in LangSmith")
    assert "(and 1 more)" in str(warning)
    labels, two, _ = read(name, format="langsmith", field_map={"recorded": "outputs"})
    assert labels.recorded is not None
    assert two.recorded is not None
    assert (labels.recorded.text, labels.references, two.recorded.text) == ("A platform.", (), "good")


def test_chats(write: Write, wired: Read) -> None:
    """Chat examples are messages: the last of the inputs is asked, the last of the outputs is the reference."""
    human = [{"type": "system", "data": {"content": "S"}}, {"type": "human", "data": {"content": "Q"}}]
    examples = [
        {"inputs": {"input": human}, "outputs": {"output": {"type": "ai", "data": {"content": "A"}}}},
        {
            "inputs": {"messages": [{"role": "user", "content": "R"}]},
            "outputs": {"messages": [{"role": "assistant", "content": "B"}], "n": 1},
        },
    ]
    one, two = wired(write("x.jsonl", examples))
    assert (one.input, one.turns[0].history, one.references) == ("Q", (Message("system", "S"),), ("A",))
    assert (two.input, two.references, two.expected) == ("R", ("B",), {"n": 1})


def test_a_table_of_chosen_columns(write: Write, wired: Read) -> None:
    """A table with columns of the user's own is plain; one of inputs and outputs is read like the other exports."""
    (case,) = wired(write("x.csv", "question,answer\nQ,A\n"))
    assert case.references == ("A",)
    (case,) = wired(write("y.csv", 'id,inputs,outputs\n1,"{""question"": ""Q""}","{""answer"": ""A""}"\n'))
    assert (case.input, case.references) == ("Q", ("A",))
    assert open_dataset("y.csv").check().format == "langsmith/csv"


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ({"inputs": {}, "outputs": {"a": "A"}}, "input: is missing"),
        ({"inputs": {"question": "Q"}, "outputs": [{"a": 1}]}, "outputs: must be a string"),
        ({"inputs": {"question": "Q"}, "outputs": {"answer": [{}]}}, "outputs.answer[0]: must be a string"),
        ({"inputs": 7, "outputs": {"answer": "A"}}, ""),
    ],
)
def test_examples_that_are_refused(write: Write, refusal: Refusal, example: dict[str, Any], message: str) -> None:
    """An example that cannot be read is refused with file, line and field."""
    name = write("x.jsonl", [*EXAMPLES, example])
    if not message:
        assert [case.input for case in open_dataset(name).cases()][-1] == "7"
        return
    (problem,) = refusal(name)
    assert problem.startswith(f"x.jsonl:4: record 4, {message}"), problem
