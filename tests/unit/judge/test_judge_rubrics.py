from __future__ import annotations

import pytest

from assay.errors import InvalidInputError
from assay.judging.rubric_file import read_rubric
from assay_judge.verdicts.prompt import rubric_text
from assay_judge.verdicts.rubric_registry import BUILT_IN, RubricRegistry

TONE = """
name: tone
description: Whether the answer is friendly.
instructions: Judge the tone only.
scale: {minimum: 1, maximum: 5, whole: true}
criteria:
  - name: politeness
    description: Whether the customer is treated with respect.
    anchors: {5: warm, 1: rude}
  - {name: warmth, description: Whether it is warm., optional: true}
examples:
  - {question: "Where is it?", answer: "No idea.", scores: {politeness: 1}, reasoning: It sends them away.}
"""


def test_a_rubric_of_ones_own() -> None:
    """A user's rubric has criteria, scale, anchors and examples, which the judge is shown."""
    rubric = read_rubric(TONE)
    assert [criterion.name for criterion in rubric.criteria] == ["politeness", "warmth"]
    assert (rubric.minimum, rubric.maximum, rubric.whole) == (1.0, 5.0, True)
    assert list(rubric.criteria[0].anchors) == [1.0, 5.0]
    text = rubric_text(rubric)
    for shown in ("Judge the tone only.", "5: warm", "It sends them away.", "Whether it is warm.", '"politeness": 1'):
        assert shown in text


REST = "name: a, description: b, criteria: [{name: c, description: d}]"
WRONG = """
name: My Rubric
descripton: typo
scale: {minimum: 5, maximum: 1, step: 2}
criteria:
  - {name: reasoning, description: x}
  - {name: a, description: x, anchors: {9: off, 1: ""}}
  - {name: a, description: ""}
  - text
examples:
  - {question: q, answer: a, scores: {b: 1}, reasoning: r}
compares: 3
"""


def test_all_problems_are_said_at_once() -> None:
    """Each with its field and line."""
    with pytest.raises(InvalidInputError) as caught:
        read_rubric(WRONG, file="my.yaml")
    assert {problem.field for problem in caught.value.problems} >= {
        "name", "descripton", "description", "scale", "scale.step", "criteria[0].name", "criteria[1].anchors.9",
        "criteria[1].anchors.1", "criteria[2].name", "criteria[2].description", "criteria[3]",
        "examples[0].scores.b", "compares",
    }  # fmt: skip
    assert all(problem.file == "my.yaml" for problem in caught.value.problems)
    assert next(p.line for p in caught.value.problems if p.field == "descripton") == 3
    assert "did you mean 'description'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected one YAML document"),
        ("- 1", "is not a mapping"),
        ("name: *x", "alias"),
        ("name: a\nname: b", "given twice"),
        ("{name: a, description: b, criteria: [{name: c, description: d, optional: true}]}", "at least one score"),
        (f"{{compares: true, scale: {{minimum: 0, maximum: 1}}, {REST}}}", "has no meaning"),
        (f"{{scale: {{minimum: .nan, maximum: 1}}, {REST}}}", "finite"),
        (f"{{scale: {{minimum: 0.5, maximum: 2, whole: true}}, {REST}}}", "whole numbers"),
        ("x" * 100_001, "longer than"),
    ],
)  # fmt: skip
def test_what_is_no_rubric_is_refused(text: str, message: str) -> None:
    """An invalid rubric is refused with a remedy, never with a traceback."""
    with pytest.raises(InvalidInputError, match=message):
        read_rubric(text, field="rubric_yaml")


def test_rubrics_are_found_by_name_and_kind() -> None:
    """A rubric for pairs cannot score an answer; an unknown name is answered with the nearest."""
    rubrics = RubricRegistry()
    assert rubrics.find("quality", "", compares=False) is BUILT_IN["quality"]
    assert rubrics.find("", TONE, compares=False).name == "tone"
    for name, own, compares, said in (
        ("qualty", "", False, "did you mean 'quality'"),
        ("pairwise", "", False, "unknown rubric"),
        ("tone", TONE, True, "scores one answer: use Grade"),
        ("quality", TONE, False, "is named 'tone'"),
    ):
        with pytest.raises(InvalidInputError, match=said):
            rubrics.find(name, own, compares=compares)
