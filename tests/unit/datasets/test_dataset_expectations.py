"""What a case demands of the answer beside references: tools, checks, thresholds, weights, labels; and skipping it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from assay.datasets import open_dataset
from assay.model.case import Assertion, Case, ExpectedTool, case_to_json
from assay.model.run_spec import CaseSelection

Write = Callable[..., str]
Read = Callable[..., list[Case]]
Refusal = Callable[..., list[str]]

RECORD: dict[str, Any] = {
    "question": "Q",
    "expected_tools": [
        "search",
        {"name": "book", "arguments": {"day": 1}},
        {"tool_name": "pay", "input_parameters": {}, "match": "exact"},
        {"name": "look", "tool_input": None},
    ],
    "assertions": [
        {"type": "contains", "value": "a", "threshold": 0, "group": "m", "weight": 2},
        {"type": "not-contains", "value": "b"},
        {"type": "not-contains", "value": "c", "negate": True},
    ],
    "threshold": 0,
    "thresholds": {"assertions": 0.5, "rouge": 0.25},
    "weight": 0,
    "choices": ["x", "y"],
    "labels": {"good": True},
    "description": "kept",
    "expected_table": "t",
}


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.yaml", "x.csv"])
def test_what_a_case_demands(write: Write, read: Read, name: str) -> None:
    """Tools, checks, thresholds, weight, choices and labels are read in every container; zeros count."""
    content: Any = [RECORD]
    if name == "x.yaml":
        content = json.dumps(content)
    if name == "x.csv":
        cells = [item if isinstance(item, str) else json.dumps(item) for item in RECORD.values()]
        quoted = ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
        content = ",".join(RECORD) + "\n" + quoted + "\n"
    (case,) = read(write(name, content))
    assert case.turns[0].expected_tools == (
        ExpectedTool("search"),
        ExpectedTool("book", {"day": 1}, "subset"),
        ExpectedTool("pay", {}, "exact"),
        ExpectedTool("look"),
    )
    assert case.assertions == (
        Assertion("contains", "a", 0.0, "m", 2.0),
        Assertion("contains", "b", negate=True),
        Assertion("contains", "c"),
    )
    assert case.thresholds == {"semantic_similarity": 0.0, "assertions": 0.5, "rouge": 0.25}
    assert (case.weight, case.choices, case.human_labels) == (0.0, ("x", "y"), {"good": True})
    assert (case.metadata, case.expected) == ({"description": "kept"}, {"expected_table": "t"})


def test_what_a_case_demands_is_written_and_read_back(write: Write, read: Read) -> None:
    """A stored case with all of these is a record of the same case."""
    (case,) = read(write("x.json", [RECORD | {"id": "a"}]))
    assert read(write("y.json", [case_to_json(case)])) == [case]


def test_tools_of_turns(write: Write, read: Read, refusal: Refusal) -> None:
    """Each turn has its own tools; tools beside turns are refused as ambiguous."""
    turns = [{"input": "a", "expected_tools": ["t"]}, {"input": "b"}]
    (case,) = read(write("x.json", [{"turns": turns}]))
    assert [turn.expected_tools for turn in case.turns] == [(ExpectedTool("t"),), ()]
    (problem,) = refusal(write("x.json", [{"turns": turns, "expected_tools": ["t"]}]))
    assert "record 1, expected_tools: is set beside `turns`" in problem


def test_a_label_that_is_no_object(write: Write, read: Read) -> None:
    """A single mark is kept as it is, with its space and its case."""
    assert read(write("x.json", [{"question": "Q", "labels": " Yes"}]))[0].human_labels == {"labels": " Yes"}


_HUGE = 10**400


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"threshold": True}, "threshold: must be a number, not true"),
        ({"threshold": "high"}, 'threshold: must be a number, not "high"'),
        ({"threshold": "0.5"}, 'threshold: must be a number, not "0.5"'),
        ({"threshold": _HUGE}, "threshold: must be a number, not 1000"),
        ({"thresholds": {"rouge": False}}, "thresholds.rouge: must be a number, not false"),
        ({"thresholds": [1]}, "thresholds: must be an object, not [1]"),
        ({"thresholds": {" ": 1}}, "thresholds: has a threshold without the name of a metric"),
        ({"weight": -1}, "weight: must be a number from 0 to 1e+06, not -1"),
        ({"weight": True}, "weight: must be a number from 0 to 1e+06, not true"),
        ({"weight": _HUGE}, "weight: must be a number from 0 to 1e+06, not 1000"),
        ({"skip": "perhaps"}, 'skip: must be true or false, not "perhaps"'),
        ({"skip": 1}, "skip: must be true or false, not 1"),
        ({"choices": {"a": 1}}, "choices: must be a string"),
        ({"expected_tools": [3]}, "expected_tools[0]: must be a tool's name, or an object"),
        ({"expected_tools": [{"argumnets": {}}]}, "expected_tools[0].argumnets: unknown field of a tool call"),
        ({"expected_tools": [{"name": " "}]}, "expected_tools[0].name: must be a tool's name, not ' '"),
        ({"expected_tools": [{"name": "t", "arguments": [1]}]}, "expected_tools[0].arguments: must be an object"),
        (
            {"expected_tools": [{"name": "t", "match": "exactly"}]},
            "expected_tools[0].match: must be one of name, subset, exact, unordered",
        ),
        ({"assertions": ["contains"]}, "assertions[0]: must be a check"),
        ({"assertions": [{"value": "x"}]}, "assertions[0]: must be a check"),
        ({"assertions": [{"type": "contains", "valeu": "x"}]}, "assertions[0].valeu: unknown field of a check"),
        ({"assertions": [{"type": "contains", "value": "x", "negate": 1}]}, "assertions[0].negate: must be true or"),
        ({"assertions": [{"type": "contains", "value": "x", "group": 1}]}, "assertions[0].group: must be a string"),
        ({"assertions": [{"type": "contains", "value": "x", "threshold": "a"}]}, "assertions[0].threshold: must be a"),
        ({"assertions": [{"type": "contains", "value": "x", "weight": -1}]}, "assertions[0].weight: must be a number"),
    ],
)
def test_demands_that_cannot_be(write: Write, refusal: Refusal, record: dict[str, Any], message: str) -> None:
    """Values of the wrong kind, such as booleans or infinite numbers, are refused with line, field and value."""
    problem = refusal(write("x.jsonl", [{"question": "Q"}, {"question": "Q", **record}]))[0]
    assert problem.startswith(f"x.jsonl:2: record 2, {message}"), problem


@pytest.mark.parametrize("cell", ["inf", "nan", "1e999", "-1", "x"])
def test_numbers_in_cells(write: Write, refusal: Refusal, cell: str) -> None:
    """A cell is read as the number that it shows, and refused where it shows none."""
    assert "x.csv:2: record 1, weight: must be a number" in refusal(write("x.csv", f"question,weight\nQ,{cell}\n"))[0]


def test_skipped_cases(write: Write, read: Read, refusal: Refusal) -> None:
    """A skipped case is reported and counted, and takes neither an id nor a place in the limit."""
    name = write("x.csv", "id,question,skip\na,,true\na,Q,no\nb,R,YES\nc,S,\n")
    info = open_dataset(name).check()
    assert (info.case_count, info.skipped_count, info.left_out_count) == (2, 2, 0)
    assert [str(warning) for warning in info.warnings] == ["x.csv: 2 records are skipped: `skip` is true"]
    assert [case.case_id for case in read(name)] == ["a", "c"]
    assert [case.case_id for case in read(name, selection=CaseSelection(limit=2))] == ["a", "c"]
    assert "1 record is skipped" in refusal(write("x.json", [{"question": "Q", "skip": True}]))[0]


@pytest.mark.parametrize(
    ("record", "warned"),
    [
        ({"category": "out_of_scope", "expected_table": "weather"}, True),
        ({"category": " Out_Of_Scope ", "expected_table": ["a", "b"]}, True),
        ({"category": "out_of_scope", "expected_table": ""}, False),
        ({"category": "out_of_scope", "expected_table": None}, False),
        ({"category": "out_of_scope"}, False),
        ({"category": "count", "expected_table": "weather"}, False),
        ({"expected_table": "weather"}, False),
    ],
)
def test_a_refusal_that_expects_a_table_is_odd(write: Write, record: dict[str, Any], warned: bool) -> None:
    """An out-of-scope case with an expected table is read, with one warning."""
    records = [{"question": "Q"}, {"question": "Q2", **record}, {"question": "Q3", **record}]
    warnings = [str(warning) for warning in open_dataset(write("x.jsonl", records)).check().warnings]
    assert len(warnings) == warned
    for warning in warnings:
        assert warning.startswith("x.jsonl:2: record 2, expected_table: is out of scope and expects a table")
        assert warning.endswith("another category (and 1 more)")
