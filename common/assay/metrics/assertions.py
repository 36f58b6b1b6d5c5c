"""Assertions: the checks of the answer that each case brings along.

    assertions = Σ weight · score / Σ weight over the case's checks

A check holds or does not, and its score is 1 or 0 (rouge-n's is its F1); with "not-" before its type both are the
other way round. A check of weight 0 is made and shown, and decides nothing. A row passes when every check of
weight above 0 holds; where the case has a threshold of its own for assertions, it passes when the value reaches
that. Checks that need a judge or an embedder are not made here: they are shown as skipped and leave the value to
the others; a case with no check that can be made, or none at all, is skipped. Of an agent error no check holds.
The aggregate is the mean; the detail has the mean by label. A threshold of the metric applies to the mean.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from assay.answers import AgentStatus
from assay.metrics.answer_checks import CHECKS, Outcome, check_work, value_problem
from assay.metrics.exact_sum import ExactSum
from assay.metrics.fold import MeanFold
from assay.metrics.info import MetricInfo, Parameter
from assay.metrics.score import scored
from assay.metrics.thresholds import meets
from assay.names import unknown_name
from assay.results import Score, ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.answers import AgentResponse
    from assay.cases import Assertion
    from assay.metrics.score import Row
    from assay.results import CaseResult

__all__ = ["LATER_CHECKS", "Assertions", "assertion_problem"]

INFO = MetricInfo(
    "assertions",
    "Assertions",
    "The checks of the answer that each case brings along.",
    (Parameter("threshold", "number", None, "Least mean of the run.", 0.0, 1.0),),
    reads=("answer", "output", "latency", "tokens", "assertions"),
    values="0 to 1",
    unit="%",
    stats=("checks", "held", "not_made"),
)

LATER_CHECKS: Mapping[str, str] = {
    **dict.fromkeys(
        ("llm-rubric", "model-graded-closedqa", "model-graded-factuality", "factuality", "g-eval", "answer-relevance",
         "context-recall", "context-relevance", "context-faithfulness", "conversation-relevance", "pi", "search-rubric",
         "moderation", "select-best", "max-score", "trajectory:goal-success"),
        "needs_judge",
    ),
    **dict.fromkeys(("similar", "similar:cosine", "similar:dot", "similar:euclidean", "classifier"), "needs_embedder"),
}  # fmt: skip
"""Checks that are known and not made here, and what they need."""


def assertion_problem(assertion: Assertion) -> str:
    """Return why a check cannot be made, in a sentence for whoever wrote it, or the empty string."""
    if assertion.type in LATER_CHECKS:
        return ""
    check = CHECKS.get(assertion.type)
    if check is None:
        return unknown_name("check", assertion.type, [*CHECKS, *LATER_CHECKS])
    if not (math.isfinite(assertion.weight) and assertion.weight >= 0):
        return f"must have a weight of at least 0, not {assertion.weight!r}"
    problem = value_problem(check, assertion)
    return problem and f"{assertion.type} {problem}"


class Assertions:
    """Parameters: `threshold` (on the mean)."""

    info = INFO
    version = "1"
    embedding_model: str | None = None

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        self.name = name
        self._threshold: float | None = parameters["threshold"]

    def work(self, row: Row) -> float:
        """Return how much work the checks are at most."""
        return sum([check_work(assertion, row.response) for assertion in row.case.assertions])

    def score(self, row: Row) -> Score:
        """Return the weighted share of checks that hold."""
        if not row.case.assertions:
            return Score(self.name, ScoreStatus.SKIPPED, reason="no_assertions")
        failed = row.response.status is AgentStatus.ERROR
        checks = [_check(assertion, row.response, failed) for assertion in row.case.assertions]
        detail: dict[str, Any] = {"version": self.version, "checks": checks}
        made = [
            (assertion.weight, check["score"], check["passed"])
            for assertion, check in zip(row.case.assertions, checks, strict=True)
            if check["passed"] is not None
        ]
        total = math.fsum(weight for weight, _, _ in made)
        if not made:
            return Score(self.name, ScoreStatus.SKIPPED, reason="no_check_possible", detail=detail)
        value = math.fsum(weight * score for weight, score, _ in made) / total if total else 1.0
        passed = all(holds for weight, _, holds in made if weight > 0)
        own = row.case.thresholds.get("assertions")
        if own is not None:
            detail["threshold"] = own
            passed = meets(value, own) and not failed
        broken = [check["label"] or check["type"] for check in checks if check["passed"] is False]
        reason = "" if passed else "agent_error" if failed else ", ".join(broken[:5])
        return scored(self.name, value, passed=passed, reason=reason, detail=detail)

    def aggregate(self) -> _Fold:
        """Return an empty fold."""
        return _Fold(self.name, self._threshold)


class _Fold(MeanFold):
    def __init__(self, metric: str, threshold: float | None) -> None:
        super().__init__(metric, threshold)
        self._labels: dict[str, ExactSum] = {}
        self._made = self._held = self._not_made = 0

    def add(self, row: CaseResult, score: Score) -> None:
        super().add(row, score)
        for check in score.detail.get("checks", ()):
            if check["passed"] is None:
                self._not_made += 1
                continue
            self._made += 1
            self._held += check["passed"]
            if check["label"]:
                self._labels.setdefault(check["label"], ExactSum()).add(check["score"])

    def detail(self, value: float | None) -> dict[str, Any]:
        return {
            "checks": self._made,
            "held": self._held,
            "not_made": self._not_made,
            "metrics": {label: total.mean for label, total in sorted(self._labels.items())},
        }


def _check(assertion: Assertion, response: AgentResponse, failed: bool) -> dict[str, Any]:
    found = Outcome(False, 0.0, "agent_error") if failed else _outcome(assertion, response)
    holds, score = found.holds, found.score
    if assertion.negate and not failed and holds is not None and score is not None:
        holds, score = not holds, 1.0 - score
    return {
        "type": f"not-{assertion.type}" if assertion.negate else assertion.type,
        "label": assertion.metric,
        "passed": holds,
        "score": score,
        "reason": "" if holds else found.reason or "holds, and should not",
    }


def _outcome(assertion: Assertion, response: AgentResponse) -> Outcome:
    check = CHECKS.get(assertion.type)
    if check is None:
        return Outcome(None, None, LATER_CHECKS.get(assertion.type, "unknown_check"))
    try:
        return check.make(assertion, response)
    except (ValueError, TypeError) as problem:
        return Outcome(None, None, f"invalid: {problem}"[:200])
