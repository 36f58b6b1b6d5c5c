"""The canaries of a shard: answers of known quality that the judge also grades, and where those verdicts are stored.

The verdict on a canary is kept in the score detail of the row beside it: stored with the row, in the same transaction,
and so requested once. It changes neither the score nor the row's verdict. No row waits for an unavailable canary
verdict.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from assay.judging.canaries import DETAIL, canary_share, choose_canaries
from assay.metrics.core.score import Row, usable_references
from assay.metrics.jury.jury_scores import score_by_jury
from assay.model.answers.agent_response import AgentResponse
from assay.model.judgement import judgement_to_json
from assay.model.run import ScoreStatus
from assay_orchestrator.evidence.verdict_wire import NotYetError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.judging.canaries import Canary
    from assay.metrics.core.score import Metric
    from assay.model.case import Case
    from assay.model.run import RowResult, Score
    from assay_orchestrator.evidence.run_judges import RunJudges
    from assay_orchestrator.evidence.verdict_wire import JudgedRow


class CanaryRows:
    """Requests verdicts on the canaries of a shard.

    Args:
        judge: The judges.
        metrics: The run's metrics.
        cases: The shard's cases, in dataset order.
        first: The place of the first of them in the dataset.
        case_count: Cases in the dataset.
    """

    def __init__(
        self, judge: RunJudges, metrics: Sequence[Metric], cases: Sequence[Case], *, first: int, case_count: int
    ) -> None:
        self._judge = judge
        self._metrics = metrics
        references = [next(iter(usable_references(case)), "") for case in cases]
        rubrics = dict.fromkeys(rubric for metric in metrics if (rubric := getattr(metric, "rubric", None)))
        self._chosen: dict[str, Mapping[int, Canary]] = {
            rubric: choose_canaries(
                references if judge.goes_by_references(rubric) else [""] * len(cases),
                first=first,
                rate=canary_share(case_count, judge.canary_rate(rubric)),
                highest=judge.highest_score(rubric),
            )
            for rubric in rubrics
        }

    def beside(self, row: JudgedRow) -> list[tuple[JudgedRow, AgentResponse, list[str]]]:
        """Return the canary answers beside a row, each with the names of its verdicts."""
        own = dataclasses.replace(row, is_canary=True)
        return [
            (own, AgentResponse(text=canary.answer), [rubric])
            for rubric, chosen in self._chosen.items()
            if row.repeat == 1 and (canary := chosen.get(row.case_index)) is not None
        ]

    async def observed(self, result: RowResult, row: JudgedRow) -> RowResult:
        """Return a row's result with the judge's evidence on the canaries beside it.

        Args:
            result: The row's result; only the first repeat of a case has canaries.
            row: The row.
        """
        if result.repeat > 1:
            return result
        scores, own = list(result.scores), dataclasses.replace(row, is_canary=True)
        for rubric, chosen in self._chosen.items():
            canary, place = chosen.get(result.case_index), self._deciding(rubric, scores)
            if canary is None or place is None:
                continue
            response = AgentResponse(text=canary.answer)
            try:
                verdicts = await self._judge.gather(own, response, [rubric])
            except NotYetError:
                continue  # the verdict existed, and the judge has lost it since
            if verdicts is not None:
                canary_score = score_by_jury(
                    self._metrics[place], Row(case=row.case, response=response, verdicts=verdicts)
                )
                document = _document(canary, canary_score)
                scores[place] = dataclasses.replace(scores[place], detail={**scores[place].detail, DETAIL: document})
        return dataclasses.replace(result, scores=tuple(scores))

    def _deciding(self, rubric: str, scores: Sequence[Score]) -> int | None:
        """Return the place of the first metric with this rubric whose score decides whether the row passes."""
        for place, (metric, score) in enumerate(zip(self._metrics, scores, strict=True)):
            decides = score.passed is not None or score.status is not ScoreStatus.SCORED
            if getattr(metric, "rubric", None) == rubric and decides:
                return place
        return None


def _document(canary: Canary, score: Score) -> dict[str, Any]:
    valid = score.status is ScoreStatus.SCORED
    return {
        "kind": canary.kind,
        "should_pass": canary.should_pass,
        "passed": score.passed if valid else None,
        "value": score.value,
        "reason": score.reason,
        "judgements": [judgement_to_json(judgement) for judgement in score.judgements],
    }
