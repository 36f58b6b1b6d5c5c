"""The spending of rows: the reported tokens and money of their agents and judges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.identity.quotas import nano_from_usd
from assay.model.answers.possible_usage import counted_tokens, possible_cost
from assay_orchestrator.store.teams.spending import Spent
from assay_orchestrator.summary.judging import JudgingFold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.run import CaseResult
    from assay_orchestrator.store.rows.results import AnswerRecord


def spent_on(
    answers: Sequence[AnswerRecord],
    rows: Sequence[CaseResult],
    *,
    counts_answers: bool,
    is_judged: bool,
    counts_verdicts: bool = True,
    counts_verdict_tokens: bool = True,
) -> Spent:
    """Return the reported usage of some agent answers, and of the verdicts behind some rows.

    Usage that no answer can have counts as not reported.

    Args:
        answers: The answers.
        rows: The rows.
        counts_answers: Whether to count the usage of answers; False for recorded answers, and if the run's budget
            counts them.
        is_judged: Whether rows may have verdicts.
        counts_verdicts: Whether to count the cost of verdicts; False if the judge's account counts them.
        counts_verdict_tokens: Whether to count their tokens; False if the run's budget counts them.
    """
    used = [answer.response.usage for answer in answers if answer.response.usage is not None and counts_answers]
    tokens = sum(map(counted_tokens, used))
    dollars = sum(possible_cost(usage.cost_usd) or 0.0 for usage in used)
    if is_judged:
        fold = JudgingFold()
        for row in rows:
            fold.add(row)
        judging = fold.result()
        if judging is not None:
            tokens += judging.input_tokens + judging.output_tokens if counts_verdict_tokens else 0
            dollars += (judging.cost_usd or 0.0) if counts_verdicts else 0.0
            if judging.canaries is not None and counts_verdicts:
                dollars += judging.canaries.cost_usd or 0.0
    return Spent(tokens, nano_from_usd(dollars))
