"""Gates: conditions on a run's summary that decide its verdict and exit status.

    gate    = subject op number [ "%" ] [ "," "goal" op number [ "%" ] ]
    subject = "pass_rate" | "agent_errors"
            | metric [ "." statistic ]
            | metric ".group." label
            | ( "category" | "tag" ) "." label "." ( "pass_rate" | metric )
            | ( "pass_at_k" | "pass_hat_k" ) "." k
    metric  = the name of a metric of the run
    label   = letters, digits, _ and -, or any text in double quotes (\\" and \\\\ inside)
    op      = ">=" | ">" | "<=" | "<" | "=="

`metric` alone is its aggregate; statistics are `pass_rate` (rows that passed by this metric, by those it decided)
and those that the metric lists, e.g. `p95` of latency. `assertions.group.tone` is the mean of the checks of the group
`tone`. `agent_errors` is the share of rows whose agent failed.
k is a number of runs of each case. The goal never decides the exit code: it is reported.

Rates are shares from 0 to 1, and 85% is 0.85: `pass_rate >= 85` is refused, and so is `agent_errors <= 1`, which may
mean 1% or 100%.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.errors import SpecError
from assay.metrics import METRICS
from assay.model.run import GateOutcome
from assay.parsing.names import unknown_name
from assay.statistics.thresholds import TOLERANCE, text_apart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_CHARS = 400
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_SUBJECT = rf"[A-Za-z_]\w*(?:\.(?:{_QUOTED}|[\w-]+))*"
_OP = r">=|<=|==|>|<"
_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_PATTERN = re.compile(rf"\s*({_SUBJECT})\s*({_OP})\s*({_NUMBER}\s*%?)\s*(?:,\s*goal\s*({_OP})\s*({_NUMBER}\s*%?)\s*)?")
_PART = re.compile(rf"\.(?:({_QUOTED})|([\w-]+))")
_GROUPS = ("category", "tag")
_REPEATS = ("pass_at_k", "pass_hat_k")
CHECK_GROUP = "group."
"""The prefix of a statistic of assertions that is the mean of a group of checks."""
_WHOLE_RUN = ("pass_rate", "agent_errors")
_DIRECTIONS = {">=": 1, ">": 1, "<=": -1, "<": -1}


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition on a run's summary.

    Args:
        expression: What the spec says.
        name: "pass_rate", "agent_errors", "pass_at_k", "pass_hat_k" or a metric.
        stat: Which number of it: "value" for a metric's own aggregate, k for repeats.
        op: How the number and the bound compare.
        bound: What decides.
        group: "category" or "tag"; empty for the whole run.
        label: Which category or tag.
        goal_op: How the number and the goal compare; empty without a goal.
        goal: What should be reached beyond the bound.
    """

    expression: str
    name: str
    stat: str
    op: str
    bound: float
    group: str = ""
    label: str = ""
    goal_op: str = ""
    goal: float | None = None


def parse_gate(text: str, *, metrics: Mapping[str, str], repeats: int | None = None) -> Gate:
    """Return the gate that a text describes.

    Args:
        text: E.g. "pass_rate >= 0.85", "latency.p95 < 4" or "hit_rate > 0.8, goal > 0.9".
        metrics: The kind of each of the run's metrics by name; no others can be gated.
        repeats: How often the run runs each case; None where that is not known.

    Raises:
        SpecError: The text is no gate, names something that the run does not compute, or compares a rate with a number
            that is no share.
    """
    gate = read_gate(text, metrics=metrics, repeats=repeats)
    if _is_rate(gate, metrics):
        if problem := _share_problem(gate):
            raise SpecError(problem)
    elif "%" in text and not _is_plain_share(gate, metrics):
        raise SpecError(f"{gate.name} is not a share from 0 to 1: leave % out")
    return gate


def read_gate(text: str, *, metrics: Mapping[str, str], repeats: int | None = None) -> Gate:
    """Return the gate that a text describes; accept gates of stored runs that a new run may not have.

    Args:
        text: As for `parse_gate`.
        metrics: As for `parse_gate`.
        repeats: As for `parse_gate`.

    Raises:
        SpecError: The text is no gate, or names something that the run does not compute.
    """
    match = _PATTERN.fullmatch(text) if len(text) <= _MAX_CHARS else None
    if match is None:
        raise SpecError(f"{text[:80]!r} is not a gate: write NAME >= NUMBER, e.g. 'pass_rate >= 0.85'")
    subject, op, number, goal_op, goal = match.groups()
    head = subject.partition(".")[0]
    parts = [_label(quoted) if quoted else plain for quoted, plain in _PART.findall(subject, len(head))]
    group = label = ""
    if head in _GROUPS and (len(parts) == 2 or head not in metrics):
        group, (label, name), stat = head, _in_group(head, parts, metrics), "value"
    elif head in _REPEATS and head not in metrics:
        name, stat = head, _runs(head, parts, repeats)
    else:
        name, stat = head, _statistic(head, ".".join(parts), metrics)
    gate = Gate(text.strip(), name, stat, op, _bound(number), group, label)
    return gate if goal is None else _with_goal(gate, goal_op, _bound(goal))


def _label(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted[1:-1], flags=re.DOTALL)


def _in_group(group: str, parts: Sequence[str], metrics: Mapping[str, str]) -> tuple[str, str]:
    if len(parts) != 2 or not parts[0]:
        raise SpecError(f"say which {group} and what of it: {group}.NAME.pass_rate or {group}.NAME.METRIC")
    label, name = parts
    if name != "pass_rate" and name not in metrics:
        raise SpecError(unknown_name(f"name of a {group}'s number", name, ["pass_rate", *metrics]))
    return label, name


def _runs(name: str, parts: Sequence[str], repeats: int | None) -> str:
    if len(parts) != 1 or not re.fullmatch(r"[1-9][0-9]{0,2}", parts[0]):
        raise SpecError(f"say of how many runs: {name}.3, for example")
    least = max(2, int(parts[0]))
    if repeats is not None and repeats < least:
        raise SpecError(f"{name}.{parts[0]} needs {least} runs of each case and this run has {repeats}: raise repeats")
    return parts[0]


def _statistic(name: str, stat: str, metrics: Mapping[str, str]) -> str:
    if name in _WHOLE_RUN:
        if name in metrics:
            raise SpecError(f"{name} is a number of the run and a metric of this one: give the metric another name")
        if stat:
            raise SpecError(f"{name} is a number itself: leave .{stat[:40]} out")
        return "value"
    if name not in metrics:
        raise SpecError(unknown_name("name in a gate", name, [*_WHOLE_RUN, *metrics, *_GROUPS, *_REPEATS]))
    kind = METRICS.get(metrics[name])
    if metrics[name] == "assertions" and stat.startswith(CHECK_GROUP) and stat != CHECK_GROUP:
        return stat
    known = ("value", "pass_rate", *(kind.info.stats if kind is not None else ()))
    if stat and stat not in known:
        raise SpecError(unknown_name(f"statistic of {name}", stat, known))
    return stat or "value"


def _is_rate(gate: Gate, metrics: Mapping[str, str]) -> bool:
    """Return whether a gate compares a share of rows or of cases."""
    if gate.stat == "pass_rate" or gate.stat.startswith(CHECK_GROUP) or gate.name not in metrics:
        return True
    return gate.stat == "value" and _kind_info(gate, metrics, "unit") == "%"


def _is_plain_share(gate: Gate, metrics: Mapping[str, str]) -> bool:
    return gate.stat == "value" and _kind_info(gate, metrics, "values") in ("0 to 1", "-1 to 1")


def _kind_info(gate: Gate, metrics: Mapping[str, str], what: str) -> str:
    kind = METRICS.get(metrics[gate.name])
    return str(getattr(kind.info, what)) if kind is not None else ""


def _share_problem(gate: Gate) -> str:
    """Return the problem of a gate on a rate, with its replacement."""
    for value in (gate.bound, gate.goal):
        if value is not None and not 0 <= value <= 1:
            share = f"{value / 100:.10g}" if 1 < value <= 100 else "0.85"
            meant = f"{value:.10g}%" if 1 < value <= 100 else "85%"
            return f"{gate.name} is a share from 0 to 1: write {share} or {meant}"
    if gate.name == "agent_errors" and gate.bound == 1 and gate.op in ("<=", "<") and "%" not in gate.expression:
        return "agent_errors is a share from 0 to 1, and 1 is every row: write 0.01 or 1%"
    return ""


def _bound(number: str) -> float:
    value = _number(number)
    if not math.isfinite(value):
        raise SpecError(f"{number[:40]} is too large a number for a gate")
    return value


def _number(text: str) -> float:
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def _with_goal(gate: Gate, op: str, goal: float) -> Gate:
    direction = _DIRECTIONS.get(gate.op)
    if direction is None or _DIRECTIONS.get(op) != direction:
        raise SpecError(f"a goal goes the same way as its gate, with > or < in both: {gate.expression[:80]!r}")
    if (goal - gate.bound) * direction < 0:
        raise SpecError(f"the goal {goal:g} asks for less than the gate's {gate.bound:g}: exchange them")
    return Gate(gate.expression, gate.name, gate.stat, gate.op, gate.bound, gate.group, gate.label, op, goal)


def decide(gate: Gate, actual: float | None) -> GateOutcome:
    """Return whether a gate holds; without a value it is incomplete, never passed."""
    if actual is None:
        return GateOutcome.INCOMPLETE
    return GateOutcome.PASS if _holds(actual, gate.op, gate.bound) else GateOutcome.FAIL


def meets_goal(gate: Gate, actual: float | None) -> bool | None:
    """Return whether a gate's goal is reached; None without a goal or a value."""
    return None if actual is None or gate.goal is None else _holds(actual, gate.goal_op, gate.goal)


def _holds(actual: float, op: str, bound: float) -> bool:
    close = abs(actual - bound) <= TOLERANCE
    return {
        ">=": actual >= bound or close,
        "<=": actual <= bound or close,
        "==": close,
        ">": actual > bound and not close,
        "<": actual < bound and not close,
    }[op]


def may_be_chance(expression: str, interval: Sequence[float] | None) -> float | None:
    """Return a gate's bound if it lies inside the 95 % interval of the compared figure; None otherwise."""
    match = _PATTERN.fullmatch(expression)
    if match is None or interval is None:
        return None
    bound = _number(match[3])
    return bound if interval[0] < bound < interval[1] else None


def compared_text(expression: str, actual: float | None, interval: Sequence[float] | None) -> str:
    """Return a gate's compared figure with its 95 % interval, e.g. "0.87 [0.7902, 0.9224]"; "-" if there is none.

    Args:
        expression: The gate, or a threshold as a gate.
        actual: The value.
        interval: Its interval, if any.
    """
    known = f" [{interval[0]:.4g}, {interval[1]:.4g}]" if interval and actual is not None else ""
    return f"{actual_text(expression, actual)}{known}"


def actual_text(expression: str, actual: float | None) -> str:
    """Return a gate's compared figure, with enough digits to differ visibly from the bound; "-" if there is none.

    Args:
        expression: The gate, or a threshold as a gate.
        actual: The value.
    """
    if actual is None:
        return "-"
    match = _PATTERN.fullmatch(expression)
    bounds = [_number(number) for number in match.group(3, 5) if number] if match else []
    return text_apart(actual, bounds)
