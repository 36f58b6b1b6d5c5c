"""JSON schema: whether the answer is JSON of the shape that it should have.

    json_schema = 1 when the answer is valid against `schema` (Draft 2020-12), else 0

What is checked is the answer's structured output where it has one, else its text, which must be one JSON
value; a Markdown code fence around it does not matter. NaN and Infinity are not JSON. Nothing is fetched: a
`$ref` that leads out of the schema is refused before the run, and so is a `pattern` that RE2 does not take. Up
to ten departures are in the detail, each with its JSON path. An agent error is 0; every row has an answer, so
none is missing the input. A row passes with 1. The aggregate is the share of rows; a threshold applies to it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from assay.answers import AgentStatus
from assay.metrics.contains import ShareFold
from assay.metrics.info import MetricInfo, Parameter
from assay.metrics.schema_validation import schema_complaints, schema_problem, schema_validator, validation_work
from assay.metrics.score import not_computed, scored
from assay.strict_json import DECODER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from assay.metrics.score import Row
    from assay.results import Score

__all__ = ["JsonSchema", "json_in", "json_values"]

INFO = MetricInfo(
    "json_schema",
    "JSON schema",
    "Whether the answer is JSON of the shape that it should have.",
    (
        Parameter("schema", "object", None, "The schema, Draft 2020-12.", required=True),
        Parameter("threshold", "number", None, "Least share of the run's rows.", 0.0, 1.0),
    ),
    reads=("answer", "output"),
    values="0 or 1",
    unit="%",
    example={"schema": {"type": "object", "required": ["answer"]}},
)
_FENCE = "```"
_START = re.compile(r"[{\[]")
_MOST_VALUES = 200


def json_in(text: str) -> Any:
    """Return the JSON value that a text is, apart from a code fence around it.

    Raises:
        ValueError: It is none; the message says why.
    """
    try:
        return DECODER.decode(_without_fence(text.strip()))
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None


def _without_fence(text: str) -> str:
    # Not a regular expression: with long runs of blanks one would take quadratic time.
    if not (text.startswith(_FENCE) and text.endswith(_FENCE) and len(text) > 2 * len(_FENCE)):
        return text
    language, line_break, rest = text[len(_FENCE) : -len(_FENCE)].partition("\n")
    return rest.strip() if line_break and "`" not in language else text


def json_values(text: str) -> Iterator[Any]:
    """Yield the outermost JSON objects and arrays in a text of words."""
    position = 0
    for _ in range(_MOST_VALUES):
        start = _START.search(text, position)
        if start is None:
            return
        try:
            value, position = DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            # A try reads on to the first mistake, which may be far: bounded, or braces alone would cost minutes.
            position = start.end()
        else:
            yield value


class JsonSchema:
    """Parameters: `schema`, `threshold` (on the share)."""

    info = INFO
    version = "1"
    embedding_model: str | None = None

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        self.name = name
        self._schema_text = json.dumps(parameters["schema"])
        self._validator = schema_validator(self._schema_text)
        self._threshold: float | None = parameters["threshold"]

    @staticmethod
    def check(parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return what is wrong with the schema."""
        problem = schema_problem(parameters["schema"])
        return [("schema", problem)] if problem else []

    def work(self, row: Row) -> float:
        """Return how much work validating the answer is at most."""
        output = row.response.output
        return validation_work(self._schema_text, row.response.text if output is None else output)

    def score(self, row: Row) -> Score:
        """Return 1 or 0."""
        detail: dict[str, Any] = {"version": self.version}
        if row.response.status is AgentStatus.ERROR:
            return scored(self.name, 0.0, passed=False, reason="agent_error", detail=detail)
        value = row.response.output
        if value is None:
            try:
                value = json_in(row.response.text)
            except ValueError as problem:
                detail["complaints"] = [str(problem)[:200]]
                return scored(self.name, 0.0, passed=False, reason="not_json", detail=detail)
        try:
            complaints = schema_complaints(value, self._validator)
        except ValueError as problem:
            return not_computed(self.name, "invalid_schema", decides=True, **detail, complaints=[str(problem)])
        if complaints:
            detail["complaints"] = complaints
        valid = not complaints
        return scored(self.name, float(valid), passed=valid, reason="" if valid else "schema", detail=detail)

    def aggregate(self) -> ShareFold:
        """Return an empty fold."""
        return ShareFold(self.name, self._threshold)
