"""Values of expressions at a moment, by the rules of Prometheus."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from tests.promql.series import Labels, Series
from tests.promql.syntax import Aggregation, Binary, Call, Expression, Number, Selector

Vector: TypeAlias = "dict[Labels, float]"
Value: TypeAlias = "float | Vector"

_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "/": lambda left, right: left / right if right else math.nan if not left else math.copysign(math.inf, left),
}  # fmt: skip
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le
}  # fmt: skip
_AGGREGATIONS: Mapping[str, Callable[[Sequence[float]], float]] = {"sum": sum, "max": max, "min": min, "count": len}


def evaluate(expression: Expression, series: Sequence[Series], time: float) -> Value:
    """Return the value of an expression: a number, or a number for each set of labels."""
    match expression:
        case Number(value):
            return value
        case Selector():
            newest = {one.labels: one.at(time) for one in chosen(expression, series)}
            return {labels: found for labels, found in newest.items() if found is not None}
        case Aggregation():
            return _aggregated(expression, vector(evaluate(expression.of, series, time)))
        case Call():
            return _called(expression, series, time)
        case Binary():
            return _combined(
                expression, evaluate(expression.left, series, time), evaluate(expression.right, series, time)
            )


def vector(value: Value) -> Vector:
    """Return a value that must be one for each set of labels."""
    if not isinstance(value, dict):
        raise ValueError(f"{value} is a number, and not one for each set of labels")
    return value


def chosen(selector: Selector, series: Sequence[Series]) -> list[Series]:
    """Return the series that a selector means."""
    return [one for one in series if one.name == selector.name and _matches(selector, dict(one.labels))]


def _matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    for label, kind, wanted in selector.matchers:
        found = labels.get(label, "")
        is_equal = found == wanted if "~" not in kind else re.fullmatch(wanted, found) is not None
        if is_equal == kind.startswith("!"):
            return False
    return True


def _aggregated(aggregation: Aggregation, values: Vector) -> Vector:
    groups: dict[Labels, list[float]] = {}
    for labels, value in values.items():
        key = tuple(pair for pair in labels if pair[0] in aggregation.by)
        groups.setdefault(key, []).append(value)
    return {key: float(_AGGREGATIONS[aggregation.operator](found)) for key, found in groups.items()}


def _called(call: Call, series: Sequence[Series], time: float) -> Value:
    if call.function == "time":
        return time
    if call.function == "histogram_quantile":
        share, buckets = (evaluate(argument, series, time) for argument in call.arguments)
        if isinstance(share, dict):
            raise ValueError("the first argument of histogram_quantile is a number")
        return _quantiles(share, vector(buckets))
    (selector,) = call.arguments
    if not isinstance(selector, Selector):
        raise ValueError(f"{call.function} takes a selector here")
    if call.function == "absent":
        equal = tuple(sorted((label, value) for label, kind, value in selector.matchers if kind == "="))
        return {} if evaluate(selector, series, time) else {equal: 1.0}
    if not selector.range_s:
        raise ValueError(f"{call.function} takes a range")
    found = {one.labels: increase(one, time, selector.range_s) for one in chosen(selector, series)}
    divisor = selector.range_s if call.function == "rate" else 1.0
    return {labels: value / divisor for labels, value in found.items() if value is not None}


def increase(series: Series, time: float, range_s: float) -> float | None:
    """Return by how much a counter rose within a range, extrapolated to its ends; None for less than two samples."""
    samples = series.between(time - range_s, time)
    if len(samples) < 2:
        return None
    rise = sum(after - before if after >= before else after for (_, before), (_, after) in pairwise(samples))
    covered = samples[-1][0] - samples[0][0]
    mean = covered / (len(samples) - 1)
    to_start, to_end = samples[0][0] - (time - range_s), time - samples[-1][0]
    to_start = to_start if to_start < 1.1 * mean else mean / 2
    to_end = to_end if to_end < 1.1 * mean else mean / 2
    if rise > 0 and samples[0][1] >= 0:  # a counter is not extrapolated below 0
        to_start = min(to_start, covered * samples[0][1] / rise)
    return rise * (covered + to_start + to_end) / covered


def _quantiles(share: float, values: Vector) -> Vector:
    groups: dict[Labels, list[tuple[float, float]]] = {}
    for labels, value in values.items():
        key = tuple(pair for pair in labels if pair[0] != "le")
        groups.setdefault(key, []).append((float(dict(labels)["le"]), value))
    return {key: quantile(share, sorted(buckets)) for key, buckets in groups.items()}


def quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float:
    """Return the quantile of a histogram: upper bounds with cumulative counts, the last one infinite."""
    if not buckets or not math.isinf(buckets[-1][0]) or not buckets[-1][1]:
        return math.nan
    rank = share * buckets[-1][1]
    at = next(index for index, (_, count) in enumerate(buckets) if count >= rank)
    if at == len(buckets) - 1:
        return buckets[-2][0]
    below, upper = buckets[at - 1] if at else (0.0, 0.0), buckets[at]
    return below[0] + (upper[0] - below[0]) * (rank - below[1]) / (upper[1] - below[1])


def _combined(binary: Binary, left: Value, right: Value) -> Value:
    kind = binary.operator
    if kind in ("and", "or", "unless"):
        return _joined(binary, vector(left), vector(right))
    if binary.ignores_labels:
        raise ValueError("`on ()` is known for and, or and unless alone")
    if not isinstance(left, dict) and not isinstance(right, dict):
        raise ValueError("two numbers need no rule")
    pairs: dict[Labels, tuple[float, float]]
    if isinstance(left, dict) and isinstance(right, dict):
        pairs = {labels: (left[labels], right[labels]) for labels in left.keys() & right.keys()}
    elif isinstance(left, dict):
        pairs = {labels: (value, right) for labels, value in left.items()}  # type: ignore[misc]  # it is a number
    else:
        pairs = {labels: (left, value) for labels, value in right.items()}  # type: ignore[union-attr]  # it is none
    if kind in _COMPARISONS:
        is_kept = _COMPARISONS[kind]
        return {labels: one if isinstance(left, dict) else other for labels, (one, other) in pairs.items()
                if is_kept(one, other)}  # fmt: skip
    return {labels: _ARITHMETIC[kind](*pair) for labels, pair in pairs.items()}


def _joined(binary: Binary, left: Vector, right: Vector) -> Vector:
    def is_in(labels: Labels, other: Vector) -> bool:
        return bool(other) if binary.ignores_labels else labels in other

    if binary.operator == "or":
        return left | {labels: value for labels, value in right.items() if not is_in(labels, left)}
    wanted = binary.operator == "and"
    return {labels: value for labels, value in left.items() if is_in(labels, right) is wanted}
