"""The summary of a run: a pure fold over its stored rows, bit for bit the same however they were stored."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from assay.gates.gates import read_gate
from assay.gates.run_verdict import with_verdict
from assay.metrics import decides_rows
from assay.metrics.core.repeats import RepeatsFold
from assay.metrics.core.row_verdict import is_unanswered, timed_out
from assay.metrics.latency import TimesFold
from assay.model.answers.agent_response import AgentStatus
from assay.model.interval import Interval
from assay.model.run import LatencySummary, RunSummary, RunVerdict, ThresholdRule
from assay.model.run_spec import MAX_ERRORS
from assay_orchestrator.summary.clusters import CaseClusters
from assay_orchestrator.summary.gates import Tally, judge_gates
from assay_orchestrator.summary.groups import Groups, Weights
from assay_orchestrator.summary.intervals import RunIntervals
from assay_orchestrator.summary.judging import JudgingFold

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.metrics.core.score import Metric
    from assay.model.run import MetricSummary, RowResult
    from assay.model.run_spec import JudgeSpec, RunSpec


@dataclass(frozen=True, slots=True)
class SummaryRules:
    """The settings that decide about a run besides its gates.

    Args:
        max_agent_errors: Maximum share of the rows whose agent may fail.
        max_metric_errors: Maximum share of a metric's rows on which it may fail.
        left_out: Bad records of the dataset, which are not cases.
        optional: Names of the metrics that the run may end without.
        deciding: Names of the metrics that give rows a verdict.
        judges: The judges of the run.
        judge_by_metric: The names of the judges of metrics, by metric.
        cluster: What cases share, as in the run's settings.
        copies: The group number of each case that has copies, by the case's index.
        repeats: How many times each case runs; None if unknown.
    """

    max_agent_errors: float = MAX_ERRORS
    max_metric_errors: float = MAX_ERRORS
    left_out: int = 0
    optional: frozenset[str] = frozenset()
    deciding: frozenset[str] = frozenset()
    judges: tuple[JudgeSpec, ...] = ()
    judge_by_metric: Mapping[str, str] = field(default_factory=dict)
    cluster: str = ""
    copies: Mapping[int, int] = field(default_factory=dict)
    repeats: int | None = None

    @classmethod
    def of(cls, settings: RunSpec, copies: Mapping[int, int] = MappingProxyType({})) -> SummaryRules:
        """Return the rules of a run.

        Args:
            settings: The settings of the run.
            copies: The group number of each case that has copies, by the case's index.
        """
        return cls(
            max_agent_errors=settings.max_agent_errors,
            max_metric_errors=settings.max_metric_errors,
            left_out=settings.dataset.left_out_count if settings.dataset is not None else 0,
            optional=frozenset(metric.name for metric in settings.metrics if metric.is_optional),
            deciding=frozenset(metric.name for metric in settings.metrics if decides_rows(metric)),
            judges=settings.judges,
            judge_by_metric={metric.name: metric.judge for metric in settings.metrics if metric.judge},
            cluster=settings.cluster,
            copies=copies,
            repeats=settings.repeats,
        )


NO_RULES = SummaryRules()
"""The rules of a spec that does not set any."""


def summarise(
    rows: Iterable[RowResult], metrics: Sequence[Metric], gates: Sequence[str], *, rules: SummaryRules = NO_RULES
) -> RunSummary:
    """Return the summary of a run.

    Args:
        rows: Every row, in dataset order; the repeats of a case are adjacent.
        metrics: The run's metrics, in report order; each row has their scores in this order.
        gates: Valid gate expressions.
        rules: The further rules of the run.
    """
    folds = [metric.aggregate() for metric in metrics]
    kinds = {metric.name: metric.info.name for metric in metrics}
    clusters = CaseClusters(rules.cluster, rules.copies, is_repeated=rules.repeats != 1)
    groups = Groups(metrics, clusters, [read_gate(gate, metrics=kinds) for gate in gates])
    latency, weights, repeats = TimesFold(), Weights(), RepeatsFold()
    intervals = RunIntervals(metrics)
    judging = JudgingFold(rules.judges, rules.judge_by_metric)
    total = passed = decided = undecided = agent_errors = interrupted = timeouts = 0
    unanswered = [0] * len(folds)
    reasons: list[Counter[str]] = [Counter() for _ in folds]
    for row in rows:
        failed = row.status.is_failed
        cluster = clusters.of(row)
        for index, (fold, score) in enumerate(zip(folds, row.scores, strict=True)):
            fold.add(row, score)
            unanswered[index] += failed and is_unanswered(score)
            if score.value is None:
                reasons[index][score.reason] += 1
        if not failed and row.latency_ms is not None and math.isfinite(row.latency_ms) and row.latency_ms >= 0:
            latency.add(row.latency_ms)
        groups.add(row, cluster)
        weights.add(row)
        repeats.add(row, cluster)
        intervals.add(row, cluster)
        judging.add(row)
        total += 1
        agent_errors += failed
        interrupted += row.status is AgentStatus.INTERRUPTED
        timeouts += timed_out(row)
        passed += row.passed is True
        decided += row.passed is not None
        undecided += row.passed is None and bool(row.message)
    results = intervals.complete([fold.result() for fold in folds])
    summaries = [
        dataclasses.replace(
            _described(result, metric, rules),
            unanswered_count=count,
            missing_reason=min(missing, key=lambda reason: (-missing[reason], reason), default=""),
        )
        for result, count, metric, missing in zip(results, unanswered, metrics, reasons, strict=True)
    ]
    summary = RunSummary(
        verdict=RunVerdict.NO_DATA,  # follows from the rest
        failed_criteria=[summary.metric for summary in summaries if summary.meets_threshold is False],
        skipped_criteria=[summary.metric for summary in summaries if summary.value is None],
        pass_rate=passed / decided if decided else None,
        passed_count=passed,
        decided_count=decided,
        metrics=summaries,
        latency=LatencySummary(*latency.result(), timeout_count=timeouts),
        categories=groups.categories,
        tags=groups.tags,
        omitted_category_count=groups.omitted("category"),
        omitted_tag_count=groups.omitted("tag"),
        weighted=weights.result(),
        repeats=repeats.result(),
        row_count=total,
        judging=judging.result(),
        agent_error_count=agent_errors,
        max_agent_errors=rules.max_agent_errors,
        max_metric_errors=rules.max_metric_errors,
        left_out_count=rules.left_out,
        pass_rate_interval=Interval.of(intervals.verdicts.interval()),
        dependent=clusters.result(intervals.verdicts.effective_count()),
        interrupted_count=interrupted,
    )
    tally = Tally(total, agent_errors, undecided, groups.tallies if gates else {}, intervals)
    return with_verdict(dataclasses.replace(summary, gates=judge_gates(gates, summary, kinds=kinds, tally=tally)))


def _described(result: MetricSummary, metric: Metric, rules: SummaryRules) -> MetricSummary:
    """Return the summary of a metric with its definition and its role in the run."""
    low, high = metric.info.bounds
    return dataclasses.replace(
        result,
        version=metric.version,
        is_optional=metric.name in rules.optional,
        decides_rows=metric.name in rules.deciding,
        unit=metric.info.unit,
        higher_is_better=result.rule is not ThresholdRule.AT_MOST,
        minimum=_finite(low),
        maximum=_finite(high),
    )


def _finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None
