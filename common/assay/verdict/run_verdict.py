"""The verdict of a run: the one function that joins gates, thresholds and errors, from the stored summary alone.

    FAIL         a criterion was computed and does not hold
    INCOMPLETE   a criterion could not be computed, too many calls failed, or something was left out
    PASS         at least one criterion was computed, and all hold
    NO_CRITERIA  something was computed, and nothing decides
    NO_DATA      nothing was computed

The criteria are the spec's gates; without gates, the thresholds of the metrics.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from assay.metrics.checks.unmade_checks import not_made
from assay.model.run import GateOutcome, GateResult
from assay.records import dataclass
from assay.statistics.thresholds import TOLERANCE
from assay.verdict.gates import actual_text
from assay.verdict.stopping_text import stopped_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.model.run import MetricSummary, RunSummary

_SIGNS = {"at_least": ">=", "more_than": ">", "at_most": "<="}
_MISSED_SIGNS = {"at_least": "<", "more_than": "<=", "at_most": ">"}
_NO_CRITERIA = "no gate and no threshold decides: add `gates` to the spec, e.g. gates: ['pass_rate >= 0.85']"


class VerdictStatus(StrEnum):
    """The verdict in one word."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    INCOMPLETE = "INCOMPLETE"
    NO_CRITERIA = "NO_CRITERIA"
    NO_DATA = "NO_DATA"

    @property
    def exit_status(self) -> int:
        """The exit status of a command that ends with this verdict."""
        return {VerdictStatus.PASS: 0, VerdictStatus.NO_CRITERIA: 0, VerdictStatus.FAIL: 1}.get(self, 3)


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The verdict of a run.

    Args:
        status: In one word.
        reasons: Why, as sentences; the most important first.
        notes: What else a reader must know: failed agent calls, thresholds that gate nothing, what was not computed.
    """

    status: VerdictStatus
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def run_verdict(summary: RunSummary) -> RunVerdict:
    """Return the verdict that follows from a summary."""
    criteria = criteria_of(summary)
    failed = [
        f"{one.expression} does not hold: {actual_text(one.expression, one.actual)}"
        for one in criteria
        if one.outcome == "fail"
    ]
    gaps = list(dict.fromkeys(_gaps(summary)))
    notes = tuple(_notes(summary, criteria))
    if failed and not summary.partial:
        failed += [gap] if (gap := agent_error_gap(summary)) else []
        failed += _unmade(summary)
        return RunVerdict(VerdictStatus.FAIL, tuple(failed), notes)
    if gaps:
        return RunVerdict(VerdictStatus.INCOMPLETE, tuple(gaps), notes)
    if held := [one for one in criteria if one.outcome is GateOutcome.PASS]:
        return RunVerdict(VerdictStatus.PASS, (_held(len(held), "gate" if summary.gates else "threshold"),), notes)
    if all(metric.value is None for metric in summary.metrics):
        return RunVerdict(VerdictStatus.NO_DATA, ("no metric was computed on any row",), notes)
    if criteria:
        return RunVerdict(VerdictStatus.INCOMPLETE, ("no metric with a threshold was computed on any row",), notes)
    return RunVerdict(VerdictStatus.NO_CRITERIA, (_NO_CRITERIA,), notes)


def criteria_of(summary: RunSummary) -> Sequence[GateResult]:
    """Return what decides: the gates; without gates, the threshold of each metric that has one, as a gate."""
    if summary.gates:
        return summary.gates
    return [_of_threshold(metric, summary) for metric in summary.metrics if _decides(metric)]


def missed_thresholds(summary: RunSummary) -> list[str]:
    """Return the thresholds that are missed and decide nothing because the run has gates, e.g. "rouge 0.5 < 0.85"."""
    if not summary.gates:
        return []
    return [
        f"{metric.metric} {actual_text(threshold_expression(metric), metric.value)} "
        f"{_MISSED_SIGNS[metric.rule]} {metric.threshold:g}"
        for metric in summary.metrics
        if metric.meets_threshold is False
    ]


def agent_errors_text(summary: RunSummary) -> str:
    """Return how many agent calls failed; empty where none did or that is not known."""
    if not summary.agent_errors:
        return ""
    return f"{summary.agent_errors:,} of {summary.row_count:,} agent calls failed"


def agent_error_gap(summary: RunSummary) -> str:
    """Return why a run with so many agent errors is incomplete, or the empty string."""
    errors, rows = summary.agent_errors or 0, summary.row_count or 0
    if too_many(errors, rows, summary.max_agent_errors):
        return f"{agent_errors_text(summary)}, more than max_agent_errors ({percent(summary.max_agent_errors)})"
    return agent_errors_text(summary) if errors and errors >= rows else ""


def survivors_gap(metric: MetricSummary, summary: RunSummary) -> str:
    """Return why an aggregate over the answers alone decides nothing after so many agent errors, or ""."""
    if not metric.n_unanswered or not agent_error_gap(summary):
        return ""
    rows = metric.n_scored + metric.n_unanswered
    where = f"on {metric.n_scored:,} of {rows:,} rows only" if metric.value is not None else "on no row"
    return f"{metric.metric} was computed {where}: too many agent calls failed"


def metric_error_gap(metric: MetricSummary, summary: RunSummary) -> str:
    """Return why a metric that could not be computed on so many rows decides nothing, or the empty string."""
    due, bound = metric.n_scored + metric.n_error, summary.max_metric_errors
    if not too_many(metric.n_own_error, due, bound):
        return ""
    failed = f"{metric.metric} could not be computed on {metric.n_own_error:,} of {due:,} rows"
    return f"{failed}, more than max_metric_errors ({percent(bound)})"


def survivors_note(metric: MetricSummary, what: str = "mean") -> str:
    """Return over which rows an aggregate is, where agent errors or failures of the metric are not in it."""
    left_out = metric.n_unanswered + metric.n_own_error
    if not left_out or metric.value is None:
        return ""
    rows = metric.n_scored + left_out
    return f"{what} over {metric.n_scored:,} of {rows:,} rows"


def too_many(count: int, rows: int, bound: float) -> bool:
    """Return whether a count is more than a share of the rows."""
    return count > bound * rows + TOLERANCE


def percent(share: float) -> str:
    """Return a share as people write it: 0.05 is 5%."""
    return f"{share * 100:.6g}%"


def _decides(metric: MetricSummary) -> bool:
    """Return whether a metric has a threshold and a verdict; a pooled consistency has a threshold and none."""
    return metric.threshold is not None and (metric.value is None) is (metric.meets_threshold is None)


def threshold_expression(metric: MetricSummary) -> str:
    """Return a metric's threshold as a gate."""
    return f"{metric.metric} {_SIGNS[metric.rule]} {metric.threshold:g}"


def _of_threshold(metric: MetricSummary, summary: RunSummary) -> GateResult:
    expression = threshold_expression(metric)
    gap = survivors_gap(metric, summary) or metric_error_gap(metric, summary)
    if gap or metric.value is None:
        reason = gap or f"{metric.metric} was computed on no row"
        return GateResult(expression, GateOutcome.INCOMPLETE, reason=reason)
    outcome = GateOutcome.PASS if metric.meets_threshold else GateOutcome.FAIL
    return GateResult(expression, outcome, metric.value, meets_target=metric.meets_target, note=survivors_note(metric))


def _gaps(summary: RunSummary) -> Iterator[str]:
    """Yield what keeps a run from a verdict."""
    if summary.partial:
        yield "rows are missing: the run has not succeeded"
    if gap := agent_error_gap(summary):
        yield gap
    for gate in summary.gates:
        if gate.outcome is GateOutcome.INCOMPLETE:
            yield f"{gate.expression} could not be computed: {gate.reason}"
    for metric in () if summary.gates else filter(_decides, summary.metrics):
        if gap := metric_error_gap(metric, summary):
            yield gap
    if summary.left_out:
        yield f"{_counted(summary.left_out, 'wrong record')} of the dataset left out"
    yield from _unmade(summary)


def _unmade(summary: RunSummary) -> Iterator[str]:
    """Yield how many checks of the cases were not made, and why; rows that were stored earlier do not say why.

    Calls of tools that an answer does not report cannot be compared with the expected ones either.
    """
    for metric in summary.metrics:
        if count := metric.detail.get("unreported"):
            rows = f"the answers of {_counted(count, 'row')}"
            yield f"{rows} do not report their tool calls (an agent that calls none returns an empty tool_calls)"
        if count := metric.detail.get("not_made"):
            total = count + metric.detail.get("checks", 0)
            yield not_made(metric.detail.get("unmade", {}), total) or f"{count:,} of {total:,} checks are not made"


def _notes(summary: RunSummary, criteria: Sequence[GateResult]) -> Iterator[str]:
    if summary.stopped_early is not None:
        yield stopped_sentence(summary.stopped_early)
    if failed := agent_errors_text(summary):
        yield failed
    for one in criteria:
        if one.note:
            yield f"{one.expression}: {one.note}"
        if one.outcome is GateOutcome.INCOMPLETE and not summary.gates:
            yield f"threshold not computed: {one.expression}: {one.reason}"
    criterion_names = {one.expression.split()[0].split(".")[0] for one in criteria}
    for metric in summary.metrics:
        if metric.metric not in criterion_names and (gap := metric_error_gap(metric, summary)):
            yield f"{gap} (not gated)"
    for missed in missed_thresholds(summary):
        yield f"threshold missed (not gated): {missed}"


def _held(count: int, what: str) -> str:
    return f"the {what} holds" if count == 1 else f"all {count} {what}s hold"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
