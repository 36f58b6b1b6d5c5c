"""Whether a row meets a filter, and where it stands in an order: what the database and the report do likewise.

A text is found where each of its characters stands for itself or for its lower-case or upper-case form, where that is
one character. Values of metrics compare with the tolerance of thresholds, latencies exactly.
"""

from __future__ import annotations

import operator
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from assay.filters.row_filter import Comparison, RowKey, TextField, outcome_of
from assay.model.agent_response import clean_text
from assay.statistics.thresholds import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from assay.filters.row_filter import LatencyCondition, MetricCondition, RowFilter, RowOrder, TextCondition
    from assay.model.run import CaseResult

_EXACT: Mapping[Comparison, Callable[[float, float], bool]] = {
    Comparison.LESS: operator.lt,
    Comparison.LESS_OR_EQUAL: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.GREATER_OR_EQUAL: operator.ge,
    Comparison.EQUAL: operator.eq,
    Comparison.NOT_EQUAL: operator.ne,
}
_TOLERANT: Mapping[Comparison, Callable[[float, float], bool]] = {
    Comparison.LESS: lambda value, bound: value < bound - TOLERANCE,
    Comparison.LESS_OR_EQUAL: lambda value, bound: value <= bound + TOLERANCE,
    Comparison.GREATER: lambda value, bound: value > bound + TOLERANCE,
    Comparison.GREATER_OR_EQUAL: lambda value, bound: value >= bound - TOLERANCE,
    Comparison.EQUAL: lambda value, bound: bound - TOLERANCE <= value <= bound + TOLERANCE,
    Comparison.NOT_EQUAL: lambda value, bound: not bound - TOLERANCE <= value <= bound + TOLERANCE,
}


def matches(wanted: RowFilter, row: CaseResult) -> bool:
    """Return whether a row, with its answer, meets all conditions of a filter."""
    return (
        (not wanted.outcomes or outcome_of(row) in wanted.outcomes)
        and (not wanted.statuses or row.status in wanted.statuses)
        and (not wanted.categories or row.category in map(clean_text, wanted.categories))
        and (not wanted.tags or not set(row.tags).isdisjoint(map(clean_text, wanted.tags)))
        and (not wanted.case_ids or row.case_id in map(clean_text, wanted.case_ids))
        and (not wanted.repeats or row.repeat_index in wanted.repeats)
        and all(_has_latency(row, each) for each in wanted.latencies)
        and all(_has_value(row, each) for each in wanted.metrics)
        and all(_has_text(row, each) for each in wanted.texts)
    )


def sort_rows(rows: Iterable[CaseResult], order: RowOrder) -> list[CaseResult]:
    """Return rows in an order: those without a value last, equal ones in dataset order."""
    placed = sorted(rows, key=lambda row: (row.case_index, row.repeat_index))
    if order.key is RowKey.DATASET:
        placed.sort(key=lambda row: -row.case_index if order.descending else row.case_index)
        return placed
    with_value = [row for row in placed if sort_value(row, order) is not None]
    with_value.sort(key=lambda row: sort_value(row, order), reverse=order.descending)  # type: ignore[arg-type,return-value]  # none is None
    return with_value + [row for row in placed if sort_value(row, order) is None]


def sort_value(row: CaseResult, order: RowOrder) -> float | str | None:
    """Return what a row is sorted by, in an order other than the dataset's; None where it has no value."""
    if order.key is RowKey.CASE:
        return row.case_id
    return row.latency_ms if order.key is RowKey.LATENCY else metric_value(row, order.metric)


def metric_value(row: CaseResult, metric: str) -> float | None:
    """Return a metric's value of a row, or None."""
    return next((score.value for score in row.scores if score.metric == metric), None)


def case_variants(char: str) -> str:
    """Return the characters that a character of a searched text stands for, itself first."""
    others = {form for form in (char.lower(), char.upper()) if len(form) == 1 and form != char}
    return char + "".join(sorted(others))


def _has_latency(row: CaseResult, wanted: LatencyCondition) -> bool:
    return row.latency_ms is not None and _EXACT[wanted.comparison](row.latency_ms, wanted.latency_ms)


def _has_value(row: CaseResult, wanted: MetricCondition) -> bool:
    value = metric_value(row, wanted.metric)
    if wanted.value is None:
        return (value is None) is (wanted.comparison is Comparison.EQUAL)
    return value is not None and _TOLERANT[wanted.comparison](value, wanted.value)


def _has_text(row: CaseResult, wanted: TextCondition) -> bool:
    pattern = _pattern(clean_text(wanted.text))
    return any(pattern.search(text) for text in _texts(row, wanted.field))


def _texts(row: CaseResult, field: TextField) -> Iterator[str]:
    if field is not TextField.ANSWER:
        yield from (turn.input for turn in row.turns) if row.turns else (row.input,)
    if field is not TextField.QUESTION:
        responses = (turn.response for turn in row.turns) if row.turns else (row.response,)
        yield from (response.text for response in responses if response is not None)


@lru_cache(maxsize=256)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile("".join(f"[{''.join(map(re.escape, case_variants(char)))}]" for char in text))
