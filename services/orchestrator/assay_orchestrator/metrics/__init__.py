"""Metric arithmetic: one metric per file, pure functions of a row; neither grpc nor stubs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay_orchestrator.metrics.coverage import Coverage
from assay_orchestrator.metrics.exact_match import ExactMatch
from assay_orchestrator.metrics.latency import Latency
from assay_orchestrator.metrics.satisfaction import Satisfaction
from assay_orchestrator.metrics.semantic_similarity import SemanticSimilarity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from assay_orchestrator.metrics.score import Metric

__all__ = ["METRIC_TYPES", "build_metric"]

METRIC_TYPES: Mapping[str, Callable[[dict[str, Any]], Metric]] = {
    "semantic_similarity": SemanticSimilarity,
    "exact_match": ExactMatch,
    "coverage": Coverage,
    "satisfaction": Satisfaction,
    "latency": Latency,
}
"""Every metric by name; `assay.catalogue` describes them to people and checks their parameters."""


def build_metric(name: str, parameters: dict[str, Any]) -> Metric:
    """Return a metric; `parameters` must be complete, as `assay.catalogue` completes them."""
    return METRIC_TYPES[name](parameters)
