"""Rubrics, as plain objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Criterion:
    """One criterion of a rubric.

    Args:
        name: Its key in the verdict.
        description: What is asked.
        anchors: What some scores mean, from the lowest to the highest.
        optional: Whether a verdict may say null for it.
    """

    name: str
    description: str
    anchors: Mapping[float, str] = field(default_factory=dict)
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Example:
    """An example answer with its right verdict.

    Args:
        scores: By criterion.
        reasoning: Why.
        reference: The reference, empty for none.
    """

    question: str
    answer: str
    scores: Mapping[str, float]
    reasoning: str
    reference: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Rubric:
    """The rubric of a judge; compared by identity, so that derived values can be cached by it.

    Args:
        name: The name that callers use.
        description: One sentence.
        criteria: In the order in which they are asked.
        minimum: Lowest score.
        maximum: Highest score.
        whole: Whether scores are whole numbers.
        compares: Whether it compares two answers; it then has no scores.
        judges_trivial: Whether a judge is asked even about an empty answer.
        instructions: What else the judge is to know.
        examples: Answers with their verdicts.
    """

    name: str
    description: str
    criteria: tuple[Criterion, ...]
    minimum: float = 0.0
    maximum: float = 1.0
    whole: bool = False
    compares: bool = False
    judges_trivial: bool = False
    instructions: str = ""
    examples: tuple[Example, ...] = ()

    @property
    def lowest(self) -> dict[str, float]:
        """The lowest score of every criterion."""
        return {criterion.name: self.minimum for criterion in self.criteria}
