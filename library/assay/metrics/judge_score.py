"""Judge score: a judge's overall score of the answer, with its scores of accuracy, completeness and relevance.

    judge_score = overall_score of the verdict, or the mean of its three parts where it has none; in [0, 1]

A verdict counts only when it is valid (ranges are checked here, since providers do not enforce them); an invalid one
is an error of the row, never 0. One whose overall score contradicts its parts is kept, marked and counted. By a
rubric of your own, its criteria stand in place of the three parts: they are brought from its scale to [0, 1], and the
score is its `overall_score`, or their mean where it has none. Whether a row passes is decided here from score and
threshold, as "more than": the judge is never asked. A row whose answer no judge graded is skipped (no_verdict); an
agent error is not judged, and fails where the case has a reference. The aggregate is the mean; threshold and goal
apply to it, as "more than".
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from assay.metrics.core.info import SHARE, MetricInfo, Parameter
from assay.metrics.core.judged_metric import JudgedMetric
from assay.metrics.core.threshold_metric import MeanFold, ThresholdMetric
from assay.metrics.core.turn_scores import turn_details
from assay.metrics.jury.structured_verdict import PARTS, read_structured
from assay.model.run import Score
from assay.statistics.exact_sum import ExactSum

if TYPE_CHECKING:
    from assay.metrics.core.score import JudgeEvidence
    from assay.model.run import RowResult

RUBRIC = "structured"
INFO = MetricInfo(
    "judge_score",
    "Judge score",
    "A judge's overall score of the answer, from 0 to 1.",
    (
        Parameter("threshold", "number", 0.75, "A row's score, and the run's mean, must be more than this.", 0.0, 1.0),
        Parameter("goal", "number", 0.85, "The run's mean should be more than this.", 0.0, 1.0),
    ),
    reads=("answer", "references", "verdict"),
    values="0 to 1",
    rule="more_than",
    stats=("avg_judge_score", "avg_accuracy", "avg_completeness", "avg_relevance", "derived", "incoherent"),
    score_stats=dict.fromkeys(("avg_judge_score", "avg_accuracy", "avg_completeness", "avg_relevance"), SHARE),
)


class _Fold(MeanFold):
    def __init__(self, metric: ThresholdMetric) -> None:
        super().__init__(metric)
        self._parts = {part: ExactSum() for part in PARTS}
        self._criteria: dict[str, ExactSum] = {}
        self._marks: Counter[str] = Counter()

    def add(self, row: RowResult, score: Score) -> None:
        super().add(row, score)
        if score.value is None:
            return
        details = [detail for _, detail in turn_details(score.detail) if "derived" in detail]
        derived, coherent = (
            any(part_detail["derived"] for part_detail in details),
            all(part_detail["coherent"] for part_detail in details),
        )
        self._marks.update(derived=derived, incoherent=not coherent)
        if "criteria" in score.detail:
            for name, part in score.detail["criteria"].items():
                self._criteria.setdefault(name, ExactSum()).add(part)
            return
        for name, total in self._parts.items():
            total.add(score.detail[name])

    def detail(self, value: float | None) -> dict[str, Any]:
        return {
            "avg_judge_score": value,
            **{f"avg_{part}": total.mean for part, total in self._parts.items()},
            "derived": self._marks["derived"],
            "incoherent": self._marks["incoherent"],
            **(
                {"criteria": {name: self._criteria[name].mean for name in sorted(self._criteria)}}
                if self._criteria
                else {}
            ),
        }


class JudgeScore(JudgedMetric):
    """Parameters: `threshold` (on each row and on the mean), `goal` (on the mean)."""

    info = INFO
    fold_class = _Fold
    rubric = RUBRIC
    default_rubric = "answer"

    def _graded(self, evidence: JudgeEvidence, detail: dict[str, Any]) -> Score:
        verdict = read_structured(evidence)
        if isinstance(verdict, str):
            return self._not_computed(verdict, detail, message=evidence.message, judgements=evidence.judgements)
        detail |= {"criteria": verdict.parts} if evidence.scale is not None else verdict.parts
        detail |= {"derived": verdict.derived, "coherent": verdict.coherent}
        return self._scored_by_threshold(verdict.overall, detail, judgements=evidence.judgements)
