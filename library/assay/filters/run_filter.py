"""Filters and orders of runs, as objects and as text.

name:NAME  team:NAME,...  dataset:NAME,...  state:failed,paused  label:KEY=VALUE  group:ID  run:PREFIX
since:2026-11-01  until:2026-12-01  verdict:FAIL,...  pass_rate<0.8  exact_match>=0.9  latency.p95<4s
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem
from assay.filters.conditions import (
    ConditionProblems,
    duration_problem,
    is_name,
    listed,
    number_problem,
    parse_both,
    quoted,
    read_conditions,
    read_duration_ms,
    read_number,
)
from assay.filters.row_filter import MAX_VALUES, MetricCondition, Operator
from assay.model.run import RunState, RunVerdict
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from assay.filters.conditions import Condition


_KEYS = ("name", "state", "label", "team", "dataset", "group", "run", "since", "until", "verdict")
_SINGLE = ("name", "label", "group", "run", "since", "until")
_VERDICTS = tuple(verdict.value for verdict in RunVerdict)
_STATES = {state.value: state for state in RunState}
_LATENCY = "latency"
_NONE = "none"


class RunKey(StrEnum):
    """The key that runs are sorted by."""

    CREATED = "created"
    ENDED = "ended"
    NAME = "name"
    FIGURE = "figure"


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Conditions that a run must meet, all of them; any of several values meets a condition.

    Args:
        run_id_prefix: The beginning of its id.
        name: Its name; empty for any.
        labels: Its labels, at least these.
        states: Its states; empty for any.
        datasets: Names or ids of its dataset; empty for any.
        teams: Teams of its spec; empty for any.
        group_id: Its group of variants; empty for any.
        created_from: The earliest time of its acceptance, ISO 8601 in UTC; empty for any.
        created_before: The time before which it was accepted, likewise.
        verdicts: Its verdicts; empty for any.
        figures: Conditions on its figures, latencies in seconds; all must hold.
    """

    run_id_prefix: str = ""
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    states: frozenset[RunState] = frozenset()
    datasets: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    group_id: str = ""
    created_from: str = ""
    created_before: str = ""
    verdicts: tuple[str, ...] = ()
    figures: tuple[MetricCondition, ...] = ()


@dataclass(frozen=True, slots=True)
class RunOrder:
    """The order of runs; runs without a value come last, equal runs newest first.

    Args:
        key: The sort key.
        figure: The figure if the key is FIGURE; else empty.
        descending: Whether the largest value comes first.
    """

    key: RunKey = RunKey.CREATED
    figure: str = ""
    descending: bool = True


EVERY_RUN = RunFilter()
"""The filter without conditions."""
NEWEST_FIRST = RunOrder()
"""The newest runs first."""


def parse_run_filter(text: str, *, where: str = "") -> RunFilter:
    """Return the filter that a text describes; an empty text selects all runs.

    Args:
        text: As described in docs/filters.md.
        where: The user's name for the text, e.g. "--where".

    Raises:
        InvalidInputError: The text is no filter; holds every problem with its position.
    """
    problems = ConditionProblems(where)
    values: dict[str, tuple[str, ...]] = {}
    labels: dict[str, str] = {}
    figures: list[MetricCondition] = []
    for condition in read_conditions(text, problems):
        if condition.operator not in ("", ":", "~"):
            figures.append(_figure_condition(condition, problems))
        elif problem := _condition_problem(condition, values, labels):
            problems.add(condition.position, problem)
        elif condition.name == "label":
            key, _, value = condition.values[0].partition("=")
            labels[key] = value
        else:
            values[condition.name] = condition.values
    if len(figures) > MAX_VALUES:
        problems.add(1, f"the filter has {len(figures)} conditions on figures, more than {MAX_VALUES}")
    problems.raise_any()
    return RunFilter(
        run_id_prefix=values.get("run", ("",))[0],
        name=values.get("name", ("",))[0],
        labels=labels,
        states=frozenset(_STATES[state] for state in values.get("state", ())),
        datasets=values.get("dataset", ()),
        teams=values.get("team", ()),
        group_id=values.get("group", ("",))[0],
        created_from=_moment(values["since"][0]) if "since" in values else "",
        created_before=_moment(values["until"][0]) if "until" in values else "",
        verdicts=values.get("verdict", ()),
        figures=tuple(figures),
    )


def parse_run_order(text: str, *, where: str = "") -> RunOrder:
    """Return the order that a text names; a leading "-" puts the largest first.

    Args:
        text: created, ended, name, pass_rate, a metric, or another figure such as latency.p95; empty for -created.
        where: The user's name for the text, e.g. "--sort".

    Raises:
        InvalidInputError: The text is no order.
    """
    name = text.strip()
    if not name:
        return RunOrder()
    descending = name.startswith("-")
    key = name.removeprefix("-")
    if key in (RunKey.CREATED, RunKey.ENDED, RunKey.NAME):
        return RunOrder(RunKey(key), descending=descending)
    if not is_name(key):
        known = "created, ended, name, pass_rate or a metric"
        message = f"{text[:60]!r} is no order: write {known}, behind - for the largest first"
        raise InvalidInputError([Problem(message, where)])
    return RunOrder(RunKey.FIGURE, key, descending)


def parse_run_query(where: str, order_by: str, *, names: tuple[str, str]) -> tuple[RunFilter, RunOrder]:
    """Return the filter and the order that two texts describe; `names` are the user's names for the texts.

    Raises:
        InvalidInputError: One of the texts, or both, is wrong; holds every problem.
    """
    return parse_both(
        lambda: parse_run_filter(where, where=names[0]), lambda: parse_run_order(order_by, where=names[1])
    )


def run_conditions(
    where: str,
    *,
    field: str = "where",
    name: str = "",
    labels: Mapping[str, str] | None = None,
    states: Iterable[RunState] = (),
) -> str:
    """Return the text of a filter with further conditions.

    Args:
        where: The filter.
        field: The user's name for it.
        name: The runs' name; empty for any.
        labels: Labels that the runs have.
        states: Their states; empty for any.

    Raises:
        InvalidInputError: The filter is wrong or has one of the further conditions itself; holds every problem.
    """
    parse_run_filter(where, where=field)
    parts = [where] if where.strip() else []
    parts += [f"name:{quoted(name)}"] if name else []
    parts += [f"label:{quoted(f'{key}={value}')}" for key, value in (labels or {}).items()]
    parts += [f"state:{listed(sorted(states))}"] if states else []
    text = " ".join(parts)
    try:
        parse_run_filter(text)
    except InvalidInputError as refusal:  # without positions: the user has not written this text
        raise InvalidInputError(
            [Problem(problem.message.partition(": ")[2], field) for problem in refusal.problems]
        ) from None
    return text


def _figure_condition(condition: Condition, problems: ConditionProblems) -> MetricCondition:
    """Return a condition on a figure; adds its problems."""
    name, value, operator = condition.name, condition.values[0], Operator(condition.operator)
    if name in _KEYS:
        problems.add(condition.position, f"write {name}:VALUE")
    elif len(condition.values) > 1:
        problems.add(condition.position, f"{name}{operator} takes one number")
    elif value == _NONE and operator in (Operator.EQUAL, Operator.NOT_EQUAL):
        return MetricCondition(name, operator, None)
    elif name.partition(".")[0] == _LATENCY:
        if (duration_ms := read_duration_ms(value)) is not None:
            return MetricCondition(name, operator, duration_ms / 1000)
        problems.add(condition.position, duration_problem(value))
    elif (number := read_number(value)) is not None:
        return MetricCondition(name, operator, number)
    else:
        problems.add(condition.position, number_problem(value))
    return MetricCondition(name, operator, None)


def _condition_problem(condition: Condition, values: Mapping[str, object], labels: Mapping[str, str]) -> str:
    """Return the problem of a condition that follows others, or the empty text."""
    name, given = condition.name, condition.values
    if condition.operator != ":":
        field = name or given[0]
        return f"write {field}:VALUE" if field in _KEYS else unknown_name("condition", field, _KEYS)
    if name not in _KEYS:
        return unknown_name("condition", name, _KEYS)
    if name in values:
        return f"{name} is given twice"
    if len(given) > 1 and name in _SINGLE:
        return f"{name}: takes one value"
    if name == "label" and not given[0].partition("=")[0]:
        return "write label:KEY=VALUE"
    if name == "label" and "=" not in given[0]:
        return f"write label:{given[0][:60]}=VALUE"
    if name == "label" and given[0].partition("=")[0] in labels:
        return f"label {given[0].partition('=')[0]!r} is given twice"
    if name == "verdict":
        return "; ".join(unknown_name("verdict", verdict, _VERDICTS) for verdict in given if verdict not in _VERDICTS)
    if name == "state":
        return "; ".join(unknown_name("state", state, _STATES) for state in given if state not in _STATES)
    if name in ("since", "until") and not _moment(given[0]):
        return f"{given[0][:60]!r} is no time: write 2026-11-23 or 2026-11-23T14:30Z"
    return "" if all(given) else f"{name}: has an empty value"


def _moment(text: str) -> str:
    """Return a time in its stored form, in UTC unless the text has a zone; empty if the text is no time."""
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return ""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
