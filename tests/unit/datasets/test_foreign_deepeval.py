"""DeepEval: test cases and goldens, as JSON, JSON Lines and tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from assay.datasets import open_dataset
from assay.model.case import Case, ExpectedTool

Write = Callable[..., str]
Read = Callable[..., list[Case]]
Refusal = Callable[..., list[str]]

GOLDENS: list[dict[str, Any]] = [
    {
        "input": "What is the refund window?",
        "actual_output": "30 days.",
        "expected_output": "Thirty days.",
        "context": ["Refunds: 30 days."],
        "retrieval_context": ["Refunds within 30 days.", "Opening hours."],
        "tools_called": [
            {
                "name": "lookup",
                "description": "d",
                "input_parameters": {"topic": "refund"},
                "output": "30",
                "reasoning": None,
            }
        ],
        "expected_tools": [{"name": "lookup", "input_parameters": {"topic": "refund"}, "output": "30"}],
        "additional_metadata": {"owner": "shop"},
        "comments": "from support",
        "source_file": "faq.md",
        "completion_time": 1.25,
        "token_cost": 0.002,
        "input_token_count": 120,
        "output_token_count": 8,
    },
    {"input": "Hello", "expected_output": None, "actual_output": None, "context": None, "tools_called": None},
]


@pytest.mark.parametrize("name", ["goldens.json", "goldens.jsonl"])
def test_goldens(write: Write, wired: Read, name: str) -> None:
    """Expected output, contexts, tools, recorded answer with time and tokens: each goes to its place."""
    one, two = wired(write(name, GOLDENS))
    assert (one.input, one.references, one.contexts) == (
        "What is the refund window?", ("Thirty days.",), ("Refunds: 30 days.",),
    )  # fmt: skip
    assert one.turns[0].expected_tools == (ExpectedTool("lookup", {"topic": "refund"}, "subset"),)
    assert one.metadata == {"owner": "shop", "comments": "from support", "source_file": "faq.md"}
    assert one.recorded is not None
    assert (one.recorded.text, one.recorded.latency_ms) == ("30 days.", 1250.0)
    assert [call.name for call in one.recorded.tool_calls or ()] == ["lookup"]
    assert one.recorded.usage is not None
    assert (one.recorded.usage.input_tokens, one.recorded.usage.output_tokens) == (120, 8)
    assert [item.content for item in one.recorded.retrieved or ()] == ["Refunds within 30 days.", "Opening hours."]
    assert (two.input, two.references, two.recorded) == ("Hello", (), None)
    info = open_dataset(name).check()
    assert (info.case_count, info.reference_count, info.recorded_count) == (2, 1, 1)
    assert info.format == f"deepeval/{name.partition('.')[2]}"
    assert (info.mapping["references"], info.mapping["recorded"]) == ("expected_output", "actual_output")


def test_a_table(write: Write, wired: Read) -> None:
    """In texts `|` separates passages, `;` separates tools, in tables and in JSON; a cell may hold JSON."""
    tools = json.dumps([{"name": "a", "input_parameters": {"x": 1}}]).replace('"', '""')
    content = (
        "input,actual_output,expected_output,context,retrieval_context,tools_called,expected_tools,additional_metadata\n"
        f'Q,said,A,"one, two|three",r1|r2,a;b,"{tools}","{{""k"": ""v""}}"\n'
        "R,,B,,,,,\n"
    )
    one, two = wired(write("goldens.csv", content))
    assert one.contexts == ("one, two", "three")
    assert one.recorded is not None
    assert [item.content for item in one.recorded.retrieved or ()] == ["r1", "r2"]
    assert [call.name for call in one.recorded.tool_calls or ()] == ["a", "b"]
    assert one.turns[0].expected_tools == (ExpectedTool("a", {"x": 1}, "subset"),)
    assert one.metadata == {"k": "v"}
    assert (two.references, two.recorded) == (("B",), None)
    assert open_dataset("goldens.csv").check().format == "deepeval/csv"
    texts = {"input": "Q", "expected_output": "A", "context": "one, two|three", "expected_tools": "a;b"}
    (case,) = wired(write("goldens.jsonl", [texts]))
    assert (case.contexts, len(case.turns[0].expected_tools)) == (("one, two", "three"), 2)


@pytest.mark.parametrize(
    ("record", "format_name", "references"),
    [
        ({"input": "Q", "actual_output": "A", "expected": "B"}, "plain", ("B",)),
        ({"input": "Q", "actual_output": "A", "expected_output": None, "reference": "B"}, "plain", ("B",)),
        ({"input": "Q", "actual_output": "A", "expected_output": "B", "expected": "C"}, "deepeval", ("B",)),
        ({"input": "Q", "actual_output": "A", "expected": None}, "deepeval", ()),
        ({"input": "Q", "actual_output": "A", "tools_called": [], "expected": "B"}, "deepeval", ()),
    ],
)
def test_a_reference_under_another_name_tells_a_plain_record(
    write: Write, wired: Read, record: dict[str, Any], format_name: str, references: tuple[str, ...]
) -> None:
    """Two names that plain records share with DeepEval's do not hide the reference that such a record has."""
    name = write("x.jsonl", [record])
    (case,) = wired(name)
    assert (open_dataset(name).check().format, case.references) == (f"{format_name}/jsonl", references)
    assert case.recorded is not None


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"input": "Q", "actual_output": "A", "completion_time": -1},
            "completion_time: must be a number of at least 0",
        ),
        (
            {"input": "Q", "actual_output": "A", "completion_time": True},
            "completion_time: must be a number of at least",
        ),
        ({"input": "Q", "actual_output": "A", "input_token_count": "many"}, "input_token_count: must be a number"),
        ({"input": "Q", "expected_output": {"a": 1}}, "expected_output: must be a string"),
        ({"input": "Q", "expected_output": "A", "context": [1, {}]}, "context[1]: must be a string"),
        ({"input": "Q", "expected_tools": [{"input_parameters": {}}]}, "expected_tools[0].name: must name a tool"),
        (
            {"input": "Q", "tools_called": [{"name": "a", "input_parameters": [1]}]},
            "tools_called[0].input_parameters: ",
        ),
        ({"input": ["x", "y"], "expected_output": "A"}, 'input: must be a string, not ["x", "y"]'),
        ({"scenario": "S", "expected_outcome": "O", "turns": [{"role": "user", "content": "x"}]}, "turns: makes it a"),
        ({"scenario": "S", "expected_outcome": "O"}, "scenario: makes it a conversation, which is not read"),
    ],
)
def test_records_that_are_refused(write: Write, refusal: Refusal, record: dict[str, Any], message: str) -> None:
    """Wrong values and conversations are refused with file, line and field."""
    (problem,) = refusal(write("x.jsonl", [*GOLDENS, record]))
    assert problem.startswith(f"x.jsonl:3: record 3, {message}"), problem


def test_conversations_by_themselves(write: Write, refusal: Refusal) -> None:
    """A file of conversational goldens alone is refused as such, not as one without questions."""
    golden = {"scenario": "A caller is angry", "expected_outcome": "Calm", "turns": [{"role": "user", "content": "x"}]}
    assert "record 1, turns: makes it a conversation" in refusal(write("x.json", [golden]))[0]
