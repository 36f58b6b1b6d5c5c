"""The verdict of a run: one function joins gates, thresholds and errors, from the stored summary alone.

    FAIL         a criterion was computed and does not hold
    INCOMPLETE   a criterion could not be computed, too many calls failed, or something was left out
    PASS         at least one criterion was computed, and all hold
    NO_CRITERIA  something was computed, and nothing decides
    NO_DATA      nothing was computed

The criteria are the spec's gates; without gates, the thresholds of the metrics. A threshold that was computed on no
row leaves the run incomplete, unless its metric is optional: what was asked for and never measured is no evidence.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from assay.gates.gates import actual_text
from assay.gates.stopping_text import stopped_sentence
from assay.metrics.checks.unmade_checks import not_made
from assay.metrics.core.info import RULE_SIGNS
from assay.model.answers.interrupts import interrupted_note
from assay.model.run import GateOutcome, GateResult, GateSource, RunVerdict
from assay.statistics.thresholds import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.model.run import MetricSummary, RunSummary

_MISSED_SIGNS = {"at_least": "<", "more_than": "<=", "at_most": ">"}
_REASONS = {
    "no_reference": "no references",
    "judge_not_configured": "no judge",
    "no_assertions": "no case has checks",
    "no_verdict": "no judge verdict",
    "invalid_verdict": "no valid judge verdict",
    "agent_error": "the agent failed",
}
_NO_CRITERIA = "no gate and no threshold decides: add `gates` to the spec, e.g. gates: ['pass_rate >= 0.85']"
_EXIT_STATUSES = {RunVerdict.PASS: 0, RunVerdict.NO_CRITERIA: 0, RunVerdict.FAIL: 1}


def with_verdict(summary: RunSummary) -> RunSummary:
    """Return a summary with its criteria, and with the verdict, exit status, reasons and notes that follow from it."""
    criteria = criteria_of(summary)
    verdict, reasons = _verdict(summary, criteria)
    notes = list(dict.fromkeys(_notes(summary, criteria)))
    if gap := agent_error_gap(summary):
        notes = [note for note in notes if not gap.startswith(note)]
    if verdict is RunVerdict.FAIL:
        notes += _uncomputed(summary, criteria)
        notes += [gap for gap in _unique_gaps(summary) if not any(gap in sentence for sentence in (*reasons, *notes))]
    elif verdict is RunVerdict.INCOMPLETE:
        notes = [note for note in notes if note not in reasons]
    return dataclasses.replace(
        summary,
        gates=criteria,
        verdict=verdict,
        exit_status=_EXIT_STATUSES.get(verdict, 3),
        reasons=tuple(reasons),
        notes=tuple(notes),
    )


def _verdict(summary: RunSummary, criteria: Sequence[GateResult]) -> tuple[RunVerdict, Sequence[str]]:
    """Return the verdict and why it is what it is, the most important reason first."""
    failed = [
        f"{criterion.expression} does not hold: {actual_text(criterion.expression, criterion.actual)}"
        for criterion in criteria
        if criterion.outcome is GateOutcome.FAIL
    ]
    if failed and not summary.partial:
        gap = agent_error_gap(summary)
        return RunVerdict.FAIL, [*failed, *([gap] if gap else []), *_unmade(summary)]
    if gaps := _unique_gaps(summary):
        return RunVerdict.INCOMPLETE, gaps
    if all(metric.value is None for metric in summary.metrics):
        return RunVerdict.NO_DATA, [_no_data(summary)]
    if unmeasured := _unmeasured(summary, criteria) or _undecided(summary):
        return RunVerdict.INCOMPLETE, [unmeasured]
    if criteria:
        return RunVerdict.PASS, [_held(len(criteria), "gate" if is_gated(summary) else "threshold")]
    return RunVerdict.NO_CRITERIA, [_NO_CRITERIA]


def is_gated(summary: RunSummary) -> bool:
    """Return whether gates decide about a run, rather than thresholds."""
    return any(gate.source is GateSource.GATE for gate in summary.gates)


def criteria_of(summary: RunSummary) -> Sequence[GateResult]:
    """Return the deciding gates; without gates, each metric's threshold as one.

    The threshold of an optional metric decides only where it could be computed.
    """
    if is_gated(summary):
        return summary.gates
    thresholds = [(metric, _of_threshold(metric, summary)) for metric in summary.metrics if _decides(metric)]
    return [gate for metric, gate in thresholds if not (metric.is_optional and gate.outcome is GateOutcome.INCOMPLETE)]


def missed_thresholds(summary: RunSummary) -> list[str]:
    """Return the thresholds that are missed and decide nothing because the run has gates, e.g. "rouge 0.5 < 0.85"."""
    if not is_gated(summary):
        return []
    return [
        f"{metric.metric} {actual_text(threshold_expression(metric), metric.value)} "
        f"{_MISSED_SIGNS[metric.rule]} {metric.threshold:g}"
        for metric in summary.metrics
        if metric.meets_threshold is False
    ]


def agent_errors_text(summary: RunSummary) -> str:
    """Return a sentence on the number of rows whose agent failed; empty if there are none."""
    if not summary.agent_error_count:
        return ""
    rows = _counted(summary.row_count, "row")
    return f"the agent failed on {summary.agent_error_count:,} of {rows}{interrupted_note(summary.interrupted_count)}"


def agent_error_gap(summary: RunSummary) -> str:
    """Return why a run with so many agent errors is incomplete, or the empty string."""
    errors, rows = summary.agent_error_count, summary.row_count
    if too_many(errors, rows, summary.max_agent_errors):
        return f"{agent_errors_text(summary)}, more than max_agent_errors ({percent(summary.max_agent_errors)})"
    return agent_errors_text(summary) if errors and errors >= rows else ""


def survivors_gap(metric: MetricSummary, summary: RunSummary) -> str:
    """Return why an aggregate over the answers alone decides nothing after so many agent errors, or ""."""
    if not metric.unanswered_count or not agent_error_gap(summary):
        return ""
    rows = metric.scored_count + metric.unanswered_count
    where = f"on {metric.scored_count:,} of {rows:,} rows only" if metric.value is not None else "on no row"
    return f"{metric.metric} was computed {where}: the agent failed on too many"


def metric_error_gap(metric: MetricSummary, summary: RunSummary) -> str:
    """Return why a metric that could not be computed on so many rows decides nothing, or the empty string."""
    due, bound = metric.scored_count + metric.error_count, summary.max_metric_errors
    if not too_many(metric.own_error_count, due, bound):
        return ""
    failed = f"{metric.metric} could not be computed on {metric.own_error_count:,} of {due:,} rows"
    return f"{failed}, more than max_metric_errors ({percent(bound)})"


def survivors_note(metric: MetricSummary, what: str = "mean") -> str:
    """Return the rows that an aggregate covers, if it leaves out agent errors or failures of the metric."""
    left_out = metric.unanswered_count + metric.own_error_count
    if not left_out or metric.value is None:
        return ""
    rows = metric.scored_count + left_out
    return f"{what} over {metric.scored_count:,} of {rows:,} rows"


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
    return f"{metric.metric} {RULE_SIGNS[metric.rule]} {metric.threshold:g}"


def _of_threshold(metric: MetricSummary, summary: RunSummary) -> GateResult:
    expression = threshold_expression(metric)
    gap = survivors_gap(metric, summary) or metric_error_gap(metric, summary)
    if gap or metric.value is None:
        message = gap or uncomputed_text(metric)
        return GateResult(expression, GateOutcome.INCOMPLETE, message=message, source=GateSource.THRESHOLD)
    outcome = GateOutcome.PASS if metric.meets_threshold else GateOutcome.FAIL
    return GateResult(
        expression,
        outcome,
        metric.value,
        meets_goal=metric.meets_goal,
        note=survivors_note(metric),
        interval=metric.interval,
        source=GateSource.THRESHOLD,
    )


def uncomputed_text(metric: MetricSummary) -> str:
    """Return why a metric has no value, e.g. "exact_match was computed on no row (no references)"."""
    return f"{metric.metric} was computed on no row{_because(metric)}"


def _because(metric: MetricSummary) -> str:
    reason = _missing_reason(metric)
    return f" ({reason})" if reason else ""


def _missing_reason(metric: MetricSummary) -> str:
    return _REASONS.get(metric.missing_reason, metric.missing_reason.replace("_", " "))


def _no_data(summary: RunSummary) -> str:
    """Return a sentence that nothing was computed, with the rows' reasons."""
    return f"no metric was computed on any row: {_named(summary.metrics)}" if summary.metrics else "there is no metric"


def _named(metrics: Sequence[MetricSummary]) -> str:
    """Return the metrics without a value, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    for metric in metrics:
        by_reason.setdefault(_because(metric), []).append(metric.metric)
    return ", ".join(f"{', '.join(names)}{because}" for because, names in by_reason.items())


def _unmeasured(summary: RunSummary, criteria: Sequence[GateResult]) -> str:
    """Return the sentence on deciding thresholds that were computed on no row; empty if there are none."""
    if is_gated(summary):
        return ""
    missing = [
        metric for metric in summary.metrics if _decides(metric) and metric.value is None and not metric.is_optional
    ]
    if not missing:
        return ""
    if len(criteria) == 1:
        return f"the only threshold could not be computed: {_named(missing)}"
    return f"{len(missing)} of {len(criteria)} thresholds could not be computed: {_named(missing)}"


def _undecided(summary: RunSummary) -> str:
    """Return a sentence that the metrics deciding rows have decided none; empty if one was decided."""
    deciding = [metric for metric in summary.metrics if metric.decides_rows and not metric.is_optional]
    if not deciding or summary.decided_count or not summary.row_count:
        return ""
    lacking = [metric for metric in summary.metrics if metric.value is None or metric.own_error_count]
    return f"no row was decided: {_named(lacking or deciding)}"


def _unique_gaps(summary: RunSummary) -> list[str]:
    return list(dict.fromkeys(_gaps(summary)))


def _gaps(summary: RunSummary) -> Iterator[str]:
    """Yield the reasons why a run has no verdict."""
    if summary.partial:
        yield "rows are missing: the run has not completed"
    if gap := agent_error_gap(summary):
        yield gap
    gates = summary.gates if is_gated(summary) else ()
    for gate in gates:
        if gate.outcome is GateOutcome.INCOMPLETE:
            yield f"{gate.expression} could not be computed: {gate.message}"
    messages = [gate.message for gate in gates]
    for metric in summary.metrics:
        gap = "" if metric.is_optional else metric_error_gap(metric, summary)
        if gap and gap not in messages:
            yield gap
    if canaries := failed_canaries(summary):
        yield canaries
    if summary.left_out_count:
        yield f"{_counted(summary.left_out_count, 'bad record')} of the dataset left out"
    yield from _unmade(summary)


def _unmade(summary: RunSummary) -> Iterator[str]:
    """Yield the numbers of checks that were not made, by reason.

    Calls of tools that an answer does not report cannot be compared with the expected ones either.
    """
    for metric in summary.metrics:
        if count := metric.detail.get("unreported"):
            rows = f"the answers of {_counted(count, 'row')}"
            yield f"{rows} do not report their tool calls (an agent that calls none returns an empty tool_calls)"
        if count := metric.detail.get("not_made"):
            total = count + metric.detail.get("checks", 0)
            yield not_made(metric.detail["unmade"], total)


def _uncomputed(summary: RunSummary, criteria: Sequence[GateResult]) -> Iterator[str]:
    """Yield the thresholds that decide and could not be computed."""
    for criterion in criteria:
        if criterion.outcome is GateOutcome.INCOMPLETE and criterion.source is GateSource.THRESHOLD:
            yield f"threshold not computed: {criterion.expression}: {criterion.message}"


def failed_canaries(summary: RunSummary) -> str:
    """Return a sentence that a judge failed its canaries, unless the spec accepts that; otherwise ""."""
    judged_by = summary.judging.canaries if summary.judging is not None else ()
    failed = [canaries for canaries in judged_by if canaries.is_untrusted and not canaries.is_accepted]
    if len(judged_by) == 1:
        return failed[0].message if failed else ""
    return "; ".join(f"{canaries.judge}: {canaries.message}" for canaries in failed)


def _notes(summary: RunSummary, criteria: Sequence[GateResult]) -> Iterator[str]:
    if summary.stopped_early is not None:
        yield stopped_sentence(summary.stopped_early)
    if failed := agent_errors_text(summary):
        yield failed
    for criterion in criteria:
        if criterion.note:
            yield f"{criterion.expression}: {criterion.note}"
    for metric in summary.metrics:
        if metric.value is None and (metric.is_optional or _is_passed_over(metric, summary)):
            reason = _missing_reason(metric)
            yield f"{metric.metric} not computed{f': {reason}' if reason else ''}"
        elif metric.is_optional and (gap := metric_error_gap(metric, summary)):
            yield f"{gap} (optional)"
    for canaries in summary.judging.canaries if summary.judging is not None else ():
        if canaries.has_wrong_verdicts:
            yield canaries.message
    if missed := missed_thresholds(summary):
        words = ("threshold", "it") if len(missed) == 1 else ("thresholds", "them")
        yield f"{words[0]} missed, but no gate asks for {words[1]}: {', '.join(missed)}"


def _is_passed_over(metric: MetricSummary, summary: RunSummary) -> bool:
    """Return whether a threshold was computed on no row, which no reason mentions if only gates decide."""
    if (
        not is_gated(summary)
        or metric.threshold is None
        or metric_error_gap(metric, summary)
        or agent_error_gap(summary)
    ):
        return False
    return all(uncomputed_text(metric) not in gate.message for gate in summary.gates)


def _held(count: int, what: str) -> str:
    return f"the {what} holds" if count == 1 else f"all {count} {what}s hold"


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
