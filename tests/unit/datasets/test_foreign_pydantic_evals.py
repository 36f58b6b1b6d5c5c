"""pydantic-evals: cases with inputs, expected outputs and evaluators."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from assay.datasets import open_dataset
from assay.model.case import Assertion, Case

Write = Callable[..., str]
Read = Callable[..., list[Case]]
Refusal = Callable[..., list[str]]

DATASET = """\
# yaml-language-server: $schema=capitals_schema.json
name: capitals
cases:
- name: france
  inputs: What is the capital of France?
  expected_output: Paris
  metadata: {difficulty: easy}
  evaluators:
  - EqualsExpected
  - Contains: {value: par, case_sensitive: false}
- name: recipe
  inputs: {dish: soup, people: 2}
  expected_output: {title: Soup}
  evaluators:
  - MaxDuration: 2.5
  - LLMJudge: {rubric: Is it soup?}
- name: open
  inputs: {question: Anything?, lang: en}
evaluators:
- Contains: a
- IsInstance: str
"""


def test_a_dataset(write: Write, wired: Read) -> None:
    """Cases with their names; evaluators that are checks become checks, those of the file for every case."""
    france, recipe, open_ = wired(write("capitals.yaml", DATASET))
    assert [case.case_id for case in (france, recipe, open_)] == ["france", "recipe", "open"]
    assert (france.input, france.references) == ("What is the capital of France?", ("Paris",))
    assert france.metadata == {"difficulty": "easy"}
    assert france.assertions == (
        Assertion("contains", "a"),
        Assertion("equals", "Paris"),
        Assertion("icontains", "par"),
    )
    assert recipe.variables == {"dish": "soup", "people": 2}
    assert recipe.references == ()
    assert recipe.expected["expected_output"] == {"title": "Soup"}
    assert recipe.expected["evaluators"] == [{"IsInstance": "str"}, {"LLMJudge": {"rubric": "Is it soup?"}}]
    assert recipe.assertions == (Assertion("contains", "a"), Assertion("latency", threshold=2500.0))
    assert (open_.input, open_.parameters) == ("Anything?", {"lang": "en"})


def test_evaluators_that_are_not_read_are_told(write: Write) -> None:
    """Judges and code of the user's are no checks: a warning names them, for the file and for its cases."""
    info = open_dataset(write("capitals.yaml", DATASET)).check()
    assert (info.format, info.case_count, info.reference_count) == ("pydantic-evals/yaml", 3, 1)
    sentences = [str(warning) for warning in info.warnings]
    assert any("does not read the evaluators IsInstance" in text for text in sentences)
    assert any(
        "does not read the evaluators LLMJudge" in text and "capitals.yaml:11: record 2" in text for text in sentences
    )


def test_as_json(write: Write, wired: Read) -> None:
    """The JSON that the tool writes, evaluators with name and arguments, what all share after the cases."""
    content = {
        "$schema": "./x_schema.json",
        "cases": [
            {"name": None, "inputs": "Q", "expected_output": 4, "evaluators": []},
            {
                "name": "b",
                "inputs": "R",
                "expected_output": None,
                "metadata": None,
                "evaluators": [{"name": "Contains", "arguments": {"value": "x"}}],
            },
        ],
        "evaluators": ["EqualsExpected"],
    }
    one, two = wired(write("x.json", content))
    assert (one.references, one.assertions) == (("4",), (Assertion("equals", 4),))
    assert (len(one.case_id), two.case_id) == (12, "b")
    assert two.assertions == (Assertion("contains", "x"),)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"name": "b", "inputs": "Q", "evaluators": [7]}, "evaluators: must be an evaluator's name"),
        ({"name": "b", "inputs": "Q", "evaluators": [{"a": 1, "b": 2}]}, "evaluators: must be an evaluator's name"),
        ({"name": "b", "inputs": None, "expected_output": "A"}, "input: is missing"),
        ({"name": "a", "inputs": "Q", "expected_output": "A"}, 'id: "a" is the id of'),
    ],
)
def test_cases_that_are_refused(write: Write, refusal: Refusal, case: dict[str, Any], message: str) -> None:
    """Something that names no evaluator, and a name given twice, is refused with file, line and field."""
    good = {"name": "a", "inputs": "Q", "expected_output": "A"}
    content = "[" + ",\n".join(json.dumps(item) for item in (good, case)) + "]"
    (problem,) = refusal(write("x.json", content), format="pydantic-evals")
    assert problem.startswith(f"x.json:2: record 2, {message}"), problem


def test_what_is_read_as_what(write: Write) -> None:
    """The report names the fields of the format."""
    mapping = open_dataset(write("x.yaml", DATASET)).check().mapping
    assert (mapping["references"], mapping["assertions"]) == ("expected_output", "evaluators")


def test_an_evaluator_with_more_than_a_name_and_arguments_is_refused(write: Write, refusal: Refusal) -> None:
    """What else it says would be dropped without a word."""
    evaluators = [{"name": "EqualsExpected", "arguments": {}, "weight": 2}]
    case = {"name": "a", "inputs": "q", "expected_output": "x", "evaluators": evaluators}
    (problem,) = refusal(write("x.json", {"cases": [case]}))
    assert "must be an evaluator's name, or an object of one name" in problem
