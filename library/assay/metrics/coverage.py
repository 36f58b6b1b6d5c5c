"""Coverage rate: the share of questions for which the agent found something and said so.

A row is covered when (a) the agent retrieved at least one item, (b) its folded answer is not empty, and
(c) the folded answer holds none of the fallback phrases. Folding matters: models write a curly apostrophe.
Agent errors are in the total, not covered. A threshold applies to the rate; rows get no verdict.

Of a case of the category `out_of_scope` there is nothing to find: its rows are skipped (unanswerable) and not part of
the rate, so an agent that invents an answer gains nothing. They are counted apart: unanswerable rows, their share of
all rows, and those declined: the agent did not fail, and its status is out_of_scope or its folded answer holds a
fallback phrase or a decline phrase.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics.core.declining import DECLINE_PHRASES, Declining
from assay.metrics.core.explanations import quoted, score_message
from assay.metrics.core.info import SHARE, MetricInfo, Parameter
from assay.metrics.core.score import scored
from assay.metrics.core.threshold_metric import MeanFold, ThresholdMetric
from assay.metrics.retrieval_accuracy import is_out_of_scope
from assay.model.run import Score
from assay.text.equality import is_blank
from assay.text.folding import containment_work, fold

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import Row
    from assay.model.run import RowResult

_UNANSWERABLE = "unanswerable"

INFO = MetricInfo(
    "coverage",
    "Coverage rate",
    "Share of questions for which the agent found something and said so.",
    (
        Parameter(
            "fallback_phrases", "text_list", ["couldn't find any events"], "Phrases that mean nothing was found."
        ),
        DECLINE_PHRASES,
        Parameter("threshold", "number", None, "Least rate of the run.", 0.0, 1.0),
    ),
    reads=("answer", "retrieved", "status", "category"),
    decides="never",
    values="0 or 1 for a row, 0 to 1 for the run",
    unit="%",
    stats=("covered", "total", "unanswerable", "unanswerable_share", "declined", "declined_rate"),
    score_stats={"declined_rate": SHARE},
)


class _Fold(MeanFold):
    def __init__(self, metric: ThresholdMetric) -> None:
        super().__init__(metric)
        self._covered = self._unanswerable = self._declined = 0

    def add(self, row: RowResult, score: Score) -> None:
        super().add(row, score)
        self._covered += score.value == 1.0
        if score.reason == _UNANSWERABLE:
            self._unanswerable += 1
            self._declined += score.detail.get("declined") is True

    def detail(self, value: float | None) -> dict[str, Any]:
        rows = self.values.count + self._unanswerable
        return {
            "covered": self._covered,
            "total": self.values.count,
            "unanswerable": self._unanswerable,
            "unanswerable_share": self._unanswerable / rows if rows else None,
            "declined": self._declined,
            "declined_rate": self._declined / self._unanswerable if self._unanswerable else None,
        }


class Coverage(ThresholdMetric):
    """Parameters: `fallback_phrases`, `decline_phrases`, `threshold` (on the rate)."""

    info = INFO
    fold_class = _Fold
    version = "2"

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        self._phrases = [folded for phrase in parameters["fallback_phrases"] if (folded := fold(phrase))]
        self._declining = Declining([*parameters["fallback_phrases"], *parameters["decline_phrases"]])

    def work(self, row: Row) -> int:
        """Return an upper bound of the work of looking for the phrases."""
        if is_out_of_scope(row.case):
            return self._declining.work(row.response)
        return containment_work(row.response.text, self._phrases, as_words=False)

    def score(self, row: Row) -> Score:
        """Return 1 for a covered row, else 0; of a question that cannot be answered, whether it was declined."""
        if is_out_of_scope(row.case):
            detail = {"version": self.version, "declined": self._declining.is_declined(row.response)}
            return self._skipped(_UNANSWERABLE, detail=detail)
        reason = self._why_not(row)
        return scored(self.name, 0.0 if reason else 1.0, reason=reason, detail={"version": self.version})

    def explain(self, row: Row, score: Score) -> str:
        """Return why a question is not covered."""
        if score.reason == "nothing_retrieved":
            return f"nothing was retrieved for the question; the answer is {quoted(row.response.text)}"
        if score.reason == "fallback_phrase":
            return f"the answer says that nothing was found: {quoted(row.response.text)}"
        return score_message(score)

    def _why_not(self, row: Row) -> str:
        if row.response.is_failed:
            return "agent_error"
        if not row.response.retrieved:
            return "nothing_retrieved"
        answer = fold(row.response.text)
        if not answer or is_blank(row.response.text):
            return "empty_output"
        return "fallback_phrase" if any(phrase in answer for phrase in self._phrases) else ""
