"""Verdicts that were recorded before, in place of a judge: each is on one answer to one case, and on no other.

They came with the cases, so that no file of a client is read on the orchestrator's machine, and a run needs them once.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from assay.judging.recorded_verdicts import ANSWER, answer_sha256
from assay.metrics.core.score import JudgeEvidence
from assay.metrics.quality import RUBRIC as QUALITY
from assay.model.answers.agent_response import clean_text
from assay_orchestrator.evidence.verdict_wire import RubricUse, check_use, failed_evidence, own_rubric

if TYPE_CHECKING:
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import RecordedVerdict
    from assay.model.run import JudgeSettings
    from assay_orchestrator.evidence.verdict_wire import JudgedRow, NotYetError

_NOT_RECORDED = "not_recorded"


class RecordedJudge:
    """Gives the recorded verdicts of one run, as `RunJudge` gives those of a judge that is asked.

    Args:
        judge: Where the verdicts came from, and the rubric of `judge_score`.
    """

    def __init__(self, judge: JudgeSettings) -> None:
        self._judge = judge
        self._structured = own_rubric(judge) if judge.rubric_yaml else RubricUse(ANSWER)

    async def order(self, row: JudgedRow, response: AgentResponse, rubric: str) -> NotYetError | None:
        """Return None: nothing needs to be ordered."""
        return None

    async def evidence(self, row: JudgedRow, response: AgentResponse, rubric: str) -> JudgeEvidence:
        """Return the verdict on an answer; one that was not recorded is an error that says how to record it.

        Args:
            response: The answer that is judged.
            rubric: The name under which a metric looks for the verdict.
        """
        of_metric = RubricUse(QUALITY) if rubric == QUALITY else self._structured
        use = check_use(row.case, rubric) or of_metric
        key = use.name, clean_text(use.criterion or ""), answer_sha256(response.text)
        turn_index = len(row.case.turns) - 1
        found = _recorded(row, key, turn_index)
        if found is None:
            message = (
                f"{self._judge.recorded_file} has no verdict on this answer to case {row.case.case_id} by the rubric "
                f"{use.name}: record it with `assay run SPEC --record-verdicts FILE` and a judge, or write it by hand"
            )
            failed = failed_evidence(_NOT_RECORDED, message)
            return JudgeEvidence(
                None,
                error=failed.error,
                detail={**failed.detail, "verdict": _provenance(None, self._judge.model, key, turn_index)},
            )
        given = {name: value for name, value in found.verdict.items() if value is not None}
        detail = {"reasoning": given.get("reasoning", ""), "verdict": _provenance(found, found.judge, key, turn_index)}
        return JudgeEvidence(given, scale=use.scale, detail=detail)

    async def aclose(self) -> None:
        """Nothing to let go of."""


def _recorded(row: JudgedRow, key: tuple[str, str, str], turn_index: int) -> RecordedVerdict | None:
    """Return the verdict on the last answer of a row: that of its own repeat, or else one for all of them."""
    found = {
        verdict.repeat_index: verdict
        for verdict in row.case.verdicts
        if (verdict.rubric, verdict.criterion, verdict.answer_sha256) == key and verdict.turn_index == turn_index
    }
    return found.get(row.repeat_index) or found.get(None)


def _provenance(
    found: RecordedVerdict | None, judge: str, key: tuple[str, str, str], turn_index: int
) -> dict[str, Any]:
    """Return who gave a verdict; None took no call, no tokens and no money now."""
    scores = {} if found is None else {name: value for name, value in found.verdict.items() if name != "reasoning"}
    return {
        "status": "valid" if found is not None else "unavailable",
        "judge": judge,
        "model": "",
        "rubric": key[0],
        "fingerprint": "",
        "key": hashlib.sha256("\n".join((*key, str(turn_index))).encode()).hexdigest(),
        "temperature": None,
        "cached": False,
        "by_rule": False,
        "flags": [],
        "scores": scores,
        "attempts": 0,
        "input_tokens": None,
        "output_tokens": None,
        "cost_usd": None,
        "recorded": found is not None,
    }
