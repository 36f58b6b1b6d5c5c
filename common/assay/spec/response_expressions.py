"""JMESPath expressions of `agent.response`: how large they may be, and how much work one can make of a reply.

The work is bounded from the syntax, before anything is searched. Each part of an expression gets two factors: how many
times larger than its input its result may be, and how often each value of the input may be visited. `[@, @]` doubles;
twenty of them in a row are a million.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jmespath
from jmespath.exceptions import JMESPathError

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAX_CHARS = 1_000
_MAX_DEPTH = 50
_FUNCTION_VISITS = 20
"""Sorting and joining visit a value some times, and its characters."""

Growth = tuple[int, int]
"""How many times larger the result may be, and how often a value is visited."""


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
