"""Metric arithmetic: one metric per file, pure functions of a row; neither grpc nor stubs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.errors import Problem, SpecError
from assay.metrics.assertions import Assertions
from assay.metrics.combined_score import CombinedScore
from assay.metrics.consistency import Consistency
from assay.metrics.contains import Contains
from assay.metrics.cost import Cost
from assay.metrics.coverage import Coverage
from assay.metrics.exact_match import ExactMatch
from assay.metrics.generation_fidelity import GenerationFidelity
from assay.metrics.hit_rate import HitRate
from assay.metrics.info import DEFAULT_MODEL
from assay.metrics.json_schema import JsonSchema
from assay.metrics.judge_score import JudgeScore
from assay.metrics.latency import Latency
from assay.metrics.mrr import MeanReciprocalRank
from assay.metrics.quality import Quality
from assay.metrics.regex import Regex
from assay.metrics.retrieval_accuracy import RetrievalAccuracy
from assay.metrics.rouge import Rouge
from assay.metrics.satisfaction import Satisfaction
from assay.metrics.semantic_similarity import SemanticSimilarity
from assay.metrics.tokens import Tokens
from assay.metrics.tool_calls import ToolCalls
from assay.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.metrics.score import Metric
    from assay.results import MetricSettings

__all__ = ["METRICS", "build_metric", "complete_parameters"]

METRICS: Mapping[str, type[Metric]] = {
    kind.info.name: kind
    for kind in (
        SemanticSimilarity,
        Rouge,
        ExactMatch,
        Contains,
        Regex,
        JsonSchema,
        Assertions,
        ToolCalls,
        RetrievalAccuracy,
        GenerationFidelity,
        HitRate,
        MeanReciprocalRank,
        Quality,
        JudgeScore,
        CombinedScore,
        Consistency,
        Coverage,
        Satisfaction,
        Latency,
        Tokens,
        Cost,
    )
}
"""Every kind of metric by name; `info` describes it to people, its module's docstring defines it."""


def build_metric(settings: MetricSettings) -> Metric:
    """Return a metric; the parameters must be complete, as `complete_parameters` returns them."""
    return METRICS[settings.kind](settings.name, settings.parameters)


def complete_parameters(kind: str, given: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Return a metric's parameters with defaults filled in.

    A similarity threshold belongs to a model: with another model than the default, none is assumed.

    Args:
        kind: The kind of metric, a name in METRICS.
        given: What the spec sets.
        where: Path of the metric in the spec, for problems.

    Raises:
        SpecError: The metric or a parameter is unknown, or a value is wrong; holds every problem.
    """
    if kind not in METRICS:
        raise SpecError([Problem(unknown_name("metric", kind, METRICS), where)])
    known = {parameter.name: parameter for parameter in METRICS[kind].info.parameters}
    problems = [
        Problem(unknown_name(f"parameter of {kind}", key, known), f"{where}.{key}") for key in given if key not in known
    ]
    complete = {}
    for name, parameter in known.items():
        value = given.get(name, parameter.default)
        if message := parameter.problem(value):
            problems.append(Problem(message, f"{where}.{name}"))
        complete[name] = list(value) if isinstance(value, list) else value
    if not problems:
        check = getattr(METRICS[kind], "check", None)
        problems += [Problem(message, f"{where}.{field}") for field, message in check(complete)] if check else []
    if problems:
        raise SpecError(problems)
    if complete.get("model", DEFAULT_MODEL) != DEFAULT_MODEL and "threshold" not in given:
        complete["threshold"] = None
    return complete
