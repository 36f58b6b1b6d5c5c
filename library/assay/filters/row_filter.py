"""A filter of rows, and the order in which they are listed."""

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
    from assay.model.run import CaseResult

MAX_VALUES = 200
"""Most values of one condition, and most conditions on texts, metrics and latencies together."""
MAX_TEXT_CHARS = 500
"""Longest text that is searched for."""
MAX_NAME_CHARS = 1_000
"""Longest category, tag or case id."""
_MAX_REPEAT = 2**31 - 1


class RowOutcome(StrEnum):
    """What a row came to; exactly one of these."""

    PASSED = "passed"
    FAILED = "failed"
    AGENT_ERROR = "agent_error"
    NO_VERDICT = "no_verdict"


class Comparison(StrEnum):
    """How a number compares with a bound."""

    LESS = "<"
    LESS_OR_EQUAL = "<="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    EQUAL = "=="
    NOT_EQUAL = "!="


class TextField(StrEnum):
    """Where a text is searched for."""

    ANY = "text"
    QUESTION = "question"
    ANSWER = "answer"


class RowKey(StrEnum):
    """What rows are sorted by."""

    DATASET = "dataset"
    LATENCY = "latency"
    CASE = "case"
    METRIC = "metric"


@dataclass(frozen=True, slots=True)
class MetricCondition:
    """A condition on one metric's value.

    Args:
        metric: The metric.
        comparison: How the value compares; rows without a value meet only EQUAL None.
        value: The bound, finite; None compares with "no value", by EQUAL or NOT_EQUAL.
    """

    metric: str
    comparison: Comparison
    value: float | None


@dataclass(frozen=True, slots=True)
class LatencyCondition:
    """A condition on the wall time of the agent, in milliseconds; rows without one do not meet it."""

    comparison: Comparison
    latency_ms: float


@dataclass(frozen=True, slots=True)
class TextCondition:
    """A text that question or answer hold, in any turn; see `assay.filters.matching` for upper and lower case."""

    field: TextField
    text: str


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Conditions that all hold; of several values of one condition, any.

    Args:
        outcomes: What the row came to; none for any.
        categories: Its category; empty text for rows without one.
        tags: A tag that it has.
        case_ids: Its case.
        repeats: Which repeat, from 0.
        texts: Texts of question and answer; all of them.
        metrics: Values of metrics; all of them.
        latencies: The agent's wall time; all of them.
        statuses: The agent's own word about its answer.
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
    """What rows are sorted by; rows without a value come last, equal ones in dataset order.

    Args:
        key: What.
        metric: Which metric, where the key is METRIC; else empty.
        descending: Whether the largest come first.
    """

    key: RowKey = RowKey.DATASET
    metric: str = ""
    descending: bool = False


EVERY_ROW = RowFilter()
"""The filter without conditions."""
DATASET_ORDER = RowOrder()
"""The order of the dataset, and within a case by repeat."""


def outcome_of(row: CaseResult) -> RowOutcome:
    """Return what a row came to; an agent error first, interrupted or not, whatever metrics say of it."""
    if row.status.is_failed:
        return RowOutcome.AGENT_ERROR
    return {True: RowOutcome.PASSED, False: RowOutcome.FAILED, None: RowOutcome.NO_VERDICT}[row.passed]


def limit_problems(wanted: RowFilter) -> list[Problem]:
    """Return which limits a filter exceeds, and which of its values can be in no row; fields are those of a message."""
    return [*_count_problems(wanted), *_name_problems(wanted), *_bound_problems(wanted)]


def unknown_metrics(wanted: RowFilter, order: RowOrder, metrics: Collection[str]) -> list[Problem]:
    """Return a problem for each metric that filter and order name and a run with these metrics does not have."""
    named = {f"filter.metrics[{index}].metric": each.metric for index, each in enumerate(wanted.metrics)}
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
