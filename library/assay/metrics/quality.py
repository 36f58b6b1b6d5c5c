"""Quality: a judge's rating of the answer from 1 (very poor) to 5 (excellent).

    quality = the rating; average_quality = mean of the valid ratings

The judge sees the question and the reference, where there is one. Its verdict is {"reasoning", "score"}; a
reply in words counts when it holds one such object, or exactly one distinct whole number from 1 to 5, apart from
a denominator such as "/5". Anything else is an error of the row, never a rating. A row whose answer no judge
graded is skipped (no_verdict); an agent error is not rated, and fails where the case has a reference. A row
passes with a rating of at least the threshold, which also applies to the average, inclusive.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

from assay.metrics.core.info import SHARE, MetricInfo, Parameter
from assay.metrics.core.judged_metric import JudgedMetric
from assay.metrics.core.threshold_metric import MeanFold
from assay.metrics.jury.structured_verdict import objects_in
from assay.model.run import Score

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import JudgeEvidence

RUBRIC = "quality"
INFO = MetricInfo(
    "quality",
    "Quality",
    "A judge's rating of the answer from 1 to 5.",
    (Parameter("threshold", "number", 4.0, "Least rating of a row, and least average of the run.", 1.0, 5.0),),
    reads=("answer", "references", "verdict"),
    values="1 to 5, whole numbers",
    stats=("average_quality", "normalised", "total_evaluated"),
    score_stats={"average_quality": (1.0, 5.0), "normalised": SHARE},
)
_DENOMINATOR = re.compile(r"(?<=\d)\s*(?:/\s*5|\bout\s+of\s+5|\bof\s+5)(?!\w|\.\d)", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?!\w)")
_DIGITS = {ord(digit): str(value) for digits in ("٠١٢٣٤٥٦٧٨٩", "۰۱۲۳۴۵۶۷۸۹") for value, digit in enumerate(digits)}


def parse_quality(reply: str) -> int | None:
    """Return the rating in a judge's reply, or None if it does not hold exactly one."""
    text = unicodedata.normalize("NFKC", reply).translate(_DIGITS)
    numbers = {float(number) for number in _NUMBER.findall(_DENOMINATOR.sub("", text))}
    if len(numbers) != 1:
        return None
    value = numbers.pop()
    return int(value) if value.is_integer() and 1 <= value <= 5 else None


def read_rating(evidence: JudgeEvidence) -> int | None:
    """Return the rating that a judge gave, or None if it gave no valid one."""
    if evidence.verdict is not None:
        return _rating(evidence.verdict)
    objects = objects_in(evidence.text)
    if objects is None:
        return None
    ratings = [rating for rating in map(_rating, objects) if rating is not None]
    if not ratings:
        return parse_quality(evidence.text)
    return ratings[0] if len(ratings) == 1 else None


def _rating(verdict: Mapping[str, Any]) -> int | None:
    rating, reasoning = verdict.get("score"), verdict.get("reasoning", "")
    if isinstance(rating, bool) or not isinstance(rating, int | float) or not isinstance(reasoning, str):
        return None
    return int(rating) if 1 <= rating <= 5 and rating == int(rating) else None


class _Fold(MeanFold):
    def detail(self, value: float | None) -> dict[str, Any]:
        return {
            "average_quality": value,
            "total_evaluated": self.values.count,
            "normalised": None if value is None else value / 5,
            "meets_threshold": self.reaches(value, self.threshold),
            "note": "" if value is not None else "No valid quality scores",
        }


class Quality(JudgedMetric):
    """Parameters: `threshold` (on each row and on the average)."""

    info = INFO
    fold_class = _Fold
    rubric = default_rubric = RUBRIC

    def _graded(self, evidence: JudgeEvidence, detail: dict[str, Any]) -> Score:
        rating = None if evidence.error else read_rating(evidence)
        if rating is None:
            return self._not_computed(
                evidence.error or "invalid_verdict", detail, message=evidence.message, judgements=evidence.judgements
            )
        return self._scored_by_threshold(rating, detail, judgements=evidence.judgements)
