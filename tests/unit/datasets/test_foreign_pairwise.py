"""Pairs of answers with people's preference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assay.datasets import open_dataset
from assay.model.case import Case

Write = Callable[..., str]
Read = Callable[..., list[Case]]
Refusal = Callable[..., list[str]]

PAIRS: list[dict[str, Any]] = [
    {"input": "Name a fruit", "output_1": "Apple", "output_2": "Car", "label": 1},
    {"input": "Name a colour", "output_1": "Dog", "output_2": "Blue", "label": "2", "type": "colour"},
    {"instruction": "Translate.", "input": "Hallo", "output_1": "Hello", "output_2": "Hi"},
]


def test_pairs(write: Write, wired: Read) -> None:
    """Both answers and the preference are labels; neither answer is a reference or recorded."""
    one, two, three = wired(write("pairs.json", PAIRS))
    assert one.human_labels == {"output_1": "Apple", "output_2": "Car", "preference": 1}
    assert (one.input, one.references, one.recorded) == ("Name a fruit", (), None)
    assert (two.human_labels["preference"], two.category) == (2, "colour")
    assert (three.input, three.human_labels) == ("Translate.\n\nHallo", {"output_1": "Hello", "output_2": "Hi"})
    info = open_dataset("pairs.json").check()
    assert (info.format, info.case_count) == ("pairwise/json", 3)
    assert info.mapping["human_labels"] == "output_1 | output_2 | label"


@pytest.mark.parametrize(
    ("label", "preference"),
    [(1, 1), (2, 2), ("1", 1), (" 2 ", 2), (1.0, 1), ("output_2", 2), ("Output 1", 1), ("A", 1), ("b", 2), (0, "tie"),
     ("tie", "tie"), ("Both", "tie")],
)  # fmt: skip
def test_labels(write: Write, wired: Read, label: object, preference: int | str) -> None:
    """Numbers, texts and names of the answers, with space and in any case, say the same thing.

    Pitfall: labels `" Yes"` and `"Yes"`, 1 and "1".
    """
    (case,) = wired(write("x.json", [{**PAIRS[0], "label": label}]))
    assert case.human_labels["preference"] == preference


def test_a_table(write: Write, wired: Read) -> None:
    """Labels in cells are texts, and read like numbers."""
    cases = wired(write("x.csv", "input,output_1,output_2,label\nQ,a,b,1\nR,a,b,tie\n"))
    assert [case.human_labels["preference"] for case in cases] == [1, "tie"]


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ({"input": "Q", "output_1": "a", "output_2": "b", "label": 3}, "label: must say which answer is better"),
        ({"input": "Q", "output_1": "a", "output_2": "b", "label": True}, "label: must say which answer is better"),
        ({"input": "Q", "output_1": "a", "output_2": "b", "label": "left"}, "label: must say which answer is better"),
        ({"input": "Q", "output_1": "a", "label": 1}, "output_2: is missing: a pair has two answers"),
        ({"input": "Q", "output_1": ["a"], "output_2": "b"}, "output_1: must be a string"),
        ({"output_1": "a", "output_2": "b", "label": 1}, "input: is missing"),
    ],
)
def test_pairs_that_are_refused(write: Write, refusal: Refusal, pair: dict[str, Any], message: str) -> None:
    """A pair without its answers, or with a label that means nothing, is refused with file, line and field."""
    (problem,) = refusal(write("x.jsonl", [*PAIRS, pair]))
    assert problem.startswith(f"x.jsonl:4: record 4, {message}"), problem


@pytest.mark.parametrize(
    ("words", "preference"),
    [
        (["1", "output_1", "output1", "first", "a", "answer_1", "model_1"], 1),
        (["2", "output_2", "output2", "second", "b", "answer_2", "model_2"], 2),
        (["0", "tie", "equal", "both", "neither", "draw", "same"], "tie"),
    ],
)
def test_every_word_for_a_preference(write: Write, wired: Read, words: list[str], preference: int | str) -> None:
    """Every word that tools use for a preference is read, in either case."""
    pairs = [{**PAIRS[0], "input": word, "label": word.upper()} for word in words]
    assert {case.human_labels["preference"] for case in wired(write("pairs.json", pairs))} == {preference}


def test_a_file_that_two_formats_fit_is_refused(write: Write, refusal: Refusal) -> None:
    """Neither is taken: they would read it differently."""
    record = {"inputs": "q", "expected_output": "a", "output_1": "x", "output_2": "y"}
    (problem,) = refusal(write("x.json", [record]))
    assert "looks like pydantic-evals and pairwise alike: set `format:` to the one that it is" in problem
