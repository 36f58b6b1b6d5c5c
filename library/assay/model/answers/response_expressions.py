"""JMESPath expressions that find the fields of an answer in a reply or an object: `agent.response`, `agent.map`.

The work is bounded from the syntax, before anything is searched. Each part of an expression gets two factors: how many
times larger than its input its result may be, and how often each value of the input may be visited. `[@, @]` doubles;
twenty of them in a row are a million.
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
"""The fields of an answer that expressions may find."""

DELTA = "delta"
"""The expression that is about one event of a stream: the text that it adds."""

_SHOWN_EXPRESSION_CHARS = 200
_CONTENT_FIELDS = ("text", "output", "sql", "tool_calls", "retrieved", "events")

_MAX_CHARS = 1_000
_MAX_DEPTH = 50
_FUNCTION_VISITS = 20
"""Sorting and joining visit a value some times, and its characters."""

Growth = tuple[int, int]
"""How many times larger the result may be, and how often a value is visited."""


def expression_problems(expressions: Mapping[str, str], where: str) -> list[Problem]:
    """Return what is wrong with expressions by answer field.

    Args:
        expressions: What a spec gives.
        where: The field of the spec that has them.
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
    """Finds the fields of answers.

    Args:
        expressions: Valid expressions by answer field; `error` makes an answer a failure.
        where: The field of the spec that has them, for messages.
        what: What they are applied to, for messages, e.g. "the reply".
        described: Returns what a message adds about the data that an expression does not fit.
    """

    def __init__(
        self, expressions: Mapping[str, str], where: str, what: str, described: Callable[[Any], str] = lambda _: ""
    ) -> None:
        self._texts = expressions
        self._where = where
        self._what = what
        self._described = described
        self._expressions = {name: jmespath.compile(text) for name, text in expressions.items()}

    def find(self, data: Any) -> dict[str, Any]:
        """Return what each expression but `delta` finds; what is an error need not have what an answer has.

        Raises:
            UnmappedReplyError: One does not fit; the message names it.
        """
        error = self.find_field("error", data) if "error" in self._expressions else None
        is_answer = error is None or error is False or error == ""
        found = {}
        for name in self._expressions:
            if name == DELTA:
                continue
            try:
                found[name] = self.find_field(name, data)
            except UnmappedReplyError:
                if is_answer:
                    raise
        return found

    def find_field(self, name: str, data: Any) -> Any:
        """Return what one expression finds.

        Raises:
            UnmappedReplyError: It does not fit; the message names it.
        """
        try:
            return self._expressions[name].search(data)
        # The library lets some errors of its functions through as they are.
        except (JMESPathError, ArithmeticError, AttributeError, RecursionError, TypeError, ValueError) as problem:
            said = f"{self.shown(name)} does not fit {self._what}: {problem}{self._described(data)}"
            raise UnmappedReplyError(said) from None

    def answer(self, found: Mapping[str, Any], beginning: Callable[[], str]) -> AgentResponse:
        """Return the answer whose fields were found.

        Args:
            found: By field.
            beginning: Returns the beginning of what was searched, for the message where nothing is found.

        Raises:
            UnmappedReplyError: A field has another type, or nothing is found.
            AnswerTooLargeError: What was found is too large.
        """
        # The text is where the expression says, or nowhere.
        absent: dict[str, Any] = {} if found.get("text") is not None else {"text": ""}
        if found.get("tool_calls", ()) is None:
            absent["tool_calls"] = []  # what was searched for calls reports that there were none
        try:
            check_bounds(found)
            response = response_from_json({**found, **absent})
        except MalformedAnswerError as problem:
            raise UnmappedReplyError(f"{self._what} does not fit {self._where}: {problem}") from None
        if response.status is AgentStatus.SUCCESS and all(found.get(name) is None for name in _CONTENT_FIELDS):
            name = "text" if "text" in self._texts else DELTA
            raise UnmappedReplyError(f"{self.shown(name)} finds nothing in {beginning()}")
        return response

    def shown(self, name: str) -> str:
        """Return the field and the expression, for messages."""
        text = self._texts.get(name, "")
        clipped = f"{text[:_SHOWN_EXPRESSION_CHARS]}{'…' * (len(text) > _SHOWN_EXPRESSION_CHARS)}"
        return f"{self._where}.{name} ({clipped})"


def expression_problem(expression: str) -> str:
    """Return why an expression cannot be used, in a sentence that begins with it, or the empty string."""
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
    """Return the growth of an expression that is valid.

    Raises:
        RecursionError: It is nested too deep.
    """
    return _growth(jmespath.compile(expression).parsed)


def _depth(node: Any) -> int:
    depth, level = 0, [node]
    while level:
        depth += 1
        level = [child for one in level for child in one["children"] if isinstance(child, dict)]
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
    """Return the growth of steps of which each takes the result of the one before."""
    size, visits = 1, 0
    for grows, visited in steps:
        visits += size * visited
        size *= grows
    return size, visits
