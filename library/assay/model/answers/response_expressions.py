"""JMESPath expressions of `agent.response` and `agent.map`, which locate the fields of an answer in a reply.

Their cost is bounded from the syntax before they run. Each part of an expression has two factors: how much larger than
    its input its result may be, and how often it may visit each value of the input. `[@, @]` doubles; twenty of them in
    a row make a million.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jmespath
from jmespath.exceptions import JMESPathError

from assay.errors import Problem
from assay.model.answers.agent_response import AgentStatus, MalformedAnswerError, response_from_json
from assay.model.answers.response_fields import UnmappedReplyError
from assay.model.answers.response_limits import check_bounds
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from assay.model.answers.agent_response import AgentResponse

RESPONSE_FIELDS = ("text", "status", "error", "output", "sql", "data_rows", "tool_calls", "sources", "retrieved",
                   "events", "usage", "finish_reason", "model", "reported_latency_ms", "time_to_first_token_ms",
                   "metadata", "interrupts")  # fmt: skip
"""The answer fields that an expression may locate."""

DELTA = "delta"
"""The expression for a stream's events: the text that an event adds."""

_SHOWN_EXPRESSION_CHARS = 200
_CONTENT_FIELDS = ("text", "output", "sql", "tool_calls", "retrieved", "events")

_MAX_CHARS = 1_000
_MAX_DEPTH = 50
_FUNCTION_VISITS = 20
"""Sorting and joining visit each value several times, and its characters too."""

Growth = tuple[int, int]
"""How many times larger the result may be, and how often a value is visited."""


def expression_problems(expressions: Mapping[str, str], where: str) -> list[Problem]:
    """Return the problems of expressions, by answer field.

    Args:
        expressions: The expressions in a spec.
        where: The spec field that holds them.
    """
    problems = []
    for name, expression in expressions.items():
        if name not in RESPONSE_FIELDS:
            problems.append(Problem(unknown_name("answer field", name, RESPONSE_FIELDS), f"{where}.{name}"))
        if problem := expression_problem(expression):
            problems.append(Problem(problem, f"{where}.{name}"))
    if "text" not in expressions and not problems:
        problems.append(Problem("must say where the answer's text is: add text: EXPRESSION", where))
    return problems


class ResponseExpressions:
    """Locates the fields of answers.

    Args:
        expressions: Valid expressions by answer field; a result of `error` makes the answer a failure.
        where: The spec field that holds them, for messages.
        what: The name of the searched data in messages, e.g. "the reply".
        described: Returns a description of the data, which the message about a mismatch adds.
    """

    def __init__(
        self, expressions: Mapping[str, str], where: str, subject: str, described: Callable[[Any], str] = lambda _: ""
    ) -> None:
        self._texts = expressions
        self._where = where
        self._subject = subject
        self._described = described
        self._expressions = {name: jmespath.compile(text) for name, text in expressions.items()}

    def find(self, data: Any) -> dict[str, Any]:
        """Return the result of each expression except `delta`; an error reply need not have the fields of an answer.

        Raises:
            UnmappedReplyError: An expression does not fit; the message names it.
        """
        error = self.find_field("error", data) if "error" in self._expressions else None
        is_answer = error is None or error is False or error == ""
        values = {}
        for name in self._expressions:
            if name == DELTA:
                continue
            try:
                values[name] = self.find_field(name, data)
            except UnmappedReplyError:
                if is_answer:
                    raise
        return values

    def find_field(self, name: str, data: Any) -> Any:
        """Return the result of one expression.

        Raises:
            UnmappedReplyError: It does not fit; the message names it.
        """
        try:
            return self._expressions[name].search(data)
        # The library lets some exceptions of its functions through unchanged.
        except (JMESPathError, ArithmeticError, AttributeError, RecursionError, TypeError, ValueError) as problem:
            message = f"{self.shown(name)} does not fit {self._subject}: {problem}{self._described(data)}"
            raise UnmappedReplyError(message) from None

    def answer(self, values: Mapping[str, Any], beginning: Callable[[], str]) -> AgentResponse:
        """Return the answer that the located fields make up.

        Args:
            values: The located values, by field.
            beginning: Returns the beginning of the searched data, for the message about a missing answer.

        Raises:
            UnmappedReplyError: A field has the wrong type, or the data has no answer.
            AnswerTooLargeError: The located values are too large.
        """
        # With an expression for the text, no other field is tried for it.
        absent: dict[str, Any] = {} if values.get("text") is not None else {"text": ""}
        if values.get("tool_calls", ()) is None:
            absent["tool_calls"] = []  # searched for calls without a match: the agent reports that there were none
        try:
            check_bounds(values)
            response = response_from_json({**values, **absent})
        except MalformedAnswerError as problem:
            raise UnmappedReplyError(f"{self._subject} does not fit {self._where}: {problem}") from None
        if response.status is AgentStatus.SUCCESS and all(values.get(name) is None for name in _CONTENT_FIELDS):
            name = "text" if "text" in self._texts else DELTA
            raise UnmappedReplyError(f"{self.shown(name)} finds nothing in {beginning()}")
        return response

    def shown(self, name: str) -> str:
        """Return the field and its expression, for messages."""
        text = self._texts.get(name, "")
        clipped = f"{text[:_SHOWN_EXPRESSION_CHARS]}{'…' * (len(text) > _SHOWN_EXPRESSION_CHARS)}"
        return f"{self._where}.{name} ({clipped})"


def expression_problem(expression: str) -> str:
    """Return why an expression cannot be used, as a sentence that begins with it; empty if it can."""
    shown = repr(expression if len(expression) <= 80 else f"{expression[:79]}…")
    if len(expression) > _MAX_CHARS:
        return f"{shown} has {len(expression):,} characters, more than {_MAX_CHARS:,}"
    try:
        depth = _depth(jmespath.compile(expression).parsed)
    except JMESPathError as error:
        return f"{shown} is not valid JMESPath: {str(error).splitlines()[0]}"
    except RecursionError:
        depth = _MAX_DEPTH + 1
    return f"{shown} is nested more than {_MAX_DEPTH} levels deep" if depth > _MAX_DEPTH else ""


def growth_of(expression: str) -> Growth:
    """Return the growth of a valid expression.

    Raises:
        RecursionError: It is nested too deep.
    """
    return _growth(jmespath.compile(expression).parsed)


def _depth(node: Any) -> int:
    depth, level = 0, [node]
    while level:
        depth += 1
        level = [child for node in level for child in node["children"] if isinstance(child, dict)]
    return depth


def _growth(node: Any) -> Growth:
    kind, children = node["type"], [_growth(child) for child in node["children"] if isinstance(child, dict)]
    match kind:
        case "field" | "current" | "identity" | "index" | "slice":
            return 1, 0
        case "literal":
            return len(str(node["value"])) + 1, 0
        case "multi_select_list" | "multi_select_dict":
            return 1 + sum(size for size, _ in children), sum(visits for _, visits in children)
        case "or_expression" | "and_expression" | "comparator" | "not_expression" | "key_val_pair" | "expref":
            visits = sum(visits for _, visits in children) + (kind == "comparator")
            return max((size for size, _ in children), default=1), visits
        case "function_expression":
            size = 1 + sum(size for size, _ in children)
            for child, (grows, _) in zip(node["children"], children, strict=True):
                size *= grows if child["type"] == "expref" else 1
            return size, size * (_FUNCTION_VISITS + sum(visits for _, visits in children))
        case "filter_projection":
            left, right, condition = children
            return _after([left, (right[0], right[1] + condition[1] + condition[0] + 1)])
        case "flatten" | "projection" | "value_projection":
            size, visits = _after(children)
            return size, visits + size
    return _after(children)


def _after(steps: Iterable[Growth]) -> Growth:
    """Return the growth of steps that each take the previous step's result."""
    size, visits = 1, 0
    for grows, visited in steps:
        visits += size * visited
        size *= grows
    return size, visits
