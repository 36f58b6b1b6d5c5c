"""Ragas: samples of one question, of a conversation, and under the names of earlier versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from assay.datasets import open_dataset
from assay.model.answers.agent_response import Message
from assay.model.case import Case, ExpectedTool

Write = Callable[..., str]
Read = Callable[..., list[Case]]
Refusal = Callable[..., list[str]]

SINGLE: list[dict[str, Any]] = [
    {
        "user_input": "When was the first super bowl?",
        "retrieved_contexts": ["It was held on Jan 15, 1967.", "It was in Los Angeles."],
        "retrieved_context_ids": ["d1", "d2"],
        "reference_contexts": ["The first super bowl was held on January 15, 1967."],
        "reference_context_ids": ["d1"],
        "response": "On Jan 15, 1967.",
        "reference": "It was held on January 15, 1967.",
        "rubrics": {"score1_description": "wrong", "score5_description": "right"},
        "synthesizer_name": "single_hop",
    },
    {"user_input": "Only asked", "reference": "R", "response": None, "retrieved_contexts": None},
]


def test_samples_of_one_question(write: Write, wired: Read) -> None:
    """The response is recorded with what was retrieved; reference contexts and rubrics stay with the metrics."""
    one, two = wired(write("x.jsonl", SINGLE))
    assert (one.input, one.references) == ("When was the first super bowl?", ("It was held on January 15, 1967.",))
    assert one.turns[0].expected_sources == ("d1",)
    assert one.recorded is not None
    assert one.recorded.text == "On Jan 15, 1967."
    assert [item.id for item in one.recorded.retrieved or ()] == ["d1", "d2"]
    assert [item.id for item in one.recorded.sources or ()] == ["d1", "d2"]
    assert set(one.expected) == {"reference_contexts", "rubrics"}
    assert one.metadata == {"synthesizer_name": "single_hop"}
    assert (two.references, two.recorded) == (("R",), None)
    info = open_dataset("x.jsonl").check()
    assert (info.format, info.reference_count, info.recorded_count) == ("ragas/jsonl", 2, 1)
    assert (info.mapping["input"], info.mapping["recorded"]) == ("user_input", "response")


CONVERSATION: dict[str, Any] = {
    "user_input": [
        {"content": "Book a table for two", "metadata": None, "type": "human"},
        {
            "content": "",
            "type": "ai",
            "tool_calls": [{"name": "find_table", "args": {"people": 2}}],
        },
        {"content": "Table 5", "type": "tool"},
        {"content": "Table 5 is free. Shall I book?", "type": "ai", "tool_calls": None},
        {"content": "Yes", "type": "human"},
        {"content": "Booked.", "type": "ai"},
    ],
    "reference": "A table for two is booked.",
    "reference_tool_calls": [{"name": "find_table", "args": {"people": 2}}],
    "reference_topics": ["booking"],
}


def test_a_conversation(write: Write, wired: Read) -> None:
    """What the user says are the turns of ONE case; the last answer is recorded with all calls; the end is judged."""
    (case,) = wired(write("x.jsonl", [CONVERSATION]))
    assert [turn.input for turn in case.turns] == ["Book a table for two", "Yes"]
    assert case.references == ("A table for two is booked.",)
    assert case.turns[-1].expected_tools == (ExpectedTool("find_table", {"people": 2}, "subset"),)
    assert case.expected == {"reference_topics": ["booking"]}
    assert case.recorded is not None
    assert case.recorded.text == "Booked."
    assert [call.name for call in case.recorded.tool_calls or ()] == ["find_table"]
    assert json.loads((case.recorded.tool_calls or ())[0].arguments_json) == {"people": 2}


def test_a_conversation_that_ends_with_the_user(write: Write, wired: Read) -> None:
    """Messages that end with a question are history and question of one turn."""
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Q"},
    ]
    (case,) = wired(write("x.jsonl", [{"user_input": messages, "reference": "A"}]))
    assert case.input == "Q"
    assert case.turns[0].history == (Message("user", "Hi"), Message("assistant", "Hello"))


def test_names_of_earlier_versions(write: Write, wired: Read) -> None:
    """`question`, `answer`, `contexts`, `ground_truth`: with an answer the contexts were retrieved for it."""
    records = [
        {"question": "Q", "answer": "said", "contexts": ["c1"], "ground_truth": "A"},
        {"question": "R", "contexts": ["c2"], "ground_truths": ["B", "C"], "evolution_type": "simple"},
    ]
    one, two = wired(write("x.jsonl", records))
    assert (one.references, one.contexts) == (("A",), ())
    assert one.recorded is not None
    assert (one.recorded.text, [item.content for item in one.recorded.retrieved or ()]) == ("said", ["c1"])
    assert (two.references, two.contexts, two.recorded) == (("B", "C"), ("c2",), None)
    assert open_dataset("x.jsonl").check().format == "ragas/jsonl"


@pytest.mark.parametrize(
    ("cell", "contexts"),
    [
        ("\"['a, b', 'c']\"", ["a, b", "c"]),
        ('"[""a"", ""b""]"', ["a", "b"]),
        ("\"['it\\'s' 'b']\"", ["it's", "b"]),
        ("\"['a'\n 'b']\"", ["a", "b"]),
        ("\"['a''b']\"", ["ab"]),
        ("\"['C:\\dir', 'b']\"", ["C:\\dir", "b"]),
    ],
)
def test_lists_in_cells(write: Write, wired: Read, cell: str, contexts: list[str]) -> None:
    """A table from a data frame has lists as JSON, Python or numpy write them; none is read as one text."""
    (case,) = wired(write("x.csv", f"user_input,retrieved_contexts,response,reference\nQ,{cell},said,A\n"))
    assert case.recorded is not None
    assert [item.content for item in case.recorded.retrieved or ()] == contexts


@pytest.mark.parametrize("cell", ["['a", "[1 +", "['a' ... 'b']", "[lambda: 0]", "[b'x']", "[1e999]"])
def test_cells_that_are_no_lists(write: Write, wired: Read, cell: str) -> None:
    """A cell that only looks like a list is the text that it is; nothing in it is evaluated."""
    (case,) = wired(write("x.csv", f'user_input,retrieved_contexts,response\nQ,"{cell}",said\n'))
    assert case.recorded is not None
    assert [item.content for item in case.recorded.retrieved or ()] == [cell]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"user_input": {"a": 1}, "reference": "A"}, "user_input: must be a string"),
        (
            {"user_input": [{"content": "x", "type": "robot"}], "reference": "A"},
            "user_input[0]: must be a message with",
        ),
        (
            {"user_input": [{"content": "x", "type": "ai"}], "reference": "A"},
            "user_input: holds no message of the user",
        ),
        ({"user_input": "Q", "retrieved_contexts": [{}], "response": "A"}, "retrieved_contexts[0]: must be a string"),
        ({"user_input": "Q", "reference_tool_calls": [1]}, "reference_tool_calls[0]: must be a call of a tool"),
        ({"user_input": None, "reference": "A"}, "input: is missing: every case needs a question"),
    ],
)
def test_samples_that_are_refused(write: Write, refusal: Refusal, record: dict[str, Any], message: str) -> None:
    """What is no text and no conversation is refused with file, line and field."""
    (problem,) = refusal(write("x.jsonl", [*SINGLE, record]))
    assert problem.startswith(f"x.jsonl:3: record 3, {message}"), problem


def test_what_a_conversation_begins_with_and_ends_in(write: Write, wired: Read) -> None:
    """The system's message is history of the first turn; an empty last message is no answer."""
    messages = [
        {"content": "Be short.", "type": "system"},
        {"content": "Q1", "type": "human"},
        {"content": "A1", "type": "ai"},
        {"content": "", "type": "ai", "tool_calls": [{"name": "look", "args": {}}]},
    ]
    (case,) = wired(write("x.jsonl", [{"user_input": messages, "reference": "R"}]))
    assert case.turns[0].history == (Message("system", "Be short."),)
    assert case.recorded is not None
    assert case.recorded.text == "A1"
