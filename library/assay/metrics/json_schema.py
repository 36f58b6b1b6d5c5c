"""JSON schema: whether the answer is JSON that fits the schema.

    json_schema = 1 when the answer is valid against `schema` (Draft 2020-12), else 0

What is checked is the answer's structured output where it has one, else its text, which must be one JSON
value; a Markdown code fence around it does not matter. NaN and Infinity are not JSON. Nothing is fetched: a
`$ref` that leads out of the schema is refused before the run, and so is a `pattern` that RE2 does not take. Up
to ten departures are in the detail, each with its JSON path. An agent error is 0; every row has an answer, so
none is missing the input. A row passes with 1. The aggregate is the share of rows; a threshold applies to it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from assay.metrics.checks.json_values import json_in
from assay.metrics.checks.schema_validation import schema_complaints, schema_problem, schema_validator, validation_work
from assay.metrics.core.explanations import quoted
from assay.metrics.core.info import MetricInfo, Parameter
from assay.metrics.core.threshold_metric import ShareFold, ThresholdMetric
from assay.text.unsafe_text import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.core.score import Row
    from assay.model.run import Score

INFO = MetricInfo(
    "json_schema",
    "JSON schema",
    "Whether the answer is JSON of the shape that it should have.",
    (
        Parameter("schema", "object", None, "The schema, Draft 2020-12.", required=True),
        Parameter("threshold", "number", None, "Least share of the run's rows.", 0.0, 1.0),
    ),
    reads=("answer", "output"),
    decides="always",
    values="0 or 1",
    unit="%",
    example={"schema": {"type": "object", "required": ["answer"]}},
)


class JsonSchema(ThresholdMetric):
    """Parameters: `schema`, `threshold` (on the share)."""

    info = INFO
    fold_class = ShareFold

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        super().__init__(name, parameters)
        self._schema_text = json.dumps(parameters["schema"])
        self._validator = schema_validator(self._schema_text)

    @staticmethod
    def check(parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return what is wrong with the schema."""
        problem = schema_problem(parameters["schema"])
        return [("schema", problem)] if problem else []

    def work(self, row: Row) -> float:
        """Return an upper bound of the work of validating the answer."""
        output = row.response.output
        return validation_work(self._schema_text, row.response.text if output is None else output)

    def score(self, row: Row) -> Score:
        """Return 1 or 0."""
        detail: dict[str, Any] = {"version": self.version}
        if row.response.is_failed:
            return self._checked(False, "agent_error", detail)
        value = row.response.output
        if value is None:
            try:
                value = json_in(row.response.text)
            except ValueError as problem:
                detail["complaints"] = [str(problem)[:200]]
                return self._checked(False, "not_json", detail)
        try:
            complaints = schema_complaints(value, self._validator)
        except ValueError as problem:
            return self._not_computed("invalid_schema", {**detail, "complaints": [str(problem)]})
        if complaints:
            detail["complaints"] = complaints
        valid = not complaints
        return self._checked(valid, "schema", detail)

    def explain(self, row: Row, score: Score) -> str:
        """Return the place where the answer violates the schema, or why it is not JSON."""
        complaints = "; ".join(score.detail.get("complaints", ())[:3])
        if score.reason == "not_json":
            return f"the answer is not JSON ({shorten(complaints, 200)}): {quoted(row.response.text)}"
        output = row.response.output
        answer = row.response.text if output is None else json.dumps(output, ensure_ascii=False)
        return f"the answer does not fit the schema: {shorten(complaints, 300)}; the answer is {quoted(answer)}"
