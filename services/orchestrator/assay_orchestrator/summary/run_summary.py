"""The summary of a run: a pure fold over its stored rows, the same bits however they came to be stored."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import TYPE_CHECKING

from assay.metrics.core.repeats import RepeatsFold
from assay.metrics.core.row_verdict import is_unanswered, timed_out
from assay.metrics.latency import LatencyFold
from assay.model.agent_response import AgentStatus
from assay.model.run import RunSummary
from assay.verdict.run_verdict import run_verdict
from assay_orchestrator.summary.gates import Tally, judge_gates
from assay_orchestrator.summary.groups import Groups, Weights
from assay_orchestrator.summary.judging import JudgingFold
from assay_orchestrator.summary.rules import NO_RULES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay.metrics.core.score import Metric
    from assay.model.run import CaseResult
    from assay_orchestrator.summary.rules import SummaryRules


def summarise(
    rows: Iterable[CaseResult],
    metrics: Sequence[Metric],
    gates: Sequence[str],
    *,
    rules: SummaryRules = NO_RULES,
) -> RunSummary:
    """Return the summary of a run.

    Args:
        rows: Every row, in dataset order; the repeats of a case beside each other.
        metrics: The run's metrics, in report order; each row has their scores in this order.
        gates: Gate expressions that were checked before.
        rules: What else decides about the run.
    """
    folds = [metric.aggregate() for metric in metrics]
    latency, groups, weights, repeats = LatencyFold(), Groups(metrics), Weights(), RepeatsFold()
    judging = JudgingFold(rules.canary_limit, accepts_canaries=rules.accepts_canaries)
    total = passed = decided = undecided = agent_errors = timeouts = 0
    unanswered = [0] * len(folds)
    reasons: list[Counter[str]] = [Counter() for _ in folds]
    for row in rows:
        failed = row.status is AgentStatus.ERROR
        for index, (fold, score) in enumerate(zip(folds, row.scores, strict=True)):
            fold.add(row, score)
            unanswered[index] += failed and is_unanswered(score)
            if score.value is None:
                reasons[index][score.reason] += 1
        if not failed and row.latency_ms is not None and math.isfinite(row.latency_ms) and row.latency_ms >= 0:
            latency.add(row.latency_ms / 1000)
        groups.add(row)
        weights.add(row)
        repeats.add(row)
        judging.add(row)
        total += 1
        agent_errors += failed
        timeouts += timed_out(row)
        passed += row.passed is True
        decided += row.passed is not None
        undecided += row.passed is None and bool(row.reason)
    summaries = [
        dataclasses.replace(
            fold.result(),
            n_unanswered=count,
            version=metric.version,
            is_optional=metric.name in rules.optional,
            decides_rows=metric.name in rules.deciding,
            missing_reason=min(missing, key=lambda reason: (-missing[reason], reason), default=""),
        )
        for fold, count, metric, missing in zip(folds, unanswered, metrics, reasons, strict=True)
    ]
    pass_rate = passed / decided if decided else None
    summary = RunSummary(
        overall_status="",  # it follows from the rest
        failed_criteria=[summary.metric for summary in summaries if summary.meets_threshold is False],
        skipped_criteria=[summary.metric for summary in summaries if summary.value is None],
        pass_rate=pass_rate,
        passed=passed,
        decided=decided,
        metrics=summaries,
        latency=dataclasses.replace(latency.result(), timeouts=timeouts),
        categories=groups.categories,
        tags=groups.tags,
        weighted=weights.result(),
        repeats=repeats.result(),
        row_count=total,
        judging=judging.result(),
        agent_errors=agent_errors,
        max_agent_errors=rules.max_agent_errors,
        max_metric_errors=rules.max_metric_errors,
        left_out=rules.left_out,
    )
    kinds = {metric.name: metric.info.name for metric in metrics}
    tally = Tally(total, agent_errors, undecided, groups.tallies if gates else {})
    outcomes = judge_gates(gates, summary, kinds=kinds, tally=tally)
    return with_verdict(dataclasses.replace(summary, gates=outcomes))


def with_verdict(summary: RunSummary) -> RunSummary:
    """Return the summary with the verdict that follows from it."""
    return dataclasses.replace(summary, overall_status=run_verdict(summary).status.value)
