"""JSON schema: whether the answer is JSON of the shape that it should have.

    json_schema = 1 when the answer is valid against `schema` (Draft 2020-12), else 0

What is checked is the answer's structured output where it has one, else its text, which must be one JSON
value; a Markdown code fence around it does not matter. NaN and Infinity are not JSON. A `$ref` to another
document is refused before the run: nothing is fetched. An agent error is 0; every row has an answer, so none
is missing the input. A row passes with 1. The aggregate is the share of rows; a threshold applies to it.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from assay.answers import AgentStatus
from assay.errors import SetupError
from assay.metrics.contains import ShareFold
from assay.metrics.info import MetricInfo, Parameter
from assay.metrics.score import scored

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from assay.metrics.score import Row
    from assay.results import Score

__all__ = ["JsonSchema", "json_in", "schema_complaints", "schema_problem"]

INFO = MetricInfo(
    "json_schema",
    "JSON schema",
    "Whether the answer is JSON of the shape that it should have.",
    (
        Parameter("schema", "object", None, "The schema, Draft 2020-12.", required=True),
        Parameter("threshold", "number", None, "Least share of the run's rows.", 0.0, 1.0),
    ),
    reads=("answer", "output"),
    unit="%",
    example={"schema": {"type": "object", "required": ["answer"]}},
)
_FENCE = re.compile(r"\s*```[A-Za-z0-9_-]*[ \t]*\n(.*?)\n?\s*```\s*", re.DOTALL)
_MAX_COMPLAINTS = 10
_MAX_TEXT_CHARS = 5_000_000


def json_in(text: str) -> Any:
    """Return the JSON value that a text is, apart from a code fence around it.

    Raises:
        ValueError: It is none; the message says why.
    """
    fenced = _FENCE.fullmatch(text)
    try:
        return _DECODER.decode((fenced[1] if fenced else text)[:_MAX_TEXT_CHARS].strip())
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None


def schema_problem(schema: object) -> str:
    """Return why a schema cannot be used, or the empty string."""
    jsonschema = _library()
    try:
        outside = next((ref for ref in _references(schema) if not ref.startswith("#")), None)
        if outside is not None:
            return f"refers to another document, {outside[:80]!r}, and nothing is fetched: write it under $defs"
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as problem:
        where = ".".join(map(str, problem.absolute_path))
        return f"is no JSON schema{f' at {where}' if where else ''}: {problem.message[:200]}"
    except RecursionError:
        return "is nested too deep"
    return ""


def schema_complaints(value: object, schema_text: str) -> list[str]:
    """Return up to ten sentences on where a value departs from a schema, given as JSON text."""
    complaints = []
    try:
        for error in _validator(schema_text).iter_errors(value):
            complaints.append(f"{error.json_path}: {error.message[:200]}")
            if len(complaints) >= _MAX_COMPLAINTS:
                break
    except RecursionError:
        return ["$: is nested too deep"]
    return complaints


class JsonSchema:
    """Parameters: `schema`, `threshold` (on the share)."""

    info = INFO
    version = "1"
    embedding_model: str | None = None

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None:
        self.name = name
        self._schema = json.dumps(parameters["schema"])
        self._threshold: float | None = parameters["threshold"]

    @staticmethod
    def check(parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return what is wrong with the schema."""
        problem = schema_problem(parameters["schema"])
        return [("schema", problem)] if problem else []

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
        complaints = schema_complaints(value, self._schema)
        if complaints:
            detail["complaints"] = complaints
        valid = not complaints
        return scored(self.name, float(valid), passed=valid, reason="" if valid else "schema", detail=detail)

    def aggregate(self) -> ShareFold:
        """Return an empty fold."""
        return ShareFold(self.name, self._threshold)


def _library() -> Any:
    try:
        import jsonschema  # imported here: the library starts without it
    except ImportError:
        raise SetupError(
            "JSON schemas need jsonschema, which is not installed: pip install 'assay[orchestrator]'",
            reason="NOT_INSTALLED",
        ) from None
    return jsonschema


@lru_cache(maxsize=256)
def _validator(schema_text: str) -> Any:
    from referencing import Registry

    # An empty registry: whatever is not in the schema itself cannot be looked up.
    return _library().Draft202012Validator(json.loads(schema_text), registry=Registry())


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for item in schema:
            yield from _references(item)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
