"""The registry of rubrics, with the three that come with Assay."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem
from assay.judging.rubric_file import read_rubric
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.judging.rubric import Rubric

_QUALITY = """
name: quality
description: One rating from 1 (very poor) to 5 (excellent).
instructions: >-
  Rate the answer as a whole for accuracy, clarity, completeness and helpfulness. Where there is a reference, it
  says what is right; an answer may say it in other words.
scale: {minimum: 1, maximum: 5, whole: true}
criteria:
  - name: score
    description: The quality of the answer as a whole.
    anchors:
      1: very poor; wrong, empty of content, or no answer to the question
      2: poor; mostly wrong or missing what matters
      3: fair; partly right, with errors or gaps that matter
      4: good; right and clear, with small gaps
      5: excellent; right, clear, complete and helpful
"""
_ANSWER = """
name: answer
description: Accuracy, completeness and relevance, and an overall score, each from 0 to 1.
instructions: >-
  Score the answer to the question. Where there is a reference, it says what is right and what belongs to a complete
  answer; where there are passages, the answer should rest on them.
scale: {minimum: 0, maximum: 1}
criteria:
  - name: accuracy
    description: Whether what is said is true.
    anchors: {0: everything that matters is wrong, 1: everything is right}
  - name: completeness
    description: Whether nothing is missing that belongs to the answer.
    anchors: {0: all that matters is missing, 1: nothing is missing}
  - name: relevance
    description: Whether it answers this question and keeps to it.
    anchors: {0: it answers another question, 1: all of it serves the question}
  - name: overall_score
    description: The answer as a whole, within the range of the other three.
    optional: true
"""
_PAIRWISE = """
name: pairwise
description: Which of two answers is better, or that they are equally good.
compares: true
instructions: >-
  Compare two answers to the same question. Length, tone and the order in which they are shown do not matter. Say
  "tie" where neither is clearly better.
criteria:
  - name: accuracy
    description: Which one says more that is true, and less that is not.
  - name: completeness
    description: Which one leaves less out of what belongs to the answer.
  - name: relevance
    description: Which one keeps closer to the question.
"""

BUILT_IN: Mapping[str, Rubric] = {rubric.name: rubric for rubric in map(read_rubric, (_QUALITY, _ANSWER, _PAIRWISE))}
"""The rubrics of every judge, by name."""


@dataclass(frozen=True, slots=True)
class RubricRegistry:
    """The rubrics of one server.

    Args:
        rubrics: The rubrics by name.
    """

    rubrics: Mapping[str, Rubric] = field(default_factory=lambda: BUILT_IN)

    def find(self, name: str, own_yaml: str, *, compares: bool) -> Rubric:
        """Return the rubric that a request names or contains.

        Args:
            name: The name of the rubric; may be empty if there is `own_yaml`.
            own_yaml: The caller's own rubric; its name must match `name`, if both are given.
            compares: Whether the request compares two answers.

        Raises:
            InvalidInputError: The rubric is unknown, invalid or of the other kind.
        """
        if own_yaml.strip():
            rubric = _own_rubric(own_yaml)
            if name and name != rubric.name:
                raise InvalidInputError(
                    [Problem(f"is {name!r}, but rubric_yaml is named {rubric.name!r}: leave it out", "rubric")]
                )
        else:
            known = {key: rubric for key, rubric in self.rubrics.items() if rubric.compares == compares}
            if name not in known:
                raise InvalidInputError([Problem(unknown_name("rubric", name, known), "rubric")])
            rubric = known[name]
        if rubric.compares != compares:
            remedy = "compares two answers: use ComparePair" if rubric.compares else "scores one answer: use Grade"
            raise InvalidInputError([Problem(f"the rubric {rubric.name!r} {remedy}", "rubric")])
        return rubric


@lru_cache(maxsize=256)
def _own_rubric(text: str) -> Rubric:
    """Return a caller's own rubric, cached because thousands of requests contain the same one."""
    return read_rubric(text, field="rubric_yaml")
