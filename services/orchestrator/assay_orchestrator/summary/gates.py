"""The outcomes of a run's gates: the compared number of the summary, and when there is none to compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.gates.gates import CHECK_GROUP, decide, meets_goal, read_gate
from assay.gates.run_verdict import (
    metric_error_gap,
    percent,
    survivors_gap,
    survivors_note,
    too_many,
    uncomputed_text,
)
from assay.model.interval import Interval
from assay.model.run import GateOutcome, GateResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.gates.gates import Gate
    from assay.model.run import GroupSummary, MetricSummary, RunSummary
    from assay_orchestrator.summary.groups import GroupTally
    from assay_orchestrator.summary.intervals import RunIntervals

_MAX_NAMES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of rows that gates need besides the summary.

    Args:
        rows: All rows.
        agent_errors: Rows whose agent failed.
        undecided: Rows without a verdict because a metric could not be computed.
        groups: The same counts of each group, by "category" or "tag" and its name.
        intervals: The intervals of the run; None if it has no gates.
    """

    rows: int
    agent_errors: int
    undecided: int
    groups: Mapping[tuple[str, str], GroupTally] = field(default_factory=dict)
    intervals: RunIntervals | None = None


def judge_gates(
    gates: Iterable[str], summary: RunSummary, *, kinds: Mapping[str, str], tally: Tally
) -> list[GateResult]:
    """Return the outcome of each gate.

    Args:
        gates: Valid gate expressions.
        summary: The summary of the run; its own gates are not read.
        kinds: The kind of each of the run's metrics by name.
        tally: The further counts.
    """
    return [_result(read_gate(gate, metrics=kinds), summary, tally) for gate in gates]


def _result(gate: Gate, summary: RunSummary, tally: Tally) -> GateResult:
    actual, message = _actual(gate, summary, tally)
    if actual is None and (lost := _lost(gate, summary, tally)) is not None:
        return lost
    return GateResult(
        expression=gate.expression,
        outcome=decide(gate, actual),
        actual=actual,
        message=message,
        meets_goal=meets_goal(gate, actual),
        note=_note(gate, summary, tally) if actual is not None else "",
        interval=_interval(gate, summary, tally, actual) if actual is not None else None,
    )


def _interval(gate: Gate, summary: RunSummary, tally: Tally, actual: float) -> Interval | None:
    """Return the 95 % interval of a gate's compared number; None if it is neither a rate nor a mean of rows."""
    if gate.group:
        groups = summary.categories if gate.group == "category" else summary.tags
        if gate.name == "pass_rate":
            return next(group.pass_rate_interval for group in groups if group.name == gate.label)
        return tally.groups[gate.group, gate.label].intervals.get(gate.name)
    if gate.name == "pass_rate":
        return summary.pass_rate_interval
    if gate.name in ("pass_at_k", "pass_hat_k") and gate.stat.isdigit():
        return _rate_of(gate, summary)[1]
    if tally.intervals is None:
        return None
    if gate.name == "agent_errors":
        return Interval.of(tally.intervals.errors.interval())
    of_metric = tally.intervals.metrics[gate.name]
    return of_metric.of_passes() if gate.stat == "pass_rate" else of_metric.of_value(actual)


def _actual(gate: Gate, summary: RunSummary, tally: Tally) -> tuple[float | None, str]:
    """Return a gate's compared number, or None and why there is nothing honest to compare."""
    if gate.group:
        return _of_group(gate, summary, tally.groups)
    if gate.name == "agent_errors":
        return (tally.agent_errors / tally.rows, "") if tally.rows else (None, "the run has no rows")
    if gate.name == "pass_rate":
        if gap := _undecided_gap(tally.undecided, summary.decided_count, summary):
            return None, gap
        return summary.pass_rate, "" if summary.pass_rate is not None else "no metric decided any row"
    if gate.name in ("pass_at_k", "pass_hat_k") and gate.stat.isdigit():
        return _of_repeats(gate, summary, tally)
    return _of_metric(gate, summary)


def _lost(gate: Gate, summary: RunSummary, tally: Tally) -> GateResult | None:
    """Return the failure of a gate on the pass rate that no verdict on the undecided rows could change, or None."""
    if gate.name != "pass_rate":
        return None
    passed, failed, undecided = summary.passed_count, summary.decided_count - summary.passed_count, tally.undecided
    if gate.group:
        groups = summary.categories if gate.group == "category" else summary.tags
        group = next((group for group in groups if group.name == gate.label), None)
        if group is None or (gate.group, gate.label) not in tally.groups:
            return None
        passed, failed, undecided = (
            group.passed_count,
            group.failed_count,
            tally.groups[gate.group, gate.label].undecided,
        )
    rows = passed + failed + undecided
    if not passed + failed:
        return None
    least, most = passed / rows, (passed + undecided) / rows
    if any(decide(gate, rate) is not GateOutcome.FAIL for rate in (least, most)):
        return None
    actual = passed / (passed + failed)
    note = f"{least:.1%} to {most:.1%} with the {undecided:,} rows that could not be decided"
    return GateResult(gate.expression, GateOutcome.FAIL, actual, meets_goal=meets_goal(gate, actual), note=note)


def _of_metric(gate: Gate, summary: RunSummary) -> tuple[float | None, str]:
    metric = next(metric for metric in summary.metrics if metric.metric == gate.name)
    if gap := metric_error_gap(metric, summary):
        return None, gap
    if gate.stat == "pass_rate":
        decided = metric.passed_count + metric.failed_count
        return (metric.passed_count / decided, "") if decided else (None, f"{gate.name} gave no row a verdict")
    if gap := survivors_gap(metric, summary):
        return None, gap
    if gate.stat.startswith(CHECK_GROUP):
        return _of_checks(metric, gate.stat.removeprefix(CHECK_GROUP))
    value = metric.value if gate.stat == "value" else _entry(metric.detail, gate.stat)
    if value is not None:
        return value, ""
    return None, uncomputed_text(metric) if metric.value is None else f"{gate.name} has no {gate.stat}"


def _of_checks(metric: MetricSummary, group: str) -> tuple[float | None, str]:
    """Return the mean of a group of checks, and why there is none: missing checks may decide it."""
    if unmade := (metric.detail.get("unmade_groups") or {}).get(group, 0):
        checks = "1 check" if unmade == 1 else f"{unmade:,} checks"
        return None, f"{checks} of the group {group!r} {'was' if unmade == 1 else 'were'} not made"
    value = (metric.detail.get("groups") or {}).get(group)
    return value, "" if value is not None else f"no check is in the group {group!r}"


def _entry(detail: Mapping[str, Any], stat: str) -> float | None:
    """Return a number of a metric's further aggregates; names of seconds may omit the unit."""
    *way, last = stat.split(".")
    entry: Any = detail
    for part in way:
        entry = entry.get(part, {})
    value = entry.get(last, entry.get(f"{last}_s"))
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _of_group(
    gate: Gate, summary: RunSummary, tallies: Mapping[tuple[str, str], GroupTally]
) -> tuple[float | None, str]:
    groups = summary.categories if gate.group == "category" else summary.tags
    group = next((group for group in groups if group.name == gate.label), None)
    tally = tallies.get((gate.group, gate.label))
    if group is None or tally is None:
        return None, _no_group(gate, groups, summary)
    where = f"{gate.group} {gate.label!r}"
    if gate.name == "pass_rate":
        if gap := _undecided_gap(tally.undecided, group.passed_count + group.failed_count, summary):
            return None, f"{where}: {gap}"
        return group.pass_rate, "" if group.pass_rate is not None else f"{where}: no metric decided any row"
    if gap := _group_gap(gate.name, tally, summary):
        return None, f"{where}: {gap}"
    value = group.metrics.get(gate.name)
    return value, "" if value is not None else f"{where}: {gate.name} was computed on no row"


def _no_group(gate: Gate, groups: Sequence[GroupSummary], summary: RunSummary) -> str:
    if summary.omitted_category_count if gate.group == "category" else summary.omitted_tag_count:
        return f"the {gate.group} {gate.label!r} is not among the first {len(groups):,} that are summarised"
    if not groups:
        return f"no row has a {gate.group}"
    shown = ", ".join(group.name for group in groups[:_MAX_NAMES_SHOWN])
    more = f" and {len(groups) - _MAX_NAMES_SHOWN} more" if len(groups) > _MAX_NAMES_SHOWN else ""
    return f"no row has the {gate.group} {gate.label!r}; there are {shown}{more}"


def _of_repeats(gate: Gate, summary: RunSummary, tally: Tally) -> tuple[float | None, str]:
    if gap := _undecided_gap(tally.undecided, summary.decided_count, summary):
        return None, gap
    value, _ = _rate_of(gate, summary)
    return value, "" if value is not None else f"no case has {gate.stat} decided runs"


def _rate_of(gate: Gate, summary: RunSummary) -> tuple[float | None, Interval | None]:
    """Return the rate over k repeats that a gate names, and its interval."""
    rate = summary.repeats.rate(int(gate.stat)) if summary.repeats is not None else None
    if rate is None:
        return None, None
    if gate.name == "pass_at_k":
        return rate.pass_at_k, rate.pass_at_k_interval
    return rate.pass_hat_k, rate.pass_hat_k_interval


def _group_gap(name: str, tally: GroupTally, summary: RunSummary) -> str:
    """Return why a metric decides nothing in a group: the bounds are those of the whole run."""
    metric = tally.metrics[name]
    of_run = next(entry for entry in summary.metrics if entry.metric == name)
    return metric_error_gap(metric, summary) or survivors_gap(of_run, summary)


def _undecided_gap(undecided: int, decided: int, summary: RunSummary) -> str:
    if not too_many(undecided, decided + undecided, summary.max_metric_errors):
        return ""
    return f"{_rows_undecided(undecided, decided)}, more than max_metric_errors ({percent(summary.max_metric_errors)})"


def _rows_undecided(undecided: int, decided: int) -> str:
    return f"{undecided:,} of {decided + undecided:,} rows could not be decided because a metric could not be computed"


def _note(gate: Gate, summary: RunSummary, tally: Tally) -> str:
    """Return a note on the number that a gate was compared with."""
    if gate.group or gate.name == "agent_errors":
        return ""
    if gate.name == "pass_rate" or (gate.name in ("pass_at_k", "pass_hat_k") and gate.stat.isdigit()):
        return _rows_undecided(tally.undecided, summary.decided_count) if tally.undecided else ""
    metric = next(metric for metric in summary.metrics if metric.metric == gate.name)
    if gate.stat == "pass_rate":
        return ""
    note = survivors_note(metric, "mean" if gate.stat in ("value", "mean") else gate.stat)
    if timeouts := metric.detail.get("timeouts"):
        note += f"; {timeouts:,} timed out"
    return note
