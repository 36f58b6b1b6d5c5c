"""Filters of rows, and the orders in which rows are listed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.model.answers.agent_response import AgentStatus
    from assay.model.run import RowResult

MAX_VALUES = 200
"""Most values of one condition, and most conditions on texts, metrics and latencies together."""
MAX_TEXT_CHARS = 500
"""The most characters of a search text."""
MAX_NAME_CHARS = 1_000
"""The most characters of a category, tag or case id."""


class RowOutcome(StrEnum):
    """The outcome of a row; `undecided` if a deciding metric could not be computed or did not decide."""

    PASSED = "passed"
    FAILED = "failed"
    AGENT_ERROR = "agent_error"
    NO_VERDICT = "no_verdict"
    UNDECIDED = "undecided"


class Operator(StrEnum):
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
        operator: The operator; rows without a value meet only EQUAL None.
        value: The bound, finite; None stands for "no value" and needs EQUAL or NOT_EQUAL.
    """

    metric: str
    operator: Operator
    value: float | None


@dataclass(frozen=True, slots=True)
class LatencyCondition:
    """A condition on the agent's wall time.

    Args:
        operator: The operator; rows without a wall time meet only EQUAL None.
        latency_ms: The bound; None stands for "no wall time" and needs EQUAL or NOT_EQUAL.
    """

    operator: Operator
    latency_ms: float | None


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
        repeats: Repeats, from 1.
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


FAILING = (RowOutcome.FAILED, RowOutcome.AGENT_ERROR, RowOutcome.UNDECIDED)
"""The outcomes of rows that failed, or have no verdict because of an error."""
FAILING_ROWS = ",".join(FAILING)
"""The filter of these rows."""


def outcome_of(row: RowResult) -> RowOutcome:
    """Return the outcome of a row."""
    return outcome(row.passed, row.message, is_error=row.status.is_failed)


def outcome(passed: bool | None, message: str | None, *, is_error: bool) -> RowOutcome:
    """Return the outcome of a row; an agent error takes precedence over the verdicts of metrics.

    Args:
        passed: The row's verdict.
        message: Why the row did not pass. A row without a verdict has a message only if a deciding metric left it open.
        is_error: Whether the agent failed.
    """
    if is_error:
        return RowOutcome.AGENT_ERROR
    if passed is None:
        return RowOutcome.UNDECIDED if message else RowOutcome.NO_VERDICT
    return RowOutcome.PASSED if passed else RowOutcome.FAILED
