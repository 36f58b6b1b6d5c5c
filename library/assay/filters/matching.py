"""The meaning of a row filter: whether a row meets it, in the database and in a report alike.

A search text matches regardless of case: each character matches itself and its lower-case and upper-case forms of one
character. Metric values are compared with the tolerance of thresholds, latencies exactly.
"""

from __future__ import annotations

import operator
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from assay.filters.row_filter import Operator, TextField, outcome_of
from assay.model.answers.agent_response import clean_text
from assay.statistics.thresholds import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from assay.filters.row_filter import LatencyCondition, MetricCondition, RowFilter, TextCondition
    from assay.model.run import RowResult

_EXACT: Mapping[Operator, Callable[[float, float], bool]] = {
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
}
_TOLERANT: Mapping[Operator, Callable[[float, float], bool]] = {
    Operator.LESS: lambda value, bound: value < bound - TOLERANCE,
    Operator.LESS_OR_EQUAL: lambda value, bound: value <= bound + TOLERANCE,
    Operator.GREATER: lambda value, bound: value > bound + TOLERANCE,
    Operator.GREATER_OR_EQUAL: lambda value, bound: value >= bound - TOLERANCE,
    Operator.EQUAL: lambda value, bound: bound - TOLERANCE <= value <= bound + TOLERANCE,
    Operator.NOT_EQUAL: lambda value, bound: not bound - TOLERANCE <= value <= bound + TOLERANCE,
}


def matches(wanted: RowFilter, row: RowResult) -> bool:
    """Return whether a row, with its answer, meets all conditions of a filter."""
    return (
        (not wanted.outcomes or outcome_of(row) in wanted.outcomes)
        and (not wanted.statuses or row.status in wanted.statuses)
        and (not wanted.categories or row.category in map(clean_text, wanted.categories))
        and (not wanted.tags or not set(row.tags).isdisjoint(map(clean_text, wanted.tags)))
        and (not wanted.case_ids or row.case_id in map(clean_text, wanted.case_ids))
        and (not wanted.repeats or row.repeat in wanted.repeats)
        and all(_has_latency(row, condition) for condition in wanted.latencies)
        and all(meets(metric_value(row, condition.metric), condition) for condition in wanted.metrics)
        and all(_has_text(row, condition) for condition in wanted.texts)
    )


def metric_value(row: RowResult, metric: str) -> float | None:
    """Return a metric's value of a row, or None."""
    return next((score.value for score in row.scores if score.metric == metric), None)


def meets(value: float | None, wanted: MetricCondition) -> bool:
    """Return whether the value of a metric, or None, meets a condition."""
    if wanted.value is None:
        return (value is None) is (wanted.operator is Operator.EQUAL)
    return value is not None and _TOLERANT[wanted.operator](value, wanted.value)


def case_variants(char: str) -> str:
    """Return the characters that a character of a search text matches, itself first."""
    others = {form for form in (char.lower(), char.upper()) if len(form) == 1 and form != char}
    return char + "".join(sorted(others))


def _has_latency(row: RowResult, wanted: LatencyCondition) -> bool:
    if wanted.latency_ms is None:
        return (row.latency_ms is None) is (wanted.operator is Operator.EQUAL)
    return row.latency_ms is not None and _EXACT[wanted.operator](row.latency_ms, wanted.latency_ms)


def _has_text(row: RowResult, wanted: TextCondition) -> bool:
    pattern = _pattern(clean_text(wanted.text))
    return any(pattern.search(text) for text in _texts(row, wanted.field))


def _texts(row: RowResult, field: TextField) -> Iterator[str]:
    if field is not TextField.ANSWER:
        yield from (turn.input for turn in row.turns) if row.turns else (row.input,)
    if field is not TextField.QUESTION:
        responses = (turn.response for turn in row.turns) if row.turns else (row.response,)
        yield from (response.text for response in responses if response is not None)


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile("".join(f"[{''.join(map(re.escape, case_variants(char)))}]" for char in text))
