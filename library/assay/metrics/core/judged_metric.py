"""The base of metrics that read a judge's verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics.core.explanations import threshold_sentence, with_reasoning
from assay.metrics.core.score import has_reference
from assay.metrics.core.threshold_metric import ThresholdMetric
from assay.metrics.core.verdict_names import verdict_name
from assay.model.run import Score, ScoreStatus

if TYPE_CHECKING:
    from assay.metrics.core.score import JudgeEvidence, Row
    from assay.model.run_spec import MetricSpec


class JudgedMetric(ThresholdMetric):
    """A metric whose value is a judge's grade; a kind adds `rubric`, `default_rubric` and `_graded`."""

    rubric: str
    """The name of the verdict that the metric reads."""
    default_rubric: str
    """The rubric of the verdict, unless the spec chooses another."""

    def use_judge(self, spec: MetricSpec) -> None:
        """Read the verdicts of the metric's judge by its rubric."""
        self.rubric = verdict_name(type(self).rubric, spec)

    def score(self, row: Row) -> Score:
        """Return the score that the judge's verdict gives, or why there is none."""
        if row.response.is_failed:
            passed = False if self.decides and has_reference(row.case) else None
            detail = {"version": self.version}
            return Score(self.name, ScoreStatus.ERROR, passed=passed, reason="agent_error", detail=detail)
        evidence = row.verdicts.get(self.rubric)
        if evidence is None:
            return self._skipped("no_verdict")
        if evidence.skipped:
            return self._skipped(evidence.skipped, message=evidence.message)
        return self._graded(evidence, {"version": self.version})

    def explain(self, row: Row, score: Score) -> str:
        """Return the judge's score with the threshold, and its reasons."""
        return with_reasoning(score, threshold_sentence(score))

    def _graded(self, evidence: JudgeEvidence, detail: dict[str, Any]) -> Score:
        """Return the score of a verdict, which may be invalid.

        Args:
            evidence: What the judge returned.
            detail: The score's detail, to be completed.
        """
        raise NotImplementedError
