"""Filters and orders of runs, as objects and as text.

name:NAME  team:NAME,...  dataset:NAME,...  state:failed,paused  label:KEY=VALUE  group:ID
since:2026-11-01  until:2026-12-01
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem
from assay.filters.conditions import ConditionProblems, read_conditions
from assay.model.run import RunState
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.filters.conditions import Condition

_KEYS = ("name", "state", "label", "team", "dataset", "group", "since", "until")
_STATES = {state.value: state for state in RunState}


class RunKey(StrEnum):
    """The key that runs are sorted by."""

    CREATED = "created"
    ENDED = "ended"
    NAME = "name"
    PASS_RATE = "pass_rate"  # noqa: S105 - a share of rows, not a password


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Conditions that a run must meet, all of them.

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

    def joined(self, other: RunFilter) -> RunFilter:
        """Return a filter for runs that meet this filter and another.

        Raises:
            InvalidInputError: The two filters contradict each other.
        """
        values: dict[str, Any] = {"labels": {**self.labels, **other.labels}}
        twice = [f"label {key}" for key, value in self.labels.items() if other.labels.get(key, value) != value]
        for name in (part.name for part in fields(self) if part.name != "labels"):
            mine, others = getattr(self, name), getattr(other, name)
            if mine and others and mine != others:
                twice.append(name)
            values[name] = mine or others
        if twice:
            raise InvalidInputError([Problem(f"{name} is given twice, with different values") for name in twice])
        return RunFilter(**values)


@dataclass(frozen=True, slots=True)
class RunOrder:
    """The order of runs; runs without a value come last, equal runs newest first.

    Args:
        key: The sort key.
        descending: Whether the largest value comes first.
    """

    key: RunKey = RunKey.CREATED
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
    for condition in read_conditions(text, problems):
        problem = _condition_problem(condition, values, labels)
        if problem:
            problems.add(condition.position, problem)
        elif condition.name == "label":
            key, _, value = condition.values[0].partition("=")
            labels[key] = value
        else:
            values[condition.name] = condition.values
    problems.raise_any()
    return RunFilter(
        name=values.get("name", ("",))[0],
        labels=labels,
        states=frozenset(_STATES[state] for state in values.get("state", ())),
        datasets=values.get("dataset", ()),
        teams=values.get("team", ()),
        group_id=values.get("group", ("",))[0],
        created_from=_moment(values["since"][0]) if "since" in values else "",
        created_before=_moment(values["until"][0]) if "until" in values else "",
    )


def parse_run_order(text: str, *, where: str = "") -> RunOrder:
    """Return the order that a text names: created, ended, name or pass_rate; a leading "-" puts the largest first.

    Raises:
        InvalidInputError: The text is no order.
    """
    name = text.strip()
    if not name:
        return RunOrder()
    key = name.removeprefix("-")
    if key not in tuple(RunKey):
        raise InvalidInputError([Problem(unknown_name("order", key, [key.value for key in RunKey]), where)])
    return RunOrder(RunKey(key), descending=name.startswith("-"))


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
    if len(given) > 1 and name in ("name", "label", "group", "since", "until"):
        return f"{name}: takes one value"
    if name == "label" and not given[0].partition("=")[0]:
        return "write label:KEY=VALUE"
    if name == "label" and "=" not in given[0]:
        return f"write label:{given[0][:60]}=VALUE"
    if name == "label" and given[0].partition("=")[0] in labels:
        return f"label {given[0].partition('=')[0]!r} is given twice"
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
