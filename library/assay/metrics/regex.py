"""Regex: whether the answer matches a regular expression.

    regex = 1 when the pattern is found in the answer (mode "search") or matches all of it ("fullmatch"), else 0

Patterns are RE2's: without backtracking, look-around and back-references. As usual `.` stops at a line break
((?s) lifts that), `^` and `$` are the ends of the answer ((?m): of a line), and \\d, \\w and \\b know ASCII alone
(\\pN and \\pL know every script). A pattern that RE2 does not take is refused before the run. Answers are searched
up to a million characters. An agent error is 0; every row has an answer, so none is missing the input. A row
passes with 1. The aggregate is the share of rows; a threshold applies to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics.checks.patterns import MAX_TEXT_CHARS, compile_pattern, pattern_problem, search_work
from assay.metrics.core.explanations import quoted
from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.threshold_metric import ShareFold, ThresholdMetric
from assay.text.equality import composed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import Row
    from assay.model.run import Score

INFO = MetricInfo(
    "regex",
    "Regular expression",
    "Whether the answer matches a regular expression.",
    (
        Parameter("pattern", "text", None, "The pattern, in RE2's syntax.", required=True),
        Parameter(
            "mode", "text", "search", "Whether it may be anywhere or must be all.", choices=("search", "fullmatch")
        ),
        Parameter("case_sensitive", "boolean", True, "Whether upper and lower case differ."),
        Parameter("threshold", "number", None, "Least share of the run's rows.", 0.0, 1.0),
    ),
    reads=("answer",),
    decides="always",
    values="0 or 1",
    unit="%",
    example={"pattern": r"\d+ tenders"},
)


class Regex(ThresholdMetric):
    """Parameters: `pattern`, `mode`, `case_sensitive`, `threshold` (on the share)."""

    info = INFO
    fold_class = ShareFold

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        self._expected: str = parameters["pattern"]
        self._pattern = compile_pattern(composed(parameters["pattern"]), case_sensitive=parameters["case_sensitive"])
        self._size = int(self._pattern.programsize)
        self._whole = parameters["mode"] == "fullmatch"

    @staticmethod
    def check(parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return what is wrong with the pattern."""
        problem = pattern_problem(parameters["pattern"])
        return [("pattern", problem)] if problem else []

    def work(self, row: Row) -> int:
        """Return an upper bound of the work of searching the answer."""
        return search_work(self._size, len(row.response.text))

    def score(self, row: Row) -> Score:
        """Return 1 or 0."""
        detail = {"version": self.version}
        if row.response.is_failed:
            return self._checked(False, "agent_error", detail)
        text = composed(row.response.text[:MAX_TEXT_CHARS])
        matches = (self._pattern.fullmatch(text) if self._whole else self._pattern.search(text)) is not None
        return self._checked(matches, "no_match", detail)

    def explain(self, row: Row, score: Score) -> str:
        """Return the pattern and the answer."""
        what = "the whole answer does not match" if self._whole else "the answer does not match"
        return f"{what} the pattern {quoted(self._expected)}: {quoted(row.response.text)}"
