"""Conversion of metrics' definitions to protobuf messages."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from assay.metrics import METRICS, definition
from assay.v1 import metric_pb2
from assay.wire.hosted import kind_to_wire

if TYPE_CHECKING:
    from assay.metrics.core.info import Parameter


def definition_to_wire(kind: str) -> metric_pb2.MetricDefinition:
    """Return the message for a kind of metric."""
    info = METRICS[kind].info
    return metric_pb2.MetricDefinition(
        name=kind_to_wire(info.name),
        title=info.title,
        summary=info.summary,
        definition=definition(kind),
        reads=info.reads,
        needs_embedder=info.needs_embedder,
        needs_judge=info.needs_judge,
        rule=info.rule,
        unit=info.unit,
        range=info.values,
        statistics=["value", "pass_rate", *info.stats],
        parameters=map(_parameter_to_wire, info.parameters),
    )


def _parameter_to_wire(parameter: Parameter) -> metric_pb2.MetricParameter:
    return metric_pb2.MetricParameter(
        name=parameter.name,
        type=parameter.kind,
        default_json=json.dumps(parameter.default, ensure_ascii=False),
        required=parameter.required,
        minimum=parameter.minimum if math.isfinite(parameter.minimum) else None,
        maximum=parameter.maximum if math.isfinite(parameter.maximum) else None,
        choices=parameter.choices,
        help=parameter.help,
    )
