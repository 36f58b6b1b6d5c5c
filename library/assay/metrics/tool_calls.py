"""Tool calls: whether the agent made the expected tool calls and no forbidden ones.

    recall    = expected calls that were made / expected calls           (1 where none is expected)
    precision = expected calls that were made / calls that were made     (1 where none is expected and none was made)
    f1        = 2 * expected calls that were made / (expected calls + calls that were made)
    match     = 1 when the calls match the expected ones, as `trajectory` says, else 0

`score` says which of them is the value; all are in the detail, and the row passes when its calls match. Expected are
the tools of the case (`expected_tools`, of every turn of a conversation), or with `required` the same for every case,
which a conversation calls in any of its turns. A call is an expected one by its name ("name"), by name and the
arguments expected, whatever others it has ("subset"), by name and exactly these arguments ("exact"), or by these with
lists in any order ("unordered"); `arguments` sets one rule for all. Each call counts once.

    trajectory   expected calls    further calls   same rule as
    any_order    all, any order    allowed         ADK ANY_ORDER, Vertex AI any order, agentevals superset
    in_order     all, in order     allowed         ADK IN_ORDER, Vertex AI in order
    exact        all, in order     none            ADK EXACT, Vertex AI exact, agentevals strict
    unordered    all, any order    none            agentevals unordered
    subset       any of them       none            agentevals subset

With in_order and exact the longest common subsequence counts as made. A call that `forbidden` names fails the row, and
its value is 0. A case, or turn, without expected tools is skipped where nothing is forbidden; with `without_expected:
no_calls` none is expected of it. An answer that does not report its calls (it has no `tool_calls`, not even an empty
list) is not one that called none: it has no value, and its row is undecided. An agent error fails; its value is that of
the calls before it, and 0 for match or where nothing is expected. `message` says what is wrong. Arguments that
are no JSON object match no expectation of arguments. The first 500 calls can be expected ones; all of them count.
The aggregate is the mean; a threshold applies to it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from assay.metrics.core.call_complaints import complaint, expected_and_called, surplus
from assay.metrics.core.call_matching import (
    CLOSED,
    IN_ORDER,
    INCOMPLETE,
    MAX_CALLS,
    TRAJECTORIES,
    Call,
    argument_test,
    matched,
    matched_in_order,
    matching_work,
)
from assay.metrics.core.explanations import MAX_MESSAGE_CHARS
from assay.metrics.core.info import SHARE, MetricInfo, Parameter
from assay.metrics.core.score import scored
from assay.metrics.core.threshold_metric import MeanFold, ThresholdMetric
from assay.model.case import TOOL_MATCHES
from assay.model.expected_tool import read_expected_tool
from assay.model.run import Score, ScoreStatus
from assay.statistics.exact_sum import ExactSum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.metrics.core.score import Row
    from assay.model.answers.agent_response import ToolCall
    from assay.model.case import ExpectedTool
    from assay.model.run import RowResult

_FIGURES = ("recall", "precision", "f1")
_MAX_TOOLS = 1_000
_MOST_NAMED = 20

INFO = MetricInfo(
    "tool_calls",
    "Tool calls",
    "Whether the agent called the tools that it should call, and none that it should not.",
    (
        Parameter("required", "any", None, "Calls that every case makes, in place of the cases' expected tools."),
        Parameter("forbidden", "any", None, "Calls that no answer makes."),
        Parameter("trajectory", "text", "any_order", "How calls match the expected ones.", choices=TRAJECTORIES),
        Parameter("arguments", "text", None, "How arguments are compared, for all calls.", choices=TOOL_MATCHES),
        Parameter(
            "without_expected",
            "text",
            "skip",
            "What is expected of a turn without expected tools.",
            choices=("skip", "no_calls"),
        ),
        Parameter("score", "text", "recall", "What the value is.", choices=(*_FIGURES, "match")),
        Parameter("threshold", "number", None, "Least mean of the run.", 0.0, 1.0),
    ),
    reads=("tool_calls", "expected_tools"),
    decides="always",
    needs="expected_tools",
    values="0 to 1",
    unit="%",
    stats=(*_FIGURES, "unreported"),
    score_stats=dict.fromkeys(_FIGURES, SHARE),
)


class _Fold(MeanFold):
    """The mean, with the means of the figures that are not the value, and the answers that do not report calls."""

    def __init__(self, metric: ThresholdMetric) -> None:
        super().__init__(metric)
        self._figures = {name: ExactSum() for name in _FIGURES}
        self._unreported = 0

    def add(self, row: RowResult, score: Score) -> None:
        super().add(row, score)
        self._unreported += score.detail.get("undecided") is True
        for name, total in self._figures.items():
            if score.status is ScoreStatus.SCORED and name in score.detail:
                total.add(score.detail[name])

    def detail(self, value: float | None) -> dict[str, Any]:
        return {**{name: total.mean for name, total in self._figures.items()}, "unreported": self._unreported}


class ToolCalls(ThresholdMetric):
    """Parameters: see `INFO`; `threshold` is on the mean."""

    info = INFO
    fold_class = _Fold
    version = "2"

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        required = parameters.get("required")
        self._required = None if required is None else _tools(required)
        self._forbidden = _tools(parameters.get("forbidden") or ())
        self._trajectory: str = parameters["trajectory"]
        self._arguments: str | None = parameters.get("arguments")
        self._expects_none = parameters.get("without_expected") == "no_calls"
        self._score: str = parameters.get("score") or "recall"

    @property
    def of_conversation(self) -> bool:
        """Whether a conversation is scored as a whole: what is required of a case may be called in any turn."""
        return self._required is not None

    @property
    def expects_itself(self) -> bool:
        """Whether the metric expects calls of cases that specify none."""
        return self._required is not None or bool(self._forbidden) or self._expects_none

    @staticmethod
    def check(parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return what is wrong with the calls that are required or forbidden."""
        problems = [problem for field in ("required", "forbidden") for problem in _problems(field, parameters[field])]
        if problems:
            return problems
        required = {tool.name for tool in _tools(parameters["required"] or ())}
        return [
            (f"forbidden[{index}]", f"is required too: {tool.name[:60]!r}")
            for index, tool in enumerate(_tools(parameters["forbidden"] or ()))
            if tool.arguments is None and tool.name in required
        ]

    def work(self, row: Row) -> int:
        """Return an upper bound of the work of matching the calls."""
        calls = self._calls(row) or ()
        return matching_work(calls, [*(self._expected(row) or ()), *self._forbidden])

    def score(self, row: Row) -> Score:
        """Return the value that `score` names; the row passes when the calls match and none is forbidden."""
        expected = self._expected(row)
        if expected is None and not self._forbidden:
            return self._skipped("no_expected_tools")
        calls = self._calls(row)
        failed = row.response.is_failed
        if calls is None and not failed:
            message = "the answer does not report its tool calls"
            detail = {"version": self.version, "undecided": True}
            return self._skipped("calls_not_reported", detail=detail, message=message)
        return self._scored([Call(call) for call in calls or ()], expected or (), failed=failed, free=expected is None)

    def _expected(self, row: Row) -> tuple[ExpectedTool, ...] | None:
        """Return the calls expected of a row; None if it specifies none."""
        tools = row.case.turns[-1].expected_tools if self._required is None else self._required
        if not tools and self._required is None and not self._expects_none:
            return None
        if self._arguments is None:
            return tools
        return tuple(
            tool if tool.arguments is None else dataclasses.replace(tool, match=self._arguments) for tool in tools
        )

    def _calls(self, row: Row) -> tuple[ToolCall, ...] | None:
        """Return the calls of the answer, or of a whole conversation; None if one does not report its calls."""
        answers = [turn.response for turn in row.turns] if row.turns and self.of_conversation else [row.response]
        # After a failed call, what was reported before it is all there is.
        reported = [answer.tool_calls for answer in answers if answer.tool_calls is not None or not answer.is_failed]
        if not reported or any(calls is None for calls in reported):
            return None
        return tuple(call for calls in reported for call in calls or ())

    def _scored(self, calls: Sequence[Call], expected: Sequence[ExpectedTool], *, failed: bool, free: bool) -> Score:
        """Return the score of calls; with `free`, only forbidden calls matter."""
        first = calls[:MAX_CALLS]
        matches = matched_in_order(first, expected) if self._trajectory in IN_ORDER else matched(first, expected)
        missing = [tool.name for index, tool in enumerate(expected) if index not in matches]
        further = [] if free else surplus([call.name for call in calls], [expected[index].name for index in matches])
        forbidden = self._forbidden_calls(calls)
        reason = ""
        if forbidden:
            reason = "forbidden_call"
        elif missing and self._trajectory not in INCOMPLETE:
            reason = "call_missing"
        elif further and self._trajectory in CLOSED:
            reason = "further_calls"
        figures = _figures(len(matches), len(expected), len(calls))
        detail: dict[str, Any] = {"version": self.version, "expected": len(expected), "called": len(calls)}
        detail |= {} if free else figures
        invalid = [call.name for call in first if call.arguments is None]
        named = {"missing": missing, "further": further, "forbidden": forbidden, "invalid_arguments": invalid}
        detail |= {name: names[:_MOST_NAMED] for name, names in named.items() if names}
        message = ""
        if reason and not failed:
            anywhere = matched(first, expected) if missing and self._trajectory in IN_ORDER else matches
            wrong = complaint(
                expected=expected,
                called=calls,
                made=matches,
                anywhere=anywhere,
                forbidden=forbidden,
                trajectory="any_order" if free else self._trajectory,
            )
            message = f"{wrong} ({expected_and_called(expected, calls)})"[:MAX_MESSAGE_CHARS]
        value = float(not reason) if self._score == "match" or free else figures[self._score]
        if forbidden or (failed and (self._score == "match" or not expected)):
            value = 0.0
        if failed:
            reason = "agent_error"
        return scored(self.name, value, passed=not reason, reason=reason, detail=detail, message=message)

    def _forbidden_calls(self, calls: Sequence[Call]) -> list[str]:
        """Return the names of the calls that are forbidden, each once, in the order of the calls."""
        tests: dict[str, list[Any]] = {}
        for tool in self._forbidden:
            tests.setdefault(tool.name, []).append(argument_test(tool))
        return list(dict.fromkeys(call.name for call in calls if any(test(call) for test in tests.get(call.name, ()))))


def _figures(matches: int, expected: int, called: int) -> dict[str, float]:
    return {
        "recall": matches / expected if expected else 1.0,
        "precision": matches / called if called else float(not expected),
        "f1": 2 * matches / (expected + called) if expected or called else 1.0,
    }


def _tools(items: Sequence[object]) -> tuple[ExpectedTool, ...]:
    return tuple(tool for item in items if (tool := read_expected_tool(item)[0]) is not None)


def _problems(field: str, items: object) -> list[tuple[str, str]]:
    """Return what is wrong with a list of calls in the parameters."""
    if items is None:
        return []
    if not isinstance(items, list):
        return [(field, f"must be a list of tools' names, or of objects with name and arguments, not {items!r:.60}")]
    if len(items) > _MAX_TOOLS:
        return [(field, f"has {len(items):,} calls, more than {_MAX_TOOLS:,}")]
    return [
        (f"{field}[{index}]{part}", problem)
        for index, item in enumerate(items)
        for part, problem in read_expected_tool(item)[1]
    ]
