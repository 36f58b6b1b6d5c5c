"""Comparing two answers in both orders: one wins only if it does so wherever it is shown."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay_judge.grading.grader import Grader
    from assay_judge.model import Grading
    from assay_judge.verdicts.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comes of comparing two answers.

    Args:
        winner: "a", "b" or "tie"; empty where a verdict is missing.
        flipped: Whether the two orders disagree.
        outcomes: With A shown first, and with B shown first.
    """

    winner: str
    flipped: bool
    outcomes: tuple[Outcome, Outcome]


async def compare_answers(grader: Grader, grading: Grading) -> Comparison:
    """Return which of two answers is better.

    Args:
        grader: Grades.
        grading: The request with A as the first answer and B as the second.
    """
    material = grading.material
    assert material.second is not None
    swapped = dataclasses.replace(material, answer=material.second, second=material.answer)
    async with asyncio.TaskGroup() as both:
        shown = both.create_task(grader.grade(grading))
        other = both.create_task(grader.grade(dataclasses.replace(grading, material=swapped)))
    outcomes = (shown.result(), other.result())
    first = _winner(outcomes[0], {"first": "a", "second": "b", "tie": "tie"})
    second = _winner(outcomes[1], {"first": "b", "second": "a", "tie": "tie"})
    if not first or not second:
        return Comparison("", flipped=False, outcomes=outcomes)
    return Comparison(first if first == second else "tie", flipped=first != second, outcomes=outcomes)


def _winner(outcome: Outcome, names: dict[str, str]) -> str:
    return names[outcome.verdict.winner] if outcome.verdict is not None else ""
