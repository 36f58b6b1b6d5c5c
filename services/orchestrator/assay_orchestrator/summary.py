"""The summary of a run: a pure fold over its stored rows, the same bits however they came to be stored."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from assay.answers import AgentStatus
from assay.metrics.latency import LatencyFold
from assay.metrics.repeats import RepeatsFold
from assay.results import MetricSummary, RunSummary
from assay_orchestrator.breakdown import Groups, Weights
from assay_orchestrator.gating import Tally, judge_gates
from assay_orchestrator.judging_fold import JudgingFold

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    judging = JudgingFold()
    total = passed = decided = undecided = agent_errors = 0
    for row in rows:
        for fold, score in zip(folds, row.scores, strict=True):
            fold.add(row, score)
        if row.latency_ms is not None and math.isfinite(row.latency_ms) and row.latency_ms >= 0:
            latency.add(row.latency_ms / 1000)
        groups.add(row)
        weights.add(row)
        repeats.add(row)
        judging.add(row)
        total += 1
        agent_errors += row.status is AgentStatus.ERROR
        passed += row.passed is True
        decided += row.passed is not None
        undecided += row.passed is None and bool(row.reason)
    summaries = [fold.result() for fold in folds]
    pass_rate = passed / decided if decided else None
    summary = RunSummary(
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
        row_count=total,
        judging=judging.result(),
    )
    kinds = {metric.name: metric.info.name for metric in metrics}
    tally = Tally(total, agent_errors, undecided, groups.tallies if gates else {})
    outcomes = judge_gates(gates, summary, kinds=kinds, tally=tally)
    return dataclasses.replace(summary, gates=outcomes)


def _overall_status(summaries: Sequence[MetricSummary]) -> str:
    if any(summary.meets_threshold is False for summary in summaries):
        return "FAIL"
    return "PASS" if any(summary.value is not None for summary in summaries) else "NO_DATA"
