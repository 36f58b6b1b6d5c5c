"""The summary of a run: a pure fold over its stored rows, the same bits however they came to be stored."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay.gates import decide, parse_gate
from assay.metrics.latency import LatencyFold
from assay.metrics.repeats import RepeatsFold
from assay.results import GateResult, MetricSummary, RunSummary
from assay_orchestrator.breakdown import Groups, Weights

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay.gates import Gate
    from assay.metrics.score import Metric
    from assay.results import CaseResult

__all__ = ["summarise"]


def summarise(rows: Iterable[CaseResult], metrics: Sequence[Metric], gates: Sequence[str]) -> RunSummary:
    """Return the summary of a run.

    Args:
        rows: Every row, in dataset order; the repeats of a case beside each other.
        metrics: The run's metrics, in report order; each row has their scores in this order.
        gates: Gate expressions that were checked before.
    """
    folds = [metric.aggregate() for metric in metrics]
    latency, groups, weights, repeats = LatencyFold(), Groups(metrics), Weights(), RepeatsFold()
    passed = decided = undecided = 0
    for row in rows:
        for fold, score in zip(folds, row.scores, strict=True):
            fold.add(row, score)
        if row.latency_ms is not None and math.isfinite(row.latency_ms) and row.latency_ms >= 0:
            latency.add(row.latency_ms / 1000)
        groups.add(row)
        weights.add(row)
        repeats.add(row)
        passed += row.passed is True
        decided += row.passed is not None
        undecided += row.passed is None and bool(row.reason)
    summaries = [fold.result() for fold in folds]
    pass_rate = passed / decided if decided else None
    names = [metric.name for metric in metrics]
    return RunSummary(
        overall_status=_overall_status(summaries),
        failed_criteria=[summary.metric for summary in summaries if summary.meets_threshold is False],
        skipped_criteria=[summary.metric for summary in summaries if summary.value is None],
        pass_rate=pass_rate,
        passed=passed,
        decided=decided,
        metrics=summaries,
        latency=latency.result(),
        categories=groups.categories,
        tags=groups.tags,
        weighted=weights.result(),
        repeats=repeats.result(),
        gates=[_gate_result(parse_gate(gate, metrics=names), summaries, pass_rate, undecided) for gate in gates],
    )


def _overall_status(summaries: Sequence[MetricSummary]) -> str:
    if any(summary.meets_threshold is False for summary in summaries):
        return "FAIL"
    return "PASS" if any(summary.value is not None for summary in summaries) else "NO_DATA"


def _gate_result(gate: Gate, summaries: Sequence[MetricSummary], pass_rate: float | None, undecided: int) -> GateResult:
    actual, reason = _actual(gate, summaries, pass_rate, undecided)
    return GateResult(
        expression=gate.expression,
        outcome=decide(gate, actual),
        actual=actual,
        reason=reason,
    )


_DETAIL_NAMES = {"mean": "mean_s", "p50": "p50_s", "p95": "p95_s", "max": "max_s"}
"""Statistics of the latency as gates name them, and as its summary does."""


def _actual(
    gate: Gate, summaries: Sequence[MetricSummary], pass_rate: float | None, undecided: int
) -> tuple[float | None, str]:
    """Return what a gate is compared with, or None and why there is nothing honest to compare."""
    if gate.name == "pass_rate":
        if undecided:
            return None, f"{undecided} rows could not be decided because a metric could not be computed"
        return pass_rate, "" if pass_rate is not None else "no metric decided any row"
    summary = next(summary for summary in summaries if summary.metric == gate.name)
    if summary.n_own_error:
        return None, f"{gate.name} could not be computed on {summary.n_own_error} rows"
    if gate.stat == "pass_rate":
        decided = summary.passed + summary.failed
        return (summary.passed / decided, "") if decided else (None, f"{gate.name} gave no row a verdict")
    value = summary.value if gate.stat == "value" else summary.detail.get(_DETAIL_NAMES[gate.stat])
    return value, "" if value is not None else f"{gate.name} was computed on no row"
