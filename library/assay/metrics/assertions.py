"""Assertions: the checks of the answer that each case defines.

    assertions = Σ weight · score / Σ weight over the case's checks that were made

A check holds or does not, and its score is 1 or 0 (rouge-n's is its F1, similar's the similarity, a judged check's
the judge's score); "not-" before its type reverses both. A check of weight 0 is made and shown, but decides nothing. A
row passes when every check of weight above 0 holds; if the case has a threshold for assertions, it passes when the
value reaches that threshold. For an agent error no check holds.

A check that was not made does not pass. If its weight is above 0, the row fails only if the other checks fail it in any
case; otherwise the row is undecided, whatever other metrics say. `detail.checks` has the reason of each check; if it is
a failure on Assay's side (no vector, no valid verdict), the row has no value. The aggregate is the mean; the detail has
the mean by group and, in `unmade`, the checks that were not made by type and reason. A threshold of the metric applies
to the mean. A case without checks is skipped.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from assay.metrics.checks.answer_checks import CHECKS, Outcome, check_work, value_problem
from assay.metrics.checks.judged_checks import (
    JUDGED_CHECKS,
    check_passages,
    check_verdict,
    judged_outcome,
    judged_problem,
)
from assay.metrics.checks.similar_checks import (
    SIMILAR_CHECKS,
    is_by_cosine,
    similar_outcome,
    similar_problem,
    similar_texts,
)
from assay.metrics.checks.unmade_checks import NEVER_MADE, NO_JUDGE_FOR_IT
from assay.metrics.core.embedder_record import EmbedderRecord
from assay.metrics.core.embedding import EMBEDDING
from assay.metrics.core.explanations import listed, quoted, reason_sentence, threshold_sentence
from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.score import scored
from assay.metrics.core.threshold_metric import MeanFold, ThresholdMetric
from assay.model.run import Score, ScoreStatus
from assay.parsing.names import unknown_name
from assay.statistics.exact_sum import ExactSum
from assay.statistics.thresholds import meets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.metrics.core.score import Row
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Assertion, Case
    from assay.model.judgement import Judgement
    from assay.model.run import RowResult
    from assay.model.run_spec import MetricSpec

INFO = MetricInfo(
    "assertions",
    "Assertions",
    "The checks of the answer that each case brings along.",
    (*EMBEDDING, Parameter("threshold", "number", None, "Least mean of the run.", 0.0, 1.0)),
    reads=("answer", "output", "tool_calls", "latency", "tokens", "assertions", "verdict"),
    decides="always",
    needs="assertions",
    values="0 to 1",
    unit="%",
    stats=("checks", "held", "not_made"),
)

_WORK_PER_TEXT = 3_000
_MOST_SHOWN = 5


def assertion_problem(assertion: Assertion) -> str:
    """Return why a check is wrong, in a sentence for the author of the case, or the empty string."""
    kind = assertion.type
    if kind in NEVER_MADE:
        return ""
    if not (math.isfinite(assertion.weight) and assertion.weight >= 0):
        return f"must have a weight of at least 0, not {assertion.weight!r}"
    if kind in CHECKS:
        problem = value_problem(CHECKS[kind], assertion)
    elif kind in SIMILAR_CHECKS:
        problem = similar_problem(assertion)
    elif kind in JUDGED_CHECKS:
        problem = judged_problem(assertion)
    else:
        return unknown_name("check", kind, [*CHECKS, *SIMILAR_CHECKS, *JUDGED_CHECKS, *NEVER_MADE])
    return problem and f"{kind} {problem}"


def why_unmade(kind: str, *, has_judge: bool) -> str:
    """Return why checks of a type are not made in any row of a run, or the empty string."""
    if kind in JUDGED_CHECKS:
        return "" if has_judge else NO_JUDGE_FOR_IT
    return NEVER_MADE.get(kind, "")


class _Fold(MeanFold):
    def __init__(self, metric: ThresholdMetric) -> None:
        super().__init__(metric)
        self._groups: dict[str, ExactSum] = {}
        self._unmade_groups: Counter[str] = Counter()
        self._made = self._held = 0
        self._unmade: dict[str, Counter[str]] = {}
        self._record = EmbedderRecord()

    def add(self, row: RowResult, score: Score) -> None:
        super().add(row, score)
        checks = score.detail.get("checks", ())
        self._record.add_details([check for check in checks if check.get("revision")])
        for check in checks:
            if check["passed"] is None:
                why = check["reason"].partition(":")[0]  # what follows is of this check alone
                self._unmade.setdefault(check["type"], Counter())[why] += 1
                self._unmade_groups.update([check["group"]] if check["group"] else [])
                continue
            self._made += 1
            self._held += check["passed"]
            if check["group"]:
                self._groups.setdefault(check["group"], ExactSum()).add(check["score"])

    def detail(self, value: float | None) -> dict[str, Any]:
        unmade = {kind: dict(sorted(reasons.items())) for kind, reasons in sorted(self._unmade.items())}
        return {
            "checks": self._made,
            "held": self._held,
            "not_made": sum(reasons.total() for reasons in self._unmade.values()),
            **({"unmade": unmade} if unmade else {}),
            "groups": {group: total.mean for group, total in sorted(self._groups.items())},
            **({"unmade_groups": dict(sorted(self._unmade_groups.items()))} if self._unmade_groups else {}),
            **(self._record.detail if self._record.has_rows else {}),
        }


class Assertions(ThresholdMetric):
    """Parameters: `model`, `dimension`, `windowed` (of checks by embeddings), `threshold` (on the mean)."""

    info = INFO
    fold_class = _Fold
    version = "2"
    embeds_references = False
    inputs = ("cost",)
    _judge = ""

    def use_judge(self, spec: MetricSpec) -> None:
        """Read the verdicts of the metric's judge."""
        self._judge = spec.judge

    def compared_texts(self, case: Case) -> Sequence[str]:
        """Return the texts of a case that its checks compare the answer with by the cosine of embeddings."""
        return [text for check in _similar(case) if is_by_cosine(check) for text in similar_texts(check)]

    def measured_texts(self, case: Case) -> Sequence[str]:
        """Return the texts of a case that its checks compare the answer with by another measure of embeddings."""
        return [text for check in _similar(case) if not is_by_cosine(check) for text in similar_texts(check)]

    def rubrics(self, case: Case) -> Sequence[str]:
        """Return the names of the verdicts that the judged checks of a case need."""
        return [
            check_verdict(index, self._judge)
            for index, check in enumerate(case.assertions)
            if (kind := JUDGED_CHECKS.get(check.type)) is not None and (not kind.takes_passages or check_passages(case))
        ]

    def work(self, row: Row) -> float:
        """Return an upper bound of the work of the checks."""
        measured = _WORK_PER_TEXT * len(self.measured_texts(row.case))
        return measured + sum([check_work(assertion, row.response) for assertion in row.case.assertions])

    def score(self, row: Row) -> Score:
        """Return the weighted share of the checks that hold, of those that were made."""
        if not row.case.assertions:
            return self._skipped("no_assertions")
        if row.response.is_failed:
            outcomes = [Outcome(False, 0.0, reason_sentence("agent_error")) for _ in row.case.assertions]
        else:
            results = (self._outcome(index, check, row) for index, check in enumerate(row.case.assertions))
            pairs = zip(row.case.assertions, results, strict=True)
            outcomes = [_negated(check, outcome, row.response) for check, outcome in pairs]
        own = row.case.thresholds.get("assertions")
        verdict = _Made(tuple(zip(row.case.assertions, outcomes, strict=True)), own)
        detail: dict[str, Any] = {"version": self.version, "checks": verdict.document}
        judged = verdict.judgements
        if own is not None:
            detail["threshold"] = own
        if verdict.error:
            return Score(
                self.name,
                ScoreStatus.ERROR,
                passed=verdict.passed,
                reason=verdict.error,
                detail=detail,
                judgements=judged,
            )
        if row.response.is_failed:
            return scored(self.name, verdict.value or 0.0, passed=False, reason="agent_error", detail=detail)
        if verdict.is_undecided:
            detail["undecided"] = True
        if verdict.value is None:
            return self._skipped(verdict.reason, detail=detail, judgements=judged)
        return scored(
            self.name, verdict.value, passed=verdict.passed, reason=verdict.reason, detail=detail, judgements=judged
        )

    def explain(self, row: Row, score: Score) -> str:
        """Return the checks that fail the row, with expected and actual values."""
        broken = [check for check in score.detail["checks"] if check["passed"] is False]
        sentences = [f"{check['group'] or check['type']}: {check['message']}" for check in broken[:_MOST_SHOWN]]
        more = [f"and {len(broken) - _MOST_SHOWN:,} more"] if len(broken) > _MOST_SHOWN else []
        own = [f"{threshold_sentence(score)}"] if row.case.thresholds.get("assertions") is not None else []
        return "; ".join([*filter(None, own), *sentences, *more])

    def _outcome(self, index: int, check: Assertion, row: Row) -> Outcome:
        if check.type in SIMILAR_CHECKS:
            assert self.embedding is not None
            return similar_outcome(check, row.response, row.embeddings.get(self.embedding))
        if check.type in JUDGED_CHECKS:
            return judged_outcome(check, row.case, row.verdicts.get(check_verdict(index, self._judge)))
        if (known := CHECKS.get(check.type)) is None:
            return Outcome(None, None, NEVER_MADE.get(check.type, "unknown check"))
        try:
            return known.make(check, _priced(row) if check.type == "cost" else row.response)
        except (ValueError, TypeError) as problem:
            return Outcome(None, None, f"invalid: {problem}"[:200])


@dataclass(frozen=True)
class _Made:
    """The checks of a row with what came of them.

    Args:
        checks: Each with its outcome.
        threshold: The case's own, for the value; None if every check must hold.
    """

    checks: tuple[tuple[Assertion, Outcome], ...]
    threshold: float | None

    @cached_property
    def value(self) -> float | None:
        """The weighted share; None if no check that counts was made."""
        total, reached = self._weights
        if total:
            return reached / total
        return None if self._open or not any(outcome.holds is not None for _, outcome in self.checks) else 1.0

    @cached_property
    def passed(self) -> bool | None:
        """Whether the row passes; None where checks that were not made would decide."""
        if self.threshold is None:
            is_failed = any(check.weight > 0 and outcome.holds is False for check, outcome in self.checks)
        else:
            total, reached = self._weights
            open_weight = math.fsum(check.weight for check, _ in self._open)
            # What the value is at most, whatever the checks that were not made would say.
            most = (reached + open_weight) / (total + open_weight) if total + open_weight else 1.0
            is_failed = not meets(most, self.threshold)
        return False if is_failed else None if self._open or self.value is None else True

    @property
    def is_undecided(self) -> bool:
        """Whether checks that were not made keep the row from a verdict."""
        return self.passed is None and bool(self._open)

    @property
    def error(self) -> str:
        """Why the row has no value because of a failure on Assay's side; empty if there is none."""
        return next((outcome.reason for _, outcome in self._open if outcome.is_error), "")

    @property
    def reason(self) -> str:
        """Why the row does not pass: the checks that fail it, or those that were not made."""
        if self.passed:
            return ""
        if self.passed is False:
            broken = [check.group or _type(check) for check, outcome in self.checks if outcome.holds is False]
            return ", ".join(broken[:_MOST_SHOWN])
        unmade = [(check, outcome) for check, outcome in self.checks if outcome.holds is None]
        reasons = dict.fromkeys(f"{_type(check)} ({outcome.reason})" for check, outcome in self._open or unmade)
        return f"not made: {', '.join([*reasons][:_MOST_SHOWN])}"

    @property
    def document(self) -> list[dict[str, Any]]:
        """The data of each check for reports."""
        return [
            {
                "type": _type(check),
                "group": check.group,
                "passed": outcome.holds,
                "score": outcome.score,
                "reason": "" if outcome.holds else outcome.reason if outcome.holds is None else "does_not_hold",
                **({"message": outcome.reason} if outcome.holds is False else {}),
                **outcome.detail,
            }
            for check, outcome in self.checks
        ]

    @property
    def judgements(self) -> tuple[Judgement, ...]:
        """The verdicts behind judged checks."""
        return tuple(
            dataclasses.replace(judgement, check_index=index)
            for index, (_, outcome) in enumerate(self.checks)
            for judgement in outcome.judgements
        )

    @cached_property
    def _open(self) -> list[tuple[Assertion, Outcome]]:
        """The checks that count and were not made."""
        return [(check, outcome) for check, outcome in self.checks if outcome.holds is None and check.weight > 0]

    @cached_property
    def _weights(self) -> tuple[float, float]:
        """The weight of the checks that were made, and how much of it the answer reached."""
        scored_checks = [(check.weight, outcome.score) for check, outcome in self.checks if outcome.score is not None]
        return math.fsum(weight for weight, _ in scored_checks), math.fsum(
            weight * score for weight, score in scored_checks
        )


def _similar(case: Case) -> list[Assertion]:
    return [check for check in case.assertions if check.type in SIMILAR_CHECKS]


def _type(check: Assertion) -> str:
    return f"not-{check.type}" if check.negate else check.type


def _negated(check: Assertion, outcome: Outcome, response: AgentResponse) -> Outcome:
    """Return the outcome of a check that must not hold turned round, and any other as it is."""
    if not check.negate or outcome.holds is None or outcome.score is None:
        return outcome
    reason = ""
    if outcome.holds:
        value = check.value if isinstance(check.value, str) else json.dumps(check.value, ensure_ascii=False)
        limit = "" if check.threshold is None else f" with the threshold {check.threshold:g}"
        what = f"{check.type} {quoted(value)}" if check.value is not None else check.type
        reason = f"{what}{limit} holds, and should not; the answer is {quoted(response.text)}"
        if check.type.startswith(("trajectory:", "tool-")):
            reason += f", called {listed(call.name for call in response.tool_calls or ()) or 'no tool'}"
    return dataclasses.replace(outcome, holds=not outcome.holds, score=1.0 - outcome.score, reason=reason)


def _priced(row: Row) -> AgentResponse:
    """Return the answer with the cost that the run's metric `cost` computes from its tokens, if it reports none."""
    usage, cost = row.response.usage, row.scores.get("cost")
    if usage is None or usage.cost_usd is not None or cost is None or cost.detail.get("source") != "prices":
        return row.response
    return dataclasses.replace(row.response, usage=dataclasses.replace(usage, cost_usd=cost.value))
