"""Formula: a composite of your own, from other metrics of the run and from what the agent reported.

    value = the formula, e.g. 0.7 * semantic_similarity + 0.3 * coverage

It may read
- other metrics of the run by their names: their values on the same row;
- fields of the answer: latency_ms, latency_s, input_tokens, output_tokens, total_tokens, cost_usd, data_rows,
  source_count, tool_call_count, answer_chars, answer_words, attempts (1 for an answer at the first attempt);
- 1 or 0: has_events (the agent retrieved at least one item), status_success, status_out_of_scope, status_error;
- numbers of your own beside the formula: {formula: "hit_rate ** alpha", alpha: 2}.

It is written with + - * / **, parentheses, min, max, mean, abs, sqrt, exp, log (natural), clamp(x, low, high),
conditions (< <= > >= == != and or not) in `a if condition else b` or if_else(condition, a, b), and
coalesce(a, b), the first that is not missing. Precedence is that of Python.

What is missing makes the value missing, and the row is skipped (missing_input), never 0: write
coalesce(coverage, 0) to say otherwise. Of a condition only the branch that is taken is read. No tokens means
not counted and is missing. Division by zero, the root or logarithm of what has none, and results too large are
errors of the row, and so is reading a metric that could not be computed; coalesce does not hide that.

An agent error is not scored, and fails where there is a threshold, unless the formula reads status_error: then
it is computed, e.g. 0 if status_error else semantic_similarity. A row passes when its value is at least the
threshold; without one rows get no verdict. The aggregate is the mean; threshold and goal apply to it too.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from assay.errors import SpecError
from assay.metrics.combined_score import tokens_used
from assay.metrics.core.explanations import listed, threshold_sentence
from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.threshold_metric import ThresholdMetric
from assay.metrics.expression.expression_nodes import EvaluationError
from assay.metrics.expression.expressions import FUNCTIONS, WORDS, parse_expression
from assay.model.answers.agent_response import AgentStatus
from assay.model.answers.possible_usage import MAX_COST_USD, counted_parts
from assay.model.answers.response_limits import MAX_TOKENS
from assay.model.run import Score, ScoreStatus
from assay.parsing.names import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from assay.metrics.core.score import Row
    from assay.model.answers.agent_response import AgentResponse

INFO = MetricInfo(
    "formula",
    "Formula",
    "A composite of your own, from other metrics and from what the agent reported.",
    (
        Parameter("formula", "text", None, "The formula.", required=True),
        Parameter("parameters", "object", None, "Numbers that the formula reads by name."),
        Parameter("threshold", "number", None, "Least value with which a row passes."),
        Parameter("goal", "number", None, "The run's mean should be at least this."),
    ),
    reads=("scores", "status", "latency", "tokens", "cost", "answer"),
    values="whatever the formula gives; always finite",
    example={"formula": "has_events * max(0, 1 - latency_s / slowest_s)", "parameters": {"slowest_s": 10}},
)

FLAGS: Mapping[str, Callable[[AgentResponse], bool]] = {
    "has_events": lambda response: bool(response.retrieved),
    "status_success": lambda response: response.status is AgentStatus.SUCCESS,
    "status_out_of_scope": lambda response: response.status is AgentStatus.OUT_OF_SCOPE,
    "status_error": lambda response: response.is_failed,
}
"""Fields of the answer that are 1 or 0 and may be used as conditions."""

FIELDS: Mapping[str, Callable[[AgentResponse], float | None]] = {
    "latency_ms": lambda response: response.latency_ms,
    "latency_s": lambda response: None if response.latency_ms is None else response.latency_ms / 1000,
    "input_tokens": lambda response: counted_parts(response.usage)[0],
    "output_tokens": lambda response: counted_parts(response.usage)[1],
    "total_tokens": lambda response: tokens_used(response.usage),
    "cost_usd": lambda response: response.usage.cost_usd if response.usage is not None else None,
    "data_rows": lambda response: response.data_rows,
    "source_count": lambda response: len(response.sources),
    "tool_call_count": lambda response: None if response.tool_calls is None else len(response.tool_calls),
    "answer_chars": lambda response: len(response.text),
    "answer_words": lambda response: len(response.text.split()),
    "attempts": lambda response: 1 + len(response.attempts),
    **FLAGS,
}
"""Fields of the answer that a formula may read; None if the answer does not have it."""

_MOST = {"input_tokens": MAX_TOKENS, "output_tokens": MAX_TOKENS, "total_tokens": MAX_TOKENS, "cost_usd": MAX_COST_USD}
_OWN_NAME = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
_MAX_NUMBERS = 200
_WORK = 10_000  # 200 parts
_AGENT_ERROR = "agent_error"


def with_own_numbers(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a formula's parameters, with the numbers beside them moved to `parameters`."""
    known = {parameter.name for parameter in INFO.parameters}
    own = given.get("parameters")
    if own is not None and not isinstance(own, dict):
        return dict(given)
    gathered = dict(own or {})
    rest = {}
    for key, value in given.items():
        if key in known or key in gathered or isinstance(value, bool) or not isinstance(value, int | float):
            rest[key] = value
        else:
            gathered[key] = value
    return {**rest, "parameters": gathered} if gathered else rest


class Formula(ThresholdMetric):
    """Parameters: `formula`, `parameters`, `threshold` (on each row and on the mean), `goal` (on the mean)."""

    info = INFO

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        self._expression = parse_expression(parameters["formula"], flags=FLAGS)
        self._numbers: Mapping[str, float] = parameters["parameters"] or {}
        self.names = self._expression.names
        self.inputs = tuple(read for read in self.names if read not in self._numbers and read not in FIELDS)

    @staticmethod
    def check(parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return what is wrong with the formula and its numbers."""
        numbers: Mapping[str, Any] = parameters["parameters"] or {}
        if len(numbers) > _MAX_NUMBERS:
            return [("parameters", f"has {len(numbers):,} numbers, more than {_MAX_NUMBERS}")]
        problems = [
            (f"parameters.{name}", message) for name, value in numbers.items() if (message := _problem(name, value))
        ]
        try:
            expression = parse_expression(parameters["formula"], flags=FLAGS)
        except SpecError as error:
            return [("formula", error.message), *problems]
        if all(name in numbers for name in expression.names):
            problems.append(("formula", "reads neither a metric nor a field of the answer: it is always the same"))
        known = [parameter.name for parameter in INFO.parameters]
        for name in numbers:
            if name not in expression.names:
                close = nearest(str(name), [*known, *(read for read in expression.names if read not in numbers)])
                hint = f"; did you mean {close!r}?" if close is not None else ""
                problems.append((f"parameters.{name}", f"is not read by the formula{hint}"))
        return problems

    def lacks(self, missing: Container[str]) -> bool:
        """Return whether the formula has no value without the scores of some metrics."""
        try:
            return self._expression.evaluate(lambda name: None if name in missing else 1.0) is None
        except EvaluationError:
            return False  # other scores may give one

    def work(self, row: Row) -> int:
        """Return an upper bound of the work of evaluating the formula: its length is bounded."""
        return _WORK

    def score(self, row: Row) -> Score:
        """Return the formula's value on a row."""
        failed = row.response.is_failed
        read = _Inputs(row, self._numbers)
        detail: dict[str, Any] = {"version": self.version, "inputs": read.found}
        if failed and "status_error" not in self.names:
            return self._agent_error(detail)
        try:
            value = self._expression.evaluate(read)
        except EvaluationError as problem:
            return self._not_computed(problem.reason, detail)
        if value is None:
            return self._agent_error(detail) if failed else self._skipped("missing_input", detail=detail)
        reason = _AGENT_ERROR if failed else ""
        return self._scored_by_threshold(value, detail, reason=reason)

    def explain(self, row: Row, score: Score) -> str:
        """Return the value with the threshold, and the inputs of the formula."""
        read = [f"{name} {value:g}" for name, value in score.detail["inputs"].items() if value is not None]
        return f"{threshold_sentence(score)} ({listed(read)})" if read else threshold_sentence(score)


class _Inputs:
    """The numbers behind a formula's names on one row; `found` keeps those that were read."""

    def __init__(self, row: Row, numbers: Mapping[str, float]) -> None:
        self._row = row
        self._numbers = numbers
        self.found: dict[str, float | None] = {}

    def __call__(self, name: str) -> float | None:
        if name in self._numbers:
            return float(self._numbers[name])
        if name not in self.found:
            self.found[name] = None
            self.found[name] = self._field(name) if name in FIELDS else self._score(name)
        return self.found[name]

    def _field(self, name: str) -> float | None:
        given = FIELDS[name](self._row.response)
        if given is None:
            return None
        try:
            value = float(given)
        except OverflowError:  # a whole number beyond what a float holds
            value = math.inf
        if not math.isfinite(value) or not 0 <= value <= _MOST.get(name, math.inf):
            raise EvaluationError(f"invalid_{name}")
        return value

    def _score(self, name: str) -> float | None:
        score = self._row.scores.get(name)
        if score is not None and score.status is ScoreStatus.ERROR and score.reason != _AGENT_ERROR:
            raise EvaluationError(score.reason or "input_failed")
        return None if score is None else score.value


def _problem(name: object, value: object) -> str:
    if not isinstance(name, str) or not _OWN_NAME.fullmatch(name):
        return "the name of a number has letters, digits and _, and starts with a letter"
    if name in FIELDS or name in FUNCTIONS or name in WORDS:
        return f"{name} means something else in formulas: choose another name"
    return Parameter(name, "number", 0.0, "").problem(value)
