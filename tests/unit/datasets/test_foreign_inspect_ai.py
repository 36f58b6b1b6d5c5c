"""Inspect: samples with input, target and choices."""

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
    {"id": 1, "input": "Capital of France?", "target": "Paris", "metadata": {"difficulty": 1, "solution_path": "a"}},
    {
        "id": 2,
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "2 + "}, {"type": "text", "text": "2?"}]},
        ],
        "target": ["4", "four"],
    },
    {"id": 3, "input": "Which is a fruit?", "choices": ["Car", "Apple", "Sky"], "target": "B"},
]


@pytest.mark.parametrize("name", ["x.json", "x.jsonl"])
def test_samples(write: Write, wired: Read, name: str) -> None:
    """Texts and messages are asked, any target is right, and what tells the solution stays with the metrics."""
    one, two, three = wired(write(name, SAMPLES))
    assert [case.case_id for case in (one, two, three)] == ["1", "2", "3"]
    assert (one.input, one.references) == ("Capital of France?", ("Paris",))
    assert (one.metadata, one.expected) == ({"difficulty": 1}, {"solution_path": "a"})
    assert (two.input, two.references) == ("2 + 2?", ("4", "four"))
    assert two.turns[0].history == (Message("system", "Be brief."),)
    assert three.choices == ("Car", "Apple", "Sky")
    assert three.references == ("B", "Apple")
    assert three.parameters == {"choices": ["Car", "Apple", "Sky"]}
    info = open_dataset(name).check()
    assert (info.format, info.case_count, info.reference_count) == (f"inspect/{name[2:]}", 3, 3)
    assert info.mapping["references"] == "target"


@pytest.mark.parametrize(
    ("cell", "choices"),
    [('"Car,Apple, Sky"', ("Car", "Apple", "Sky")), ("yes no", ("yes", "no")), ('"[""a, b"",""c""]"', ("a, b", "c"))],
)
def test_a_table(write: Write, wired: Read, cell: str, choices: tuple[str, ...]) -> None:
    """In a table choices are cut at commas, or at spaces, or stand as a list; metadata is an object in its cell."""
    (case,) = wired(write("x.csv", f'input,target,id,choices,metadata\nQ,A,s1,{cell},"{{""level"": 2}}"\n'))
    assert (case.case_id, case.choices, case.metadata) == ("s1", choices, {"level": 2})
    assert case.references == ("A", choices[0])
    assert open_dataset("x.csv").check().format == "inspect/csv"


def test_metadata_as_text(write: Write, wired: Read) -> None:
    """Metadata that is JSON in a text is the object, in JSON Lines as in tables."""
    (case,) = wired(write("x.jsonl", [{"input": "Q", "target": "A", "metadata": '{"level": 3}'}]))
    assert case.metadata == {"level": 3}


def test_a_target_that_is_no_letter_of_a_choice(write: Write, wired: Read) -> None:
    """A target is taken for a choice's letter only where there is such a choice."""
    cases = wired(
        write("x.jsonl", [{"input": "Q", "target": "D", "choices": ["a", "b"]}, {"input": "Q", "target": "A"}])
    )
    assert [case.references for case in cases] == [("D",), ("A",)]


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"input": "Q", "target": "A", "sandbox": ["docker", "compose.yaml"]}, "sandbox: needs a sandbox"),
        ({"input": "Q", "target": "A", "files": {"flag.txt": "x"}}, "files: needs files in a sandbox"),
        ({"input": "Q", "target": "A", "setup": "apt install x"}, "setup: needs files in a sandbox"),
        ({"input": [{"role": "assistant", "content": "A"}], "target": "A"}, "input: must end with the message that is"),
        ({"input": [{"role": "boss", "content": "Q"}], "target": "A"}, "input[0]: must be a message with a role"),
        ({"input": [{"role": "user", "content": [{"type": "image"}]}], "target": "A"}, "input[0].content: must be a"),
        ({"input": ["Q", "R"], "target": "A"}, "input[0]: must be a message with role and content"),
        ({"input": "Q", "target": {"a": 1}}, "target: must be a string"),
        ({"input": "Q", "target": "A", "choices": ["a", {}]}, "choices[1]: must be a string"),
        ({"input": None, "target": "A"}, "input: is missing: every case needs a question"),
    ],
)
def test_samples_that_are_refused(write: Write, refusal: Refusal, sample: dict[str, Any], message: str) -> None:
    """What agents are not given, and what is no text, is refused with file, line and field."""
    (problem,) = refusal(write("x.jsonl", [*SAMPLES, sample]))
    assert problem.startswith(f"x.jsonl:4: record 4, {message}"), problem


def test_nothing_to_prepare_is_no_reason_to_refuse(write: Write, wired: Read) -> None:
    """Empty files and setup, as exports write them, need no sandbox."""
    sample: dict[str, Any] = {"input": "Q", "target": "A", "files": {}, "setup": None, "sandbox": None, "choices": None}
    assert wired(write("x.jsonl", [sample]))[0].metadata == {}
