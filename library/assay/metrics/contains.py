"""Contains: whether the answer contains the expected texts.

    contains = 1 when all of `values` (mode "all") or any of them (mode "any") occur in the answer, else 0

Case does not count unless case_sensitive; with `fold`, neither do Arabic diacritics, look-alikes and spacing;
with as_words a text counts only where no letter or digit touches it. An agent error is 0; every row has an
answer, so none is missing the input. A row passes with 1. The aggregate is the share of rows; a threshold
applies to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics.core.explanations import quoted
from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.threshold_metric import ShareFold, ThresholdMetric
from assay.text.equality import composed, folded_case
from assay.text.folding import containment_work, contains_word, fold

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import Row
    from assay.model.run import Score

INFO = MetricInfo(
    "contains",
    "Contains",
    "Whether the answer holds the texts that it should.",
    (
        Parameter("values", "text_list", None, "The texts looked for.", required=True),
        Parameter("mode", "text", "all", "Whether all of them must occur, or any.", choices=("all", "any")),
        Parameter("case_sensitive", "boolean", False, "Whether upper and lower case differ."),
        Parameter("fold", "boolean", False, "Ignore Arabic diacritics, look-alikes and spacing."),
        Parameter("as_words", "boolean", False, "Count a text only as whole words."),
        Parameter("threshold", "number", None, "Least share of the run's rows.", 0.0, 1.0),
    ),
    reads=("answer",),
    decides="always",
    values="0 or 1",
    unit="%",
    example={"values": ["42"]},
    stats=("total",),
)
_MOST_NAMED = 5


class Contains(ThresholdMetric):
    """Parameters: `values`, `mode`, `case_sensitive`, `fold`, `as_words`, `threshold` (on the share)."""

    info = INFO
    fold_class = ShareFold

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        self._values: list[str] = parameters["values"]
        self._any = parameters["mode"] == "any"
        self._case_sensitive: bool = parameters["case_sensitive"]
        self._fold: bool = parameters["fold"]
        self._as_words: bool = parameters["as_words"]

    @staticmethod
    def check(parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return what is wrong with the parameters together."""
        if parameters["case_sensitive"] and (parameters["fold"] or parameters["as_words"]):
            return [("case_sensitive", "cannot go with fold or as_words, which ignore case")]
        return []

    def work(self, row: Row) -> int:
        """Return an upper bound of the work of looking for the texts."""
        return containment_work(row.response.text, self._values, as_words=self._as_words)

    def score(self, row: Row) -> Score:
        """Return 1 or 0."""
        detail: dict[str, Any] = {"version": self.version}
        if row.response.is_failed:
            return self._checked(False, "agent_error", detail)
        occurrences = self._found(row.response.text)
        holds = any(occurrences) if self._any else all(occurrences)
        missing = [value for value, is_found in zip(self._values, occurrences, strict=True) if not is_found]
        if not holds:
            detail["missing"] = missing[:20]
        return self._checked(holds, "text_missing", detail)

    def _found(self, text: str) -> list[bool]:
        if self._fold or self._as_words:
            folded = fold(text)
            if self._as_words:
                return [contains_word(folded, value) for value in self._values]
            return [fold(value) in folded for value in self._values]
        form = composed if self._case_sensitive else folded_case
        answer = form(text)
        return [form(value) in answer for value in self._values]

    def explain(self, row: Row, score: Score) -> str:
        """Return the texts that the answer lacks."""
        missing = score.detail.get("missing", ())
        shown = ", ".join(map(quoted, missing[:_MOST_NAMED]))
        more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
        quantity = "none of the expected texts is" if self._any else "expected texts are not"
        return f"{quantity} in the answer: {shown}{more}; the answer is {quoted(row.response.text)}"
