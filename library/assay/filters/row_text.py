"""Filters and orders of rows as text, e.g. `failed category:refunds judge_score<0.5` and `-latency`.

words              outcomes: passed, failed, agent_error, no_verdict, undecided
status:NAME,...    the agent's own word: success, out_of_scope, error, interrupted
category:NAME,...  category of the case; tag, case, outcome and repeat likewise
text~TEXT          found in question or answer; question and answer likewise
latency>2s         wall time of the agent, with ms, s, m or h; seconds without a unit
METRIC<0.5         value of a metric; METRIC==none and METRIC!=none for rows without and with a value
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem
from assay.filters.conditions import (
    ConditionProblems,
    duration_problem,
    number_problem,
    parse_both,
    read_conditions,
    read_duration_ms,
    read_number,
)
from assay.filters.row_filter import (
    DATASET_ORDER,
    MAX_NAME_CHARS,
    MAX_TEXT_CHARS,
    MAX_VALUES,
    LatencyCondition,
    MetricCondition,
    Operator,
    RowFilter,
    RowKey,
    RowOrder,
    RowOutcome,
    TextCondition,
    TextField,
)
from assay.model.answers.agent_response import AgentStatus
from assay.parsing.names import metric_name_problem, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from assay.filters.conditions import Condition

NONE = "none"

_LISTS = ("outcome", "category", "tag", "case", "repeat", "status")
_LATENCY = "latency"
_TEXTS = tuple(field.value for field in TextField)
_KEYS = (*_LISTS, *_TEXTS, _LATENCY)
_OUTCOMES = {outcome.value: outcome for outcome in RowOutcome}
_STATUSES = {status.value: status for status in AgentStatus}
_SORT_KEYS = (RowKey.DATASET, RowKey.LATENCY, RowKey.CASE)
_REPEAT = re.compile(r"[1-9][0-9]{0,8}")


def parse_row_filter(text: str, *, where: str = "", metrics: Collection[str] | None = None) -> RowFilter:
    """Return the filter that a text describes; an empty text selects all rows.

    Args:
        text: As described in docs/filters.md.
        where: The user's name for the text, e.g. "--where".
        metrics: The metrics of the run; None accepts any.

    Raises:
        InvalidInputError: The text is no filter; holds every problem with its position.
    """
    problems = ConditionProblems(where)
    builder = _Builder(problems, metrics)
    for condition in read_conditions(text, problems):
        builder.add(condition)
    problems.raise_any()
    return builder.filter()


def parse_row_order(text: str, *, where: str = "", metrics: Collection[str] | None = None) -> RowOrder:
    """Return the order that a text names: dataset, latency, case or a metric; a leading "-" puts the largest first.

    Raises:
        InvalidInputError: The text is no order.
    """
    name = text.strip()
    descending = name.startswith("-")
    name = name.removeprefix("-")
    if not name and not descending:
        return DATASET_ORDER
    if name in _SORT_KEYS:
        return RowOrder(RowKey(name), descending=descending)
    if metric_name_problem(name):
        message = f"{text[:60]!r} is no order: write latency, case, dataset or a metric, behind - for the largest first"
        raise InvalidInputError([Problem(message, where)])
    if metrics is not None and name not in metrics:
        raise InvalidInputError([Problem(_unknown_metric(name, metrics), where)])
    return RowOrder(RowKey.METRIC, name, descending)


def is_comparable(metric: str) -> bool:
    """Return whether filters compare values of a metric: no other condition has its name."""
    return metric not in (*_LISTS, *_TEXTS)


def parse_row_query(
    where: str, order_by: str, *, names: tuple[str, str], metrics: Collection[str] | None = None
) -> tuple[RowFilter, RowOrder]:
    """Return the filter and the order that two texts describe.

    Args:
        where: The filter.
        order_by: The order.
        names: The user's names for both texts.
        metrics: The metrics of the run; None accepts any.

    Raises:
        InvalidInputError: One of the texts, or both, is wrong; holds every problem.
    """
    return parse_both(
        lambda: parse_row_filter(where, where=names[0], metrics=metrics),
        lambda: parse_row_order(order_by, where=names[1], metrics=metrics),
    )


class _Builder:
    """Combines conditions into a filter."""

    def __init__(self, problems: ConditionProblems, metrics: Collection[str] | None) -> None:
        self._problems = problems
        self._known_metrics = metrics
        self._lists: dict[str, tuple[str, ...]] = {}
        self._texts: list[TextCondition] = []
        self._metrics: list[MetricCondition] = []
        self._latencies: list[LatencyCondition] = []

    def filter(self) -> RowFilter:
        return RowFilter(
            outcomes=tuple(_OUTCOMES[word] for word in self._lists.get("outcome", ())),
            categories=self._lists.get("category", ()),
            tags=self._lists.get("tag", ()),
            case_ids=self._lists.get("case", ()),
            repeats=tuple(map(int, self._lists.get("repeat", ()))),
            texts=tuple(self._texts),
            metrics=tuple(self._metrics),
            latencies=tuple(self._latencies),
            statuses=tuple(_STATUSES[value] for value in self._lists.get("status", ())),
        )

    def add(self, condition: Condition) -> None:
        if len(condition.values) > MAX_VALUES:
            self._wrong(condition, f"has {len(condition.values)} values, more than {MAX_VALUES}")
        elif not condition.operator:
            self._add_list(condition, "outcome", self._check_word)
        elif condition.operator == ":":
            self._add_named_list(condition)
        elif len(self._texts) + len(self._metrics) + len(self._latencies) == MAX_VALUES:
            self._wrong(condition, f"is one more than the {MAX_VALUES} conditions on texts, metrics and latencies")
        elif condition.operator == "~":
            self._add_text(condition)
        else:
            self._add_comparison(condition)

    def _wrong(self, condition: Condition, message: str) -> None:
        self._problems.add(condition.position, message)

    def _add_named_list(self, condition: Condition) -> None:
        name = condition.name
        if name in _LISTS:
            self._add_list(condition, name, _CHECKS.get(name, _name_problem))
        elif name in _TEXTS:
            self._wrong(condition, f"write {name}~TEXT: {name} is searched for a text")
        elif name == _LATENCY:
            self._wrong(condition, "write latency>2s or latency<=500ms: latency is compared")
        else:
            known = unknown_name("condition", name, _KEYS)
            self._wrong(condition, f"{known}; a metric is compared, as in {name[:60]}<0.5")

    def _add_list(self, condition: Condition, name: str, check: Callable[[str], str]) -> None:
        problems = list(filter(None, map(check, condition.values)))
        for problem in problems:
            self._wrong(condition, problem)
        if not problems and name in self._lists:
            self._wrong(condition, f"{name} is given twice: write all values behind one, with commas, to accept any")
        self._lists.setdefault(name, () if problems else condition.values)

    def _check_word(self, word: str) -> str:
        if word in _OUTCOMES:
            return ""
        if word in _STATUSES:
            return f"{word} is a status: write status:{word}"
        if word in ("or", "not"):
            return f"there is no {word}: write alternatives of one condition with commas, as in failed,agent_error"
        if word in _LISTS:
            return f"{word} needs a value: {word}:NAME"
        if word in _TEXTS:
            return f"{word} needs a text: {word}~TEXT"
        return f"{unknown_name('word', word, _OUTCOMES)}; a metric needs a comparison, as in judge_score<0.5"

    def _add_text(self, condition: Condition) -> None:
        if condition.name not in _TEXTS:
            self._wrong(condition, f"{unknown_name('text', condition.name, _TEXTS)}: only these are searched")
        elif len(condition.values) > 1:
            self._wrong(condition, f"{condition.name}~ takes one text: put one with a comma into quotation marks")
        elif not 1 <= len(condition.values[0]) <= MAX_TEXT_CHARS:
            count = len(condition.values[0])
            self._wrong(condition, f"{condition.name}~ takes a text of 1 to {MAX_TEXT_CHARS} characters, not {count}")
        else:
            self._texts.append(TextCondition(TextField(condition.name), condition.values[0]))

    def _add_comparison(self, condition: Condition) -> None:
        name, value = condition.name, condition.values[0]
        operator = Operator(condition.operator)
        if len(condition.values) > 1:
            self._wrong(condition, f"{name}{operator} takes one number")
        elif name in (*_LISTS, *_TEXTS):
            sign = ":" if name in _LISTS else "~"
            self._wrong(condition, f"{name} is not compared: write {name}{sign}VALUE")
        elif name == _LATENCY:
            self._add_latency(condition, operator, value)
        elif problem := metric_name_problem(name):
            self._wrong(condition, problem)
        else:
            self._add_metric(condition, name, operator, value)

    def _add_metric(self, condition: Condition, name: str, operator: Operator, value: str) -> None:
        if self._known_metrics is not None and name not in self._known_metrics:
            self._wrong(condition, _unknown_metric(name, self._known_metrics))
        number = read_number(value)
        if number is None and not _is_none(value, operator):
            self._wrong(condition, number_problem(value))
        self._metrics.append(MetricCondition(name, operator, number))

    def _add_latency(self, condition: Condition, operator: Operator, value: str) -> None:
        latency_ms = read_duration_ms(value)
        if latency_ms is None and not _is_none(value, operator):
            self._wrong(condition, duration_problem(value))
        self._latencies.append(LatencyCondition(operator, latency_ms))


def _is_none(value: str, operator: Operator) -> bool:
    return value == NONE and operator in (Operator.EQUAL, Operator.NOT_EQUAL)


def _unknown_metric(name: str, metrics: Collection[str]) -> str:
    return f"{unknown_name('metric', name, metrics)} (metrics of this run: {', '.join(metrics)})"


def _name_problem(value: str) -> str:
    return f"has {len(value)} characters, more than {MAX_NAME_CHARS}" if len(value) > MAX_NAME_CHARS else ""


def _outcome_problem(value: str) -> str:
    return "" if value in _OUTCOMES else unknown_name("outcome", value, _OUTCOMES)


def _status_problem(value: str) -> str:
    return "" if value in _STATUSES else unknown_name("status", value, _STATUSES)


def _repeat_problem(value: str) -> str:
    return "" if _REPEAT.fullmatch(value) else f"{value[:60]!r} is no repeat: write its number, from 1"


_CHECKS = {"outcome": _outcome_problem, "repeat": _repeat_problem, "status": _status_problem}
