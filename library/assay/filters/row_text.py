"""Filters and orders of rows as text, e.g. `failed category:refunds judge_score<0.5` and `-latency`.

words              outcomes: passed, failed, agent_error, no_verdict
status:NAME,...    the agent's own word: success, out_of_scope, error, interrupted
category:NAME,...  category of the case; tag, case, outcome and repeat likewise
text~TEXT          found in question or answer; question and answer likewise
latency>2s         wall time of the agent, with ms, s, m or h; seconds without a unit
METRIC<0.5         value of a metric; METRIC==none and METRIC!=none for rows without and with a value
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem
from assay.filters.conditions import ConditionProblems, listed, quoted, read_conditions
from assay.filters.row_filter import (
    DATASET_ORDER,
    EVERY_ROW,
    Comparison,
    LatencyCondition,
    MetricCondition,
    RowFilter,
    RowKey,
    RowOrder,
    RowOutcome,
    TextCondition,
    TextField,
    limit_problems,
)
from assay.model.answers.agent_response import AgentStatus
from assay.parsing.names import metric_name_problem, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.filters.conditions import Condition

NONE = "none"

_LISTS = ("outcome", "category", "tag", "case", "repeat", "status")
_LATENCY = "latency"
_TEXTS = tuple(field.value for field in TextField)
_KEYS = (*_LISTS, *_TEXTS, _LATENCY)
_OUTCOMES = {outcome.value: outcome for outcome in RowOutcome}
_STATUSES = {status.value: status for status in AgentStatus}
_COMPARISONS = {comparison.value: comparison for comparison in Comparison}
_SORT_KEYS = (RowKey.DATASET, RowKey.LATENCY, RowKey.CASE)
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_DURATION = re.compile(rf"({_NUMBER.pattern})(ms|s|m|h)?")
_UNITS_MS = {"ms": 1.0, "s": 1000.0, None: 1000.0, "m": 60_000.0, "h": 3_600_000.0}
_REPEAT = re.compile(r"[0-9]{1,9}")


def parse_row_filter(text: str, *, where: str = "") -> RowFilter:
    """Return the filter that a text describes; an empty text selects all rows.

    Args:
        text: As described in docs/filters.md.
        where: The user's name for the text, e.g. "--where".

    Raises:
        InvalidInputError: The text is no filter; holds every problem with its position.
    """
    problems = ConditionProblems(where)
    builder = _Builder(problems)
    for condition in read_conditions(text, problems):
        builder.add(condition)
    problems.raise_any()
    wanted = builder.filter()
    if refused := limit_problems(wanted):
        raise InvalidInputError(
            [Problem(f"{problem.field.removeprefix('filter.')} {problem.message}", where) for problem in refused]
        )
    return wanted


def format_row_filter(wanted: RowFilter) -> str:
    """Return the text from which `parse_row_filter` restores a filter."""
    parts = [",".join(wanted.outcomes)] if wanted.outcomes else []
    parts += [f"status:{','.join(wanted.statuses)}"] if wanted.statuses else []
    lists = {"category": wanted.categories, "tag": wanted.tags, "case": wanted.case_ids}
    parts += [f"{name}:{listed(values)}" for name, values in lists.items() if values]
    if wanted.repeats:
        parts.append(f"repeat:{','.join(map(str, wanted.repeats))}")
    parts += [f"{condition.field}~{quoted(condition.text)}" for condition in wanted.texts]
    parts += [
        f"{condition.metric}{condition.comparison}{_number_text(condition.value)}" for condition in wanted.metrics
    ]
    parts += [
        f"{_LATENCY}{condition.comparison}{_number_text(condition.latency_ms)}ms" for condition in wanted.latencies
    ]
    return " ".join(parts)


def parse_row_order(text: str, *, where: str = "") -> RowOrder:
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
    return RowOrder(RowKey.METRIC, name, descending)


def format_row_order(order: RowOrder) -> str:
    """Return the text from which `parse_row_order` restores an order."""
    name = order.metric if order.key is RowKey.METRIC else order.key.value
    return f"-{name}" if order.descending else name


def parse_row_query(where: str, order_by: str, *, names: tuple[str, str]) -> tuple[RowFilter, RowOrder]:
    """Return the filter and the order that two texts describe; `names` are the user's names for the texts.

    Raises:
        InvalidInputError: One of them, or both, is wrong; holds every problem.
    """
    wanted, order, problems = EVERY_ROW, DATASET_ORDER, list[Problem]()
    try:
        wanted = parse_row_filter(where, where=names[0])
    except InvalidInputError as refusal:
        problems += refusal.problems
    try:
        order = parse_row_order(order_by, where=names[1])
    except InvalidInputError as refusal:
        problems += refusal.problems
    if problems:
        raise InvalidInputError(problems)
    return wanted, order


class _Builder:
    """Combines conditions into a filter."""

    def __init__(self, problems: ConditionProblems) -> None:
        self._problems = problems
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
        if not condition.operator:
            self._add_list(condition, "outcome", self._check_word)
        elif condition.operator == ":":
            self._add_named_list(condition)
        elif condition.operator == "~":
            self._add_text(condition)
        else:
            self._add_comparison(condition)

    def _wrong(self, condition: Condition, message: str) -> None:
        self._problems.add(condition.position, message)

    def _add_named_list(self, condition: Condition) -> None:
        name = condition.name
        if name in _LISTS:
            self._add_list(condition, name, _CHECKS.get(name, _no_problem))
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
        else:
            self._texts.append(TextCondition(TextField(condition.name), condition.values[0]))

    def _add_comparison(self, condition: Condition) -> None:
        name, value = condition.name, condition.values[0]
        comparison = _COMPARISONS[condition.operator]
        if len(condition.values) > 1:
            self._wrong(condition, f"{name}{comparison} takes one number")
        elif name in (*_LISTS, *_TEXTS):
            sign = ":" if name in _LISTS else "~"
            self._wrong(condition, f"{name} is not compared: write {name}{sign}VALUE")
        elif name == _LATENCY:
            self._add_latency(condition, comparison, value)
        elif problem := metric_name_problem(name):
            self._wrong(condition, problem)
        elif value == NONE and comparison in (Comparison.EQUAL, Comparison.NOT_EQUAL):
            self._metrics.append(MetricCondition(name, comparison, None))
        else:
            number = _read_number(value)
            if math.isfinite(number):
                self._metrics.append(MetricCondition(name, comparison, number))
            else:
                self._wrong(condition, f"{value[:60]!r} is no finite number, and only == and != compare with none")

    def _add_latency(self, condition: Condition, comparison: Comparison, value: str) -> None:
        match = _DURATION.fullmatch(value)
        latency_ms = float(match[1]) * _UNITS_MS[match[2]] if match is not None else math.nan
        if math.isfinite(latency_ms) and latency_ms >= 0:
            self._latencies.append(LatencyCondition(comparison, latency_ms))
        else:
            self._wrong(condition, f"{value[:60]!r} is no duration: write a number with ms, s, m or h, such as 500ms")


def _no_problem(value: str) -> str:
    return ""


def _outcome_problem(value: str) -> str:
    return "" if value in _OUTCOMES else unknown_name("outcome", value, _OUTCOMES)


def _status_problem(value: str) -> str:
    return "" if value in _STATUSES else unknown_name("status", value, _STATUSES)


def _repeat_problem(value: str) -> str:
    return "" if _REPEAT.fullmatch(value) else f"{value[:60]!r} is no repeat: write its number, from 0"


_CHECKS = {"outcome": _outcome_problem, "repeat": _repeat_problem, "status": _status_problem}


def _read_number(text: str) -> float:
    return float(text) if _NUMBER.fullmatch(text) else math.nan


def _number_text(value: float | None) -> str:
    return NONE if value is None else repr(float(value)).removesuffix(".0")
