"""Conversion of run summaries to protobuf messages and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.model.answers.approvals import UnusedApproval
from assay.model.by_metric import ByMetric
from assay.model.dependent_cases import DependentCases
from assay.model.run import (
    GateOutcome,
    GateResult,
    GateSource,
    GroupSummary,
    LatencySummary,
    MetricSummary,
    RepeatRate,
    RepeatSummary,
    RepeatVariance,
    RunSummary,
    RunVerdict,
    ThresholdRule,
    WeightedSummary,
)
from assay.model.run_summary import Recommendation, Remedy
from assay.model.stopping import StoppedEarly, StoppingRule
from assay.v1 import spec_pb2
from assay.v1 import summary_pb2 as pb
from assay.wire.converter import Converter, EnumConverter, Spread
from assay.wire.interval import INTERVAL
from assay.wire.judging import JUDGING

if TYPE_CHECKING:
    from collections.abc import Mapping


def _group_metrics_to_wire(metrics: Mapping[str, float | None]) -> dict[str, Any]:
    return {
        "metrics": {name: value for name, value in metrics.items() if value is not None},
        "empty_metrics": [name for name, value in metrics.items() if value is None],
    }


def _group_metrics_from_wire(group: pb.GroupSummary) -> dict[str, float | None]:
    return {**group.metrics, **dict.fromkeys(group.empty_metrics)}


_GATE = Converter(
    GateResult,
    pb.GateResult,
    parts={
        "outcome": EnumConverter(GateOutcome, pb.GateOutcome, unknown=GateOutcome.INCOMPLETE),
        "interval": INTERVAL,
        "source": EnumConverter(GateSource, pb.GateSource, unknown=GateSource.GATE),
    },
)
_METRIC = Converter(
    MetricSummary,
    pb.MetricSummary,
    parts={
        "interval": INTERVAL,
        "pass_rate_interval": INTERVAL,
        "rule": EnumConverter(ThresholdRule, pb.ThresholdRule, unknown=ThresholdRule.AT_LEAST),
    },
)
_GROUP = Converter(
    GroupSummary,
    pb.GroupSummary,
    parts={"pass_rate_interval": INTERVAL},
    spread={"metrics": Spread(("metrics", "empty_metrics"), _group_metrics_to_wire, _group_metrics_from_wire)},
)
_RATE = Converter(RepeatRate, pb.RepeatRate, parts={"pass_at_k_interval": INTERVAL, "pass_hat_k_interval": INTERVAL})
_REPEATS = Converter(
    RepeatSummary,
    pb.RepeatSummary,
    parts={"rates": _RATE, "variance": Converter(RepeatVariance, pb.RepeatVariance)},
)
_STOPPED = Converter(
    StoppedEarly,
    pb.StoppedEarly,
    parts={"rule": EnumConverter(StoppingRule, spec_pb2.StoppingRule, unknown=StoppingRule.ALWAYS_VALID)},
)
SUMMARY = Converter(
    RunSummary,
    pb.RunSummary,
    parts={
        "metrics": _METRIC,
        "gates": _GATE,
        "latency": Converter(LatencySummary, pb.LatencySummary),
        "categories": _GROUP,
        "tags": _GROUP,
        "judging": JUDGING,
        "stopped_early": _STOPPED,
        "verdict": EnumConverter(RunVerdict, pb.RunVerdict, unknown=RunVerdict.INCOMPLETE),
        "repeats": _REPEATS,
        "weighted": Converter(WeightedSummary, pb.WeightedSummary),
        "pass_rate_interval": INTERVAL,
        "dependent": Converter(DependentCases, pb.DependentCases),
        "unused_approvals": Converter(UnusedApproval, pb.UnusedApproval),
        "recommendations": Converter(
            Recommendation, pb.Recommendation, parts={"remedy": EnumConverter(Remedy, pb.Remedy, unknown=None)}
        ),
    },
    sequences={"metrics": ByMetric},
)
