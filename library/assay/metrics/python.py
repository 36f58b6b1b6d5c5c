"""Metrics in your own Python code: a function of an answer that returns a number.

    value = what the function returns

The function is named as `module:function` or `file.py:function`, found from the folder of the spec, and runs in the
process of `assay run`, never in a server. It receives what its parameters name: `answer` or `text` (the text of the
answer), `response` (all of it: sources, tool calls, usage ...), `case` (with references and expectations, which agents
never see), `reference` (the first reference, or None), `references`, `request` (what the agent was asked), `question`
(its text). It may be asynchronous; any other function runs in a thread of its own.

It returns
- a number: the value;
- True or False: the values 1 and 0, and without a threshold the verdict of the row;
- `assay.MetricResult(value, reasoning)`, or a mapping with `value` and `reasoning`, which the score keeps;
- None: the metric does not apply to the row, which is skipped (not_applicable).

An exception, more than `timeout_s` seconds, and anything else that it returns, NaN and infinity among it, are errors
of the row (function_raised, function_timeout, function_malformed), with the message and the traceback. An agent error
is not scored, and fails where the metric has a threshold. Of a conversation, the function is called for each turn that
expects something (references, sources or tool calls), and for the last.

A row passes when its value is at least the threshold, or with `higher_is_better: false` at most; without a threshold a
number gives no verdict. The aggregate is the mean; the threshold applies to it, too.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from assay.metrics.core.explanations import threshold_sentence, with_reasoning
from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.score import not_computed, scored
from assay.metrics.core.threshold_metric import ThresholdMetric
from assay.model.metric_call import MAX_REASONING_CHARS
from assay.model.run import Score

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import Row
    from assay.model.metric_call import MetricOutcome

INFO = MetricInfo(
    "python",
    "Python",
    "A function of your own, called on your side with each answer: `function: module:function` in the spec.",
    (
        Parameter("function", "text", None, "The function: module:function or file.py:function; a spec must name it."),
        Parameter("threshold", "number", None, "Least value of a row, and least mean of the run."),
        Parameter(
            "higher_is_better",
            "boolean",
            None,
            "Whether larger values are better; false turns the threshold. Without it comparisons take larger values to "
            "be better, and say so.",
        ),
        Parameter("timeout_s", "number", 60.0, "Longest wait for one call, in seconds.", 0.001, 3_600.0),
    ),
    reads=("answer", "references", "case"),
    values="whatever the function returns; always finite",
    example={"function": "metrics:helpfulness"},
)
_TARGET = re.compile(r"[^\s:][^:\n]*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_NO_CLIENT = "no_function_value"


def names_function(text: object) -> bool:
    """Return whether a text in a spec is meant as the place of a function, and not as the name of a metric."""
    return isinstance(text, str) and ":" in text


def own_name(target: str) -> str:
    """Return the name of a metric for which the spec gives a function alone."""
    return target.rpartition(":")[2].rpartition(".")[2]


def function_problem(parameters: Mapping[str, Any]) -> str:
    """Return why a spec's complete parameters name no function, as far as its form shows one; empty if they do."""
    function = parameters["function"]
    if function is None:
        return "is missing"
    if _TARGET.fullmatch(function):
        return ""
    return f"must be module:function or file.py:function, not {function[:100]!r}"


class Python(ThresholdMetric):
    """Parameters: `function`, `threshold` (on each row and on the mean), `higher_is_better`, `timeout_s`."""

    info = INFO

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        self._function: str = parameters["function"] or ""
        self.timeout_s: float = parameters["timeout_s"]
        if parameters["higher_is_better"] is False:
            self.info = dataclasses.replace(INFO, rule="at_most")

    def work(self, row: Row) -> int:
        """Return an upper bound of the work; the function has been called already."""
        return MAX_REASONING_CHARS

    def score(self, row: Row) -> Score:
        """Return the score of the function's outcome for a row."""
        detail: dict[str, Any] = {"version": self.version, "function": self._function}
        if row.response.is_failed:
            return self._agent_error(detail)
        outcome = row.outcomes.get(self.name)
        if outcome is None:
            return self._skipped(_NO_CLIENT, detail=detail)
        if outcome.error:
            if outcome.traceback:
                detail["traceback"] = outcome.traceback
            return not_computed(self.name, outcome.error, decides=True, detail=detail, message=outcome.message)
        if outcome.reasoning:
            detail["reasoning"] = outcome.reasoning
        return self._scored(outcome, detail)

    def explain(self, row: Row, score: Score) -> str:
        """Return the function's result and the expected one."""
        if score.reason.startswith("returned_"):
            answer = f"the function returned {score.reason.removeprefix('returned_')}"
            expected = "false" if self.info.rule == "at_most" else "true"
            return with_reasoning(score, f"{answer}, expected {expected}")
        return with_reasoning(score, threshold_sentence(score))

    def _scored(self, outcome: MetricOutcome, detail: Mapping[str, Any]) -> Score:
        if outcome.value is None:
            return self._skipped("not_applicable", detail=detail)
        if self.threshold is None and outcome.is_boolean:
            passed = (outcome.value == 1.0) is (self.info.rule != "at_most")
            reason = "" if passed else f"returned_{'true' if outcome.value else 'false'}"
            return scored(self.name, outcome.value, passed=passed, reason=reason, detail=detail)
        return self._scored_by_threshold(outcome.value, detail)
