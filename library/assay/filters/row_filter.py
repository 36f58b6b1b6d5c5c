"""Filters of rows, and the orders in which rows are listed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from assay.errors import Problem
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from assay.model.answers.agent_response import AgentStatus
    from assay.model.run import RowResult

MAX_VALUES = 200
"""Most values of one condition, and most conditions on texts, metrics and latencies together."""
MAX_TEXT_CHARS = 500
"""The most characters of a search text."""
MAX_NAME_CHARS = 1_000
"""The most characters of a category, tag or case id."""
_MAX_REPEAT = 2**31 - 1


class RowOutcome(StrEnum):
    """The outcome of a row."""

    PASSED = "passed"
    FAILED = "failed"
    AGENT_ERROR = "agent_error"
    NO_VERDICT = "no_verdict"


class Comparison(StrEnum):
    """The comparison of a number with a bound."""

    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    EQUAL = "=="
    NOT_EQUAL = "!="


class TextField(StrEnum):
    """The texts of a row that are searched."""

    ANY = "text"
    QUESTION = "question"
    ANSWER = "answer"


class RowKey(StrEnum):
    """The key that rows are sorted by."""

    DATASET = "dataset"
    LATENCY = "latency"
    CASE = "case"
    METRIC = "metric"


@dataclass(frozen=True, slots=True)
class MetricCondition:
    """A condition on one metric's value.

    Args:
        metric: The metric.
        comparison: The comparison; rows without a value meet only EQUAL None.
        value: The bound, finite; None stands for "no value" and needs EQUAL or NOT_EQUAL.
    """

    metric: str
    comparison: Comparison
    value: float | None


@dataclass(frozen=True, slots=True)
class LatencyCondition:
    """A condition on the agent's wall time in milliseconds; rows without a wall time do not meet it."""

    comparison: Comparison
    latency_ms: float


@dataclass(frozen=True, slots=True)
class TextCondition:
    """A text that a question or an answer contains, in any turn, regardless of case (`assay.filters.matching`)."""

    field: TextField
    text: str


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Conditions that a row must meet, all of them; any of several values meets a condition.

    Args:
        outcomes: Outcomes of the row; empty for any.
        categories: Categories; the empty text stands for rows without a category.
        tags: Tags.
        case_ids: Cases.
        repeats: Repeats, from 0.
        texts: Texts of question and answer; all must occur.
        metrics: Conditions on metric values; all must hold.
        latencies: Conditions on the agent's wall time; all must hold.
        statuses: The status that the agent reports.
    """

    outcomes: tuple[RowOutcome, ...] = ()
    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    case_ids: tuple[str, ...] = ()
    repeats: tuple[int, ...] = ()
    texts: tuple[TextCondition, ...] = ()
    metrics: tuple[MetricCondition, ...] = ()
    latencies: tuple[LatencyCondition, ...] = ()
    statuses: tuple[AgentStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The order of rows; rows without a value come last, equal rows in dataset order.

    Args:
        key: The sort key.
        metric: The metric if the key is METRIC; else empty.
        descending: Whether the largest values come first.
    """

    key: RowKey = RowKey.DATASET
    metric: str = ""
    descending: bool = False


EVERY_ROW = RowFilter()
"""The filter without conditions."""
DATASET_ORDER = RowOrder()
"""The order of the dataset; within a case, that of the repeats."""


def outcome_of(row: RowResult) -> RowOutcome:
    """Return the outcome of a row; an agent error takes precedence over the verdicts of metrics."""
    if row.status.is_failed:
        return RowOutcome.AGENT_ERROR
    return {True: RowOutcome.PASSED, False: RowOutcome.FAILED, None: RowOutcome.NO_VERDICT}[row.passed]


def limit_problems(wanted: RowFilter) -> list[Problem]:
    """Return the limits that a filter exceeds and the values that no row can have; fields are those of the message."""
    return [*_count_problems(wanted), *_name_problems(wanted), *_bound_problems(wanted)]


def unknown_metrics(wanted: RowFilter, order: RowOrder, metrics: Collection[str]) -> list[Problem]:
    """Return a problem for each metric in a filter or an order that a run with these metrics lacks."""
    named = {f"filter.metrics[{index}].metric": condition.metric for index, condition in enumerate(wanted.metrics)}
    if order.key is RowKey.METRIC:
        named["order_by.metric"] = order.metric
    return [
        Problem(f"{unknown_name('metric', name, metrics)} (metrics of this run: {', '.join(metrics)})", field)
        for field, name in named.items()
        if name not in metrics
    ]


def _count_problems(wanted: RowFilter) -> Iterator[Problem]:
    lists = {
        "outcomes": wanted.outcomes,
        "categories": wanted.categories,
        "tags": wanted.tags,
        "case_ids": wanted.case_ids,
        "repeats": wanted.repeats,
        "statuses": wanted.statuses,
    }
    for name, values in lists.items():
        if len(values) > MAX_VALUES:
            yield Problem(f"has {len(values)} values, more than {MAX_VALUES}", f"filter.{name}")
    count = len(wanted.texts) + len(wanted.metrics) + len(wanted.latencies)
    if count > MAX_VALUES:
        yield Problem(f"has {count} conditions on texts, metrics and latencies, more than {MAX_VALUES}", "filter")


def _name_problems(wanted: RowFilter) -> Iterator[Problem]:
    names = {"categories": wanted.categories, "tags": wanted.tags, "case_ids": wanted.case_ids}
    for name, values in names.items():
        for index, value in enumerate(values):
            if len(value) > MAX_NAME_CHARS:
                problem = f"has {len(value)} characters, more than {MAX_NAME_CHARS}"
                yield Problem(problem, f"filter.{name}[{index}]")
    for index, repeat in enumerate(wanted.repeats):
        if not 0 <= repeat <= _MAX_REPEAT:
            yield Problem("must be the number of a repeat, from 0", f"filter.repeats[{index}]")
    for index, text in enumerate(wanted.texts):
        if not 1 <= len(text.text) <= MAX_TEXT_CHARS:
            problem = f"must have 1 to {MAX_TEXT_CHARS} characters, not {len(text.text)}"
            yield Problem(problem, f"filter.texts[{index}].text")


def _bound_problems(wanted: RowFilter) -> Iterator[Problem]:
    for index, metric in enumerate(wanted.metrics):
        if metric.value is None and metric.comparison not in (Comparison.EQUAL, Comparison.NOT_EQUAL):
            yield Problem("without a value only == and != compare", f"filter.metrics[{index}].comparison")
        if metric.value is not None and not math.isfinite(metric.value):
            yield Problem("must be a finite number", f"filter.metrics[{index}].value")
    for index, latency in enumerate(wanted.latencies):
        if not (math.isfinite(latency.latency_ms) and latency.latency_ms >= 0):
            yield Problem("must be a finite number, at least 0", f"filter.latencies[{index}].latency_ms")
