"""Exact match: the answer equals the reference, apart from case and surrounding space.

    correct = norm(answer) == norm(reference), norm(s) = casefold(plain(s)), as in `assay.text.equality`

A row counts in the total when its case has a reference that is not blank, and is skipped without one; with
several, any may match.
An agent error is incorrect. Inner whitespace, punctuation and diacritics count unless an option says
otherwise; an option that would leave nothing of a text is not applied to it, so that a blank answer never
matches. With `numbers` or `strip_punctuation`, texts that are numbers match where their values are equal.
accuracy = correct / total, which must reach the threshold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics.core.explanations import answer_sentence
from assay.metrics.core.info import SHARE, MetricInfo, Parameter
from assay.metrics.core.score import usable_references
from assay.metrics.core.threshold_metric import MeanFold, ThresholdMetric
from assay.model.run import Score
from assay.text.equality import plain, same_text, without_punctuation
from assay.text.folding import fold

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import Row

INFO = MetricInfo(
    "exact_match",
    "Exact match",
    "Whether the answer equals the reference, apart from case and surrounding space.",
    (
        Parameter("threshold", "number", 0.85, "Least accuracy of the run.", 0.0, 1.0),
        Parameter("collapse_whitespace", "boolean", False, "Treat every run of whitespace as one space."),
        Parameter("strip_punctuation", "boolean", False, "Leave punctuation out, except inside numbers."),
        Parameter("numbers", "boolean", False, "Compare texts that are numbers by their values."),
        Parameter("arabic_fold", "boolean", False, "Ignore Arabic diacritics, tatweel and alef variants."),
    ),
    reads=("answer", "references"),
    decides="always",
    needs="references",
    values="0 or 1",
    unit="%",
    stats=("accuracy", "correct", "total"),
    score_stats={"accuracy": SHARE},
)


class _Fold(MeanFold):
    def detail(self, value: float | None) -> dict[str, Any]:
        return {
            "accuracy": value,
            "correct": self.passed,
            "total": self.values.count,
            "meets_threshold": self.reaches(value, self.threshold),
        }


class ExactMatch(ThresholdMetric):
    """Parameters: `threshold` (on the accuracy) and what is ignored, which INFO lists."""

    info = INFO
    fold_class = _Fold

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        self._collapse_whitespace: bool = parameters["collapse_whitespace"]
        self._strip_punctuation: bool = parameters["strip_punctuation"]
        self._numbers: bool = parameters["numbers"] or self._strip_punctuation
        self._arabic_fold: bool = parameters["arabic_fold"]

    def normalise(self, text: str) -> str:
        """Return the form in which two texts are compared."""
        text = plain(text).casefold()
        if self._arabic_fold:
            text = fold(text) or text
        if self._strip_punctuation:
            text = without_punctuation(text) or text
        if self._collapse_whitespace:
            text = " ".join(text.split())
        return text

    def score(self, row: Row) -> Score:
        """Return 1 or 0."""
        references = usable_references(row.case)
        if not references:
            return self._skipped("no_reference")
        detail = {"version": self.version}
        if row.response.is_failed:
            return self._checked(False, "agent_error", detail)
        answer = self.normalise(row.response.text)
        correct = any(same_text(answer, self.normalise(text), numbers=self._numbers) for text in references)
        return self._checked(correct, "answer_differs", detail)

    def explain(self, row: Row, score: Score) -> str:
        """Return the answer and the reference."""
        return answer_sentence(row.response.text, usable_references(row.case))
