"""Summaries of runs: plain objects to protobuf messages and back."""

from __future__ import annotations

from typing import Any

from assay.model.by_metric import ByMetric
from assay.model.run import (
    GateOutcome,
    GateResult,
    GroupSummary,
    LatencySummary,
    MetricSummary,
    RunSummary,
)
from assay.model.run_settings import MAX_ERRORS
from assay.v1 import orchestrator_pb2 as pb
from assay.wire.agent import mapping_from_text, mapping_to_text
from assay.wire.judging import judging_from_wire, judging_to_wire

_OUTCOMES = {
    GateOutcome.PASS: pb.GATE_OUTCOME_PASS,
    GateOutcome.FAIL: pb.GATE_OUTCOME_FAIL,
    GateOutcome.INCOMPLETE: pb.GATE_OUTCOME_INCOMPLETE,
}
_OUTCOMES_BACK = {number: outcome for outcome, number in _OUTCOMES.items()}


def summary_to_wire(summary: RunSummary) -> pb.RunSummary:
    """Return the message of a summary."""
    latency = summary.latency
    return pb.RunSummary(
        overall_status=summary.overall_status,
        failed_criteria=summary.failed_criteria,
        skipped_criteria=summary.skipped_criteria,
        pass_rate=summary.pass_rate,
        passed=summary.passed,
        decided=summary.decided,
        metrics=[_metric_to_wire(metric) for metric in summary.metrics],
        gates=[
            pb.GateResult(
                expression=gate.expression,
                outcome=_OUTCOMES[gate.outcome],
                actual=gate.actual,
                reason=gate.reason,
                meets_target=gate.meets_target,
                note=gate.note,
            )
            for gate in summary.gates
        ],
        latency=pb.LatencySummary(
            count=latency.count,
            mean_s=latency.mean_s,
            p50_s=latency.p50_s,
            p95_s=latency.p95_s,
            max_s=latency.max_s,
            timeout_count=latency.timeouts,
        ),
        categories=[_group_to_wire(group) for group in summary.categories],
        tags=[_group_to_wire(group) for group in summary.tags],
        repeats_json=mapping_to_text(summary.repeats),
        weighted_json=mapping_to_text(summary.weighted),
        partial=summary.partial,
        row_count=summary.row_count,
        judging=judging_to_wire(summary.judging) if summary.judging is not None else None,
        agent_error_count=summary.agent_errors,
        max_agent_errors=summary.max_agent_errors,
        max_metric_errors=summary.max_metric_errors,
        left_out_count=summary.left_out,
    )


def _metric_to_wire(metric: MetricSummary) -> pb.MetricSummary:
    return pb.MetricSummary(
        metric=metric.metric,
        value=metric.value,
        scored_count=metric.n_scored,
        skipped_count=metric.n_skipped,
        error_count=metric.n_error,
        own_error_count=metric.n_own_error,
        passed_count=metric.passed,
        failed_count=metric.failed,
        threshold=metric.threshold,
        meets_threshold=metric.meets_threshold,
        detail_json=mapping_to_text(metric.detail),
        target=metric.target,
        meets_target=metric.meets_target,
        rule=metric.rule,
        unanswered_count=metric.n_unanswered,
    )


def _group_to_wire(group: GroupSummary) -> pb.GroupSummary:
    return pb.GroupSummary(
        name=group.name,
        total=group.total,
        passed=group.passed,
        failed=group.failed,
        pass_rate=group.pass_rate,
        metrics={name: value for name, value in group.metrics.items() if value is not None},
        empty_metrics=[name for name, value in group.metrics.items() if value is None],
    )


def _group_from_wire(group: pb.GroupSummary) -> GroupSummary:
    return GroupSummary(
        name=group.name,
        total=group.total,
        passed=group.passed,
        failed=group.failed,
        pass_rate=_optional(group, "pass_rate"),
        metrics={**group.metrics, **dict.fromkeys(group.empty_metrics)},
    )


def summary_from_wire(summary: pb.RunSummary) -> RunSummary:
    """Return a summary."""
    return RunSummary(
        overall_status=summary.overall_status,
        failed_criteria=tuple(summary.failed_criteria),
        skipped_criteria=tuple(summary.skipped_criteria),
        pass_rate=_optional(summary, "pass_rate"),
        passed=summary.passed,
        decided=summary.decided,
        metrics=ByMetric(_metric_from_wire(metric) for metric in summary.metrics),
        latency=LatencySummary(
            count=summary.latency.count,
            **{name: _optional(summary.latency, name) for name in ("mean_s", "p50_s", "p95_s", "max_s")},
            timeouts=summary.latency.timeout_count,
        ),
        gates=tuple(
            GateResult(
                expression=gate.expression,
                outcome=_OUTCOMES_BACK.get(gate.outcome, GateOutcome.INCOMPLETE),
                actual=_optional(gate, "actual"),
                reason=gate.reason,
                meets_target=_optional(gate, "meets_target"),
                note=gate.note,
            )
            for gate in summary.gates
        ),
        categories=tuple(_group_from_wire(group) for group in summary.categories),
        tags=tuple(_group_from_wire(group) for group in summary.tags),
        repeats=mapping_from_text(summary.repeats_json),
        weighted=mapping_from_text(summary.weighted_json),
        partial=summary.partial,
        row_count=_optional(summary, "row_count"),
        judging=judging_from_wire(summary.judging) if summary.HasField("judging") else None,
        agent_errors=_optional(summary, "agent_error_count"),
        max_agent_errors=_bound(summary, "max_agent_errors"),
        max_metric_errors=_bound(summary, "max_metric_errors"),
        left_out=summary.left_out_count,
    )


def _metric_from_wire(metric: pb.MetricSummary) -> MetricSummary:
    return MetricSummary(
        metric=metric.metric,
        value=_optional(metric, "value"),
        n_scored=metric.scored_count,
        n_skipped=metric.skipped_count,
        n_error=metric.error_count,
        n_own_error=metric.own_error_count,
        passed=metric.passed_count,
        failed=metric.failed_count,
        threshold=_optional(metric, "threshold"),
        meets_threshold=_optional(metric, "meets_threshold"),
        detail=mapping_from_text(metric.detail_json),
        target=_optional(metric, "target"),
        meets_target=_optional(metric, "meets_target"),
        rule=metric.rule or "at_least",
        n_unanswered=metric.unanswered_count,
    )


def _bound(message: Any, name: str) -> float:
    bound = _optional(message, name)
    return MAX_ERRORS if bound is None else float(bound)


def _optional(message: Any, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None
