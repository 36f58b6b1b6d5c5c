"""Rubrics of the judge commands: scale, score of a verdict, and passing rule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem
from assay.judging.rubric_file import read_rubric
from assay.metrics import METRICS
from assay.parsing.names import unknown_name
from assay.statistics.calibration import Passing

if TYPE_CHECKING:
    from collections.abc import Mapping

QUALITY, ANSWER, PAIRWISE = "quality", "answer", "pairwise"
_METRICS = {QUALITY: "quality", ANSWER: "judge_score"}
"""Metrics with the passing rule of a built-in rubric."""

_OVERALL = "overall_score"


@dataclass(frozen=True, slots=True)
class AskedRubric:
    """The client's view of a rubric.

    Args:
        criteria: Scored criteria.
        minimum: Lowest score.
        maximum: Highest score.
        whole: Whether scores are integers.
        compares: Whether it compares two answers.
        text: YAML of the user's own rubric.
    """

    name: str
    criteria: tuple[str, ...]
    minimum: float = 0.0
    maximum: float = 1.0
    whole: bool = False
    compares: bool = False
    text: str = ""

    def score(self, scores: Mapping[str, float], criterion: str | None = None) -> float | None:
        """Return the score of a verdict: one criterion, the overall score, or the mean of all criteria.

        Args:
            scores: Scores by criterion; empty if the verdict is invalid.
            criterion: The criterion that counts; None for the overall score.
        """
        if criterion is not None or not scores:
            return scores.get(criterion or "")
        overall = scores.get(_OVERALL)
        return math.fsum(scores.values()) / len(scores) if overall is None else overall


_BUILT_IN = {
    QUALITY: AskedRubric(QUALITY, ("score",), 1.0, 5.0, whole=True),
    ANSWER: AskedRubric(ANSWER, ("accuracy", "completeness", "relevance", _OVERALL)),
    PAIRWISE: AskedRubric(PAIRWISE, ("accuracy", "completeness", "relevance"), compares=True),
}


def known_rubric(reference: str) -> AskedRubric | None:
    """Return a built-in rubric, or one from a file; None for a name that only a service may know.

    Args:
        reference: A name, or the path of a YAML file.

    Raises:
        InvalidInputError: The file is wrong; lists every problem.
    """
    if "/" not in reference and not reference.endswith((".yaml", ".yml")):
        return _BUILT_IN.get(reference)
    try:
        text = Path(reference).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InvalidInputError([Problem(f"cannot be read: {error.strerror}", "--rubric", reference)]) from None
    except UnicodeDecodeError as error:
        raise InvalidInputError([Problem(f"is not UTF-8 (byte {error.start})", "--rubric", reference)]) from None
    rubric = read_rubric(text, file=reference)
    names = tuple(criterion.name for criterion in rubric.criteria)
    return AskedRubric(
        rubric.name, names, rubric.minimum, rubric.maximum, rubric.whole, rubric.compares, text
    )  # fmt: skip


def listed_rubric(name: str, listed: Any) -> AskedRubric:
    """Return a rubric from the judge service's list.

    Args:
        listed: The service's rubrics as messages.

    Raises:
        InvalidInputError: The list has no rubric of that name.
    """
    by_name = {rubric.name: rubric for rubric in listed}
    if name not in by_name:
        raise InvalidInputError([Problem(unknown_name("rubric", name, by_name), "--rubric")])
    rubric = by_name[name]
    return AskedRubric(name, tuple(rubric.criteria), rubric.minimum, rubric.maximum, rubric.whole, rubric.compares)


def passing_of(rubric: AskedRubric, threshold: float | None) -> Passing | None:
    """Return the passing rule of the metric that uses this rubric; None without a rule.

    Args:
        threshold: The user's threshold; None for the metric's default.

    Raises:
        InvalidInputError: The threshold is not on the rubric's scale.
    """
    if threshold is not None and not rubric.minimum <= threshold <= rubric.maximum:
        message = f"must be on the rubric's scale, from {rubric.minimum:g} to {rubric.maximum:g}"
        raise InvalidInputError([Problem(message, "--threshold")])
    kind = _METRICS.get(rubric.name) if not rubric.text else None
    if kind is None:
        return None if threshold is None else Passing(threshold)
    info = METRICS[kind].info
    default = next(parameter.default for parameter in info.parameters if parameter.name == "threshold")
    return Passing(float(str(default)) if threshold is None else threshold, info.rule)
