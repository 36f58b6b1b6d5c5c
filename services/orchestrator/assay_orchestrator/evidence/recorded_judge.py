"""Recorded verdicts in place of a judge: each applies to one answer to one case, and to no other.

They arrive with the cases, so that the orchestrator reads no file of a client, and a run stores them once.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from assay.judging.recorded_verdicts import answer_sha256
from assay.metrics.core.score import JudgeEvidence
from assay.model.answers.agent_response import clean_text
from assay.model.judgement import Judgement, JudgementStatus
from assay_orchestrator.evidence.verdict_wire import RubricUse, check_use, own_rubric

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import RecordedVerdict
    from assay.model.run import JudgeSpec
    from assay_orchestrator.evidence.verdict_wire import JudgedRow, MetricRubric, NotYetError

_NOT_RECORDED = "not_recorded"


class RecordedJudge:
    """Returns the recorded verdicts of one run, with the interface of `RunJudge`.

    Args:
        judge: The source of the verdicts.
        rubrics: The rubrics by the names of the judge's verdicts; none is only a rubric of the judge service.
    """

    batches = False

    def __init__(self, judge: JudgeSpec, rubrics: Mapping[str, MetricRubric]) -> None:
        self._judge = judge
        (self._source,) = judge.members
        self._uses = {
            name: own_rubric(rubric.text) if rubric.text else RubricUse(rubric.name) for name, rubric in rubrics.items()
        }

    async def order(self, row: JudgedRow, response: AgentResponse, rubric: str) -> NotYetError | None:
        """Return None: nothing needs to be ordered."""
        return None

    async def evidence(self, row: JudgedRow, response: AgentResponse, rubric: str) -> JudgeEvidence:
        """Return the verdict on an answer; a missing verdict is an error that says how to record it.

        Args:
            row: The row.
            response: The judged answer.
            rubric: The name under which a metric looks up the verdict.
        """
        use = check_use(row.case, rubric) or self._uses[rubric]
        key = use.name, clean_text(use.criterion or ""), answer_sha256(response.text)
        turn_index = len(row.case.turns) - 1
        recorded = _recorded(row, key, turn_index)
        if recorded is None:
            message = (
                f"{self._judge.recorded_file} has no verdict on this answer to case {row.case.case_id} by the rubric "
                f"{use.name}: record it with `assay run SPEC --record-verdicts FILE` and a judge, or write it by hand"
            )
            judgement = Judgement(
                self._source.model,
                use.name,
                JudgementStatus.UNAVAILABLE,
                reason=_NOT_RECORDED,
                message=message,
                key=_key(key, turn_index),
            )
            return JudgeEvidence(None, error=_NOT_RECORDED, message=message, judgement=judgement)
        scores = {name: value for name, value in recorded.verdict.items() if value is not None}
        judgement = Judgement(
            recorded.judge,
            use.name,
            JudgementStatus.VALID,
            reasoning=scores.get("reasoning", ""),
            scores={name: value for name, value in scores.items() if name != "reasoning"},
            key=_key(key, turn_index),
            is_recorded=True,
        )
        return JudgeEvidence(scores, scale=use.scale, judgement=judgement)

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""


def _recorded(row: JudgedRow, key: tuple[str, str, str], turn_index: int) -> RecordedVerdict | None:
    """Return the verdict on the last answer of a row: for its own repeat, or else for all repeats."""
    verdicts = {
        verdict.repeat: verdict
        for verdict in row.case.verdicts
        if (verdict.rubric, verdict.criterion, verdict.answer_sha256) == key and verdict.turn_index == turn_index
    }
    return verdicts.get(row.repeat) or verdicts.get(None)


def _key(key: tuple[str, str, str], turn_index: int) -> str:
    return hashlib.sha256("\n".join((*key, str(turn_index))).encode()).hexdigest()
