"""The rubric that a command asks by: its scale, what of a verdict is the score, and when that passes."""

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
"""Metrics that say when a verdict by a built-in rubric passes."""

_OVERALL = "overall_score"


@dataclass(frozen=True, slots=True)
class AskedRubric:
    """A rubric as a client needs it.

    Args:
        criteria: What it scores.
        minimum: Lowest score.
        maximum: Highest score.
        whole: Whether scores are whole numbers.
        compares: Whether it compares two answers.
        text: Its YAML, where it is the user's own.
    """

    name: str
    criteria: tuple[str, ...]
    minimum: float = 0.0
    maximum: float = 1.0
    whole: bool = False
    compares: bool = False
    text: str = ""

    def score(self, scores: Mapping[str, float], criterion: str | None = None) -> float | None:
        """Return what of a verdict counts: one criterion, or the overall score, or the mean of all.

        Args:
            scores: By criterion; empty where the verdict is not valid.
            criterion: The one that counts; None for the whole.
        """
        if criterion is not None or not scores:
            return scores.get(criterion or "")
        found = scores.get(_OVERALL)
        return math.fsum(scores.values()) / len(scores) if found is None else found


_BUILT_IN = {
    QUALITY: AskedRubric(QUALITY, ("score",), 1.0, 5.0, whole=True),
    ANSWER: AskedRubric(ANSWER, ("accuracy", "completeness", "relevance", _OVERALL)),
    PAIRWISE: AskedRubric(PAIRWISE, ("accuracy", "completeness", "relevance"), compares=True),
}


def known_rubric(given: str) -> AskedRubric | None:
    """Return a rubric that is known without asking a service: a built-in one, or a file; None for any other name.

    Args:
        given: A name, or the path of a YAML file.

    Raises:
        InvalidInputError: All that is wrong with the file.
    """
    if "/" not in given and not given.endswith((".yaml", ".yml")):
        return _BUILT_IN.get(given)
    try:
        text = Path(given).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InvalidInputError([Problem(f"cannot be read: {error.strerror}", "--rubric", given)]) from None
    except UnicodeDecodeError as error:
        raise InvalidInputError([Problem(f"is not UTF-8 (byte {error.start})", "--rubric", given)]) from None
    rubric = read_rubric(text, file=given)
    names = tuple(criterion.name for criterion in rubric.criteria)
    return AskedRubric(
        rubric.name, names, rubric.minimum, rubric.maximum, rubric.whole, rubric.compares, text
    )  # fmt: skip


def listed_rubric(name: str, listed: Any) -> AskedRubric:
    """Return a rubric that the judge service lists.

    Args:
        listed: The service's rubrics as messages.

    Raises:
        InvalidInputError: It lists none of that name.
    """
    found = {each.name: each for each in listed}
    if name not in found:
        raise InvalidInputError([Problem(unknown_name("rubric", name, found), "--rubric")])
    each = found[name]
    return AskedRubric(name, tuple(each.criteria), each.minimum, each.maximum, each.whole, each.compares)


def passing_of(rubric: AskedRubric, threshold: float | None) -> Passing | None:
    """Return when a score passes: as the metric that reads this rubric says; None where nothing says so.

    Args:
        threshold: What the user demands; None for the metric's default.

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
