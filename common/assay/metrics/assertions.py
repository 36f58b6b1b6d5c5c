"""Assertions: the checks of the answer that each case brings along.

    assertions = Σ weight · score / Σ weight over the case's checks; a score is 1 or 0

A check holds or does not; with "not-" before its type, the other way round. A check of weight 0 is made and
shown, and decides nothing. A row passes when every check of weight above 0 holds; where the case has a
threshold of its own for assertions, it passes when the value reaches that. Checks that need a judge or an
embedder are not made here: they are shown as skipped and leave the value to the others; a case with no check
that can be made, or none at all, is skipped. Of an agent error no check holds. The aggregate is the mean; the
detail has the mean by label. A threshold of the metric applies to the mean.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from assay.answers import AgentStatus
from assay.metrics.exact_sum import ExactSum
from assay.metrics.fold import MeanFold
from assay.metrics.info import MetricInfo, Parameter
from assay.metrics.json_schema import json_in, schema_complaints, schema_problem
from assay.metrics.patterns import MAX_TEXT_CHARS, compile_pattern, pattern_problem
from assay.metrics.rouge import rouge
from assay.metrics.score import scored
from assay.metrics.thresholds import exceeds, meets
from assay.metrics.word_tokens import tokenize
from assay.names import unknown_name
from assay.results import Score, ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from assay.answers import AgentResponse
    from assay.cases import Assertion
    from assay.metrics.score import Row
    from assay.results import CaseResult

__all__ = ["CHECKS", "LATER_CHECKS", "Assertions", "assertion_problem", "within_edits"]

INFO = MetricInfo(
    "assertions",
    "Assertions",
    "The checks of the answer that each case brings along.",
    (Parameter("threshold", "number", None, "Least mean of the run.", 0.0, 1.0),),
    reads=("answer", "output", "latency", "tokens", "assertions"),
    unit="%",
)
_MAX_EDIT_CHARS = 20_000
_MAX_EDITS = 100.0
_DEFAULT_EDITS = 5.0
_DEFAULT_ROUGE = 0.75
_JSON_STARTS = 200

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
    value = assertion.value
    match check.takes:
        case "text" if not isinstance(value, str | int | float) or isinstance(value, bool) or str(value) == "":
            return f"{assertion.type} needs a text as its value"
        case "texts" if not isinstance(value, list) or not value or not all(_is_scalar(item) for item in value):
            return f"{assertion.type} needs a list of texts as its value"
        case "pattern" if not isinstance(value, str) or pattern_problem(value):
            return f"{assertion.type} {pattern_problem(value) if isinstance(value, str) else 'needs a pattern'}"
        case "schema" if value is not None and (not isinstance(value, dict) or schema_problem(value)):
            return f"{assertion.type} {schema_problem(value) if isinstance(value, dict) else 'needs a JSON schema'}"
        case "text" if assertion.type == "levenshtein" and (assertion.threshold or 0) > _MAX_EDITS:
            return f"levenshtein takes a threshold of at most {_MAX_EDITS:g}"
        case "threshold" if assertion.threshold is None:
            return f"{assertion.type} needs a threshold"
        case "count" if _count_range(value) is None:
            return f"{assertion.type} needs a number of words, or {{min, max}}"
    return ""


class Assertions:
    """Parameters: `threshold` (on the mean)."""

    info = INFO
    version = "1"
    embedding_model: str | None = None

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        self.name = name
        self._threshold: float | None = parameters["threshold"]

    def score(self, row: Row) -> Score:
        """Return the weighted share of checks that hold."""
        if not row.case.assertions:
            return Score(self.name, ScoreStatus.SKIPPED, reason="no_assertions")
        failed = row.response.status is AgentStatus.ERROR
        checks = [_check(assertion, row.response, failed) for assertion in row.case.assertions]
        detail: dict[str, Any] = {"version": self.version, "checks": checks}
        made = [
            (assertion.weight, check["passed"])
            for assertion, check in zip(row.case.assertions, checks, strict=True)
            if check["passed"] is not None
        ]
        total = math.fsum(weight for weight, _ in made)
        if not made:
            return Score(self.name, ScoreStatus.SKIPPED, reason="no_check_possible", detail=detail)
        value = math.fsum(weight * holds for weight, holds in made) / total if total else 1.0
        passed = all(holds for weight, holds in made if weight > 0)
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
                self._labels.setdefault(check["label"], ExactSum()).add(float(check["passed"]))

    def detail(self, value: float | None) -> dict[str, Any]:
        return {
            "checks": self._made,
            "held": self._held,
            "not_made": self._not_made,
            "metrics": {label: total.mean for label, total in sorted(self._labels.items())},
        }


def _check(assertion: Assertion, response: AgentResponse, failed: bool) -> dict[str, Any]:
    kind = f"not-{assertion.type}" if assertion.negate else assertion.type
    result: dict[str, Any] = {"type": kind, "label": assertion.metric, "passed": False, "reason": ""}
    if failed:
        return {**result, "reason": "agent_error"}
    check = CHECKS.get(assertion.type)
    if check is None:
        return {**result, "passed": None, "reason": LATER_CHECKS.get(assertion.type, "unknown_check")}
    try:
        holds = check.holds(assertion, response)
    except (ValueError, TypeError) as problem:
        return {**result, "passed": None, "reason": f"invalid: {problem}"[:200]}
    return result | (
        {"passed": None, "reason": "unknown"} if holds is None else {"passed": holds is not assertion.negate}
    )


class _Check:
    """One type of check: what its value is, and whether it holds (None where the answer does not tell)."""

    def __init__(self, takes: str, holds: Callable[[Assertion, AgentResponse], bool | None]) -> None:
        self.takes = takes
        self.holds = holds


def _texts(assertion: Assertion, *, folded: bool = False) -> list[str]:
    values = assertion.value if isinstance(assertion.value, list) else [assertion.value]
    return [str(value).casefold() if folded else str(value) for value in values]


def _equals(assertion: Assertion, response: AgentResponse) -> bool:
    if isinstance(assertion.value, dict | list):
        try:
            return bool(json_in(response.text) == assertion.value)
        except ValueError:
            return False
    return response.text.strip() == str(assertion.value).strip()


def _occurs(assertion: Assertion, response: AgentResponse) -> bool:
    return _texts(assertion)[0] in response.text


def _occurs_folded(assertion: Assertion, response: AgentResponse) -> bool:
    return _texts(assertion, folded=True)[0] in response.text.casefold()


def _all_occur(assertion: Assertion, response: AgentResponse) -> bool:
    return all(text in response.text for text in _texts(assertion))


def _any_occurs(assertion: Assertion, response: AgentResponse) -> bool:
    return any(text in response.text for text in _texts(assertion))


def _all_occur_folded(assertion: Assertion, response: AgentResponse) -> bool:
    answer = response.text.casefold()
    return all(text in answer for text in _texts(assertion, folded=True))


def _any_occurs_folded(assertion: Assertion, response: AgentResponse) -> bool:
    answer = response.text.casefold()
    return any(text in answer for text in _texts(assertion, folded=True))


def _begins(assertion: Assertion, response: AgentResponse) -> bool:
    return response.text.startswith(_texts(assertion)[0])


def _matches(assertion: Assertion, response: AgentResponse) -> bool:
    return compile_pattern(assertion.value).search(response.text[:MAX_TEXT_CHARS]) is not None


def _is_json(assertion: Assertion, response: AgentResponse) -> bool:
    try:
        value = json_in(response.text)
    except ValueError:
        return False
    return assertion.value is None or not schema_complaints(value, json.dumps(assertion.value))


def _holds_json(assertion: Assertion, response: AgentResponse) -> bool:
    schema = None if assertion.value is None else json.dumps(assertion.value)
    text, decoder, starts = response.text[:MAX_TEXT_CHARS], json.JSONDecoder(), 0
    position = 0
    while position < len(text) and starts < _JSON_STARTS:
        if text[position] not in "{[":
            position += 1
            continue
        starts += 1
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            position += 1
            continue
        if schema is None or not schema_complaints(value, schema):
            return True
        position = end
    return False


def _is_near(assertion: Assertion, response: AgentResponse) -> bool:
    most = _DEFAULT_EDITS if assertion.threshold is None else assertion.threshold
    return within_edits(response.text[:_MAX_EDIT_CHARS], str(assertion.value)[:_MAX_EDIT_CHARS], min(most, _MAX_EDITS))


def _overlaps(assertion: Assertion, response: AgentResponse) -> bool:
    least = _DEFAULT_ROUGE if assertion.threshold is None else assertion.threshold
    overlaps = rouge(tokenize(response.text), tokenize(str(assertion.value)))
    return overlaps is not None and meets(overlaps["rouge1"].recall, least)


def _is_fast(assertion: Assertion, response: AgentResponse) -> bool | None:
    assert assertion.threshold is not None
    return None if response.latency_ms is None else not exceeds(response.latency_ms, assertion.threshold)


def _is_cheap(assertion: Assertion, response: AgentResponse) -> bool | None:
    assert assertion.threshold is not None
    cost = response.usage.cost_usd if response.usage is not None else None
    return None if cost is None else not exceeds(cost, assertion.threshold)


def _has_words(assertion: Assertion, response: AgentResponse) -> bool:
    bounds = _count_range(assertion.value)
    assert bounds is not None, "checked when the dataset was read"
    return bounds[0] <= len(response.text.split()) <= bounds[1]


def _has_reason(assertion: Assertion, response: AgentResponse) -> bool | None:
    return response.finish_reason == str(assertion.value) if response.finish_reason else None


def _count_range(value: object) -> tuple[float, float] | None:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value, value
    if isinstance(value, dict) and value.keys() <= {"min", "max"} and value:
        low, high = value.get("min", 0), value.get("max", math.inf)
        if all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in (low, high)):
            return low, high
    return None


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def within_edits(first: str, second: str, most: float) -> bool:
    """Return whether the Levenshtein distance of two texts, in characters, is at most a number.

    Only distances of interest are followed (a band around the diagonal), so long texts cost little.
    """
    if most < 0 or abs(len(first) - len(second)) > most:
        return False
    width = int(min(most, max(len(first), len(second))))
    row = {j: j for j in range(min(width, len(second)) + 1)}
    for i, char in enumerate(first, start=1):
        below: dict[int, int] = {}
        for j in range(max(0, i - width), min(len(second), i + width) + 1):
            best = row[j] + 1 if j in row else width + 1
            if j > 0:
                best = min(best, below.get(j - 1, width) + 1, row.get(j - 1, width + 1) + (char != second[j - 1]))
            below[j] = best
        if min(below.values()) > width:
            return False
        row = below
    return row[len(second)] <= most


CHECKS: Mapping[str, _Check] = {
    "equals": _Check("any", _equals),
    "contains": _Check("text", _occurs),
    "icontains": _Check("text", _occurs_folded),
    "contains-all": _Check("texts", _all_occur),
    "contains-any": _Check("texts", _any_occurs),
    "icontains-all": _Check("texts", _all_occur_folded),
    "icontains-any": _Check("texts", _any_occurs_folded),
    "starts-with": _Check("text", _begins),
    "regex": _Check("pattern", _matches),
    "is-json": _Check("schema", _is_json),
    "contains-json": _Check("schema", _holds_json),
    "levenshtein": _Check("text", _is_near),
    "rouge-n": _Check("text", _overlaps),
    "latency": _Check("threshold", _is_fast),
    "cost": _Check("threshold", _is_cheap),
    "word-count": _Check("count", _has_words),
    "finish-reason": _Check("text", _has_reason),
}
"""The checks that can be made, by type."""
