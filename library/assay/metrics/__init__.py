"""Metrics: one file per metric, each a pure function of a row, without grpc and stubs."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assay.errors import Problem, SpecError
from assay.metrics.core.info import DEFAULT_MODEL
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.metrics.core.score import Metric
    from assay.model.run import MetricSpec, RunSpec

__all__ = [
    "ALIASES_OF_METRICS",
    "METRICS",
    "build_metric",
    "complete_parameters",
    "count_problem",
    "decides_rows",
    "definition",
    "given_parameters",
    "known_kind",
    "metric_kind",
    "rubric_of",
    "without_defaults",
]

ALIASES_OF_METRICS: Mapping[str, str] = {
    "similarity": "semantic_similarity",
    "fidelity": "generation_fidelity",
    "retrieval": "retrieval_accuracy",
    "combined": "combined_score",
    "judge": "judge_score",
}
"""Aliases of metrics."""

_NAMES_ELSEWHERE: Mapping[str, str] = {
    "accuracy": "exact_match",
    "em": "exact_match",
    "equals": "exact_match",
    "bleu": "rouge",
    "meteor": "rouge",
    "rouge_l": "rouge",
    "rougel": "rouge",
    "bertscore": "semantic_similarity",
    "bert_score": "semantic_similarity",
    "cosine_similarity": "semantic_similarity",
    "cosine": "semantic_similarity",
    "recall_at_k": "hit_rate",
    "tool_correctness": "tool_calls",
    "is_json": "json_schema",
}
"""Other tools' names of metrics, and the nearest metric here."""
_RUBRIC_NAMES = frozenset((
    "faithfulness", "answer_relevancy", "answer_relevance", "relevance", "relevancy", "context_relevance",
    "context_relevancy", "context_precision", "context_recall", "groundedness", "hallucination", "correctness",
    "answer_correctness", "helpfulness", "coherence", "fluency", "toxicity", "bias", "conciseness",
    "completeness", "tone", "g_eval", "geval", "llm_rubric", "llm_judge", "factuality",
))  # fmt: skip
"""Other tools' metrics that are a judge's rubric here."""

_CLASSES = {
    "semantic_similarity": "SemanticSimilarity",
    "rouge": "Rouge",
    "exact_match": "ExactMatch",
    "contains": "Contains",
    "regex": "Regex",
    "json_schema": "JsonSchema",
    "assertions": "Assertions",
    "tool_calls": "ToolCalls",
    "retrieval_accuracy": "RetrievalAccuracy",
    "generation_fidelity": "GenerationFidelity",
    "sources": "Sources",
    "hit_rate": "HitRate",
    "mrr": "MeanReciprocalRank",
    "quality": "Quality",
    "judge_score": "JudgeScore",
    "combined_score": "CombinedScore",
    "consistency": "Consistency",
    "coverage": "Coverage",
    "satisfaction": "Satisfaction",
    "latency": "Latency",
    "tokens": "Tokens",
    "cost": "Cost",
    "formula": "Formula",
    "python": "Python",
}
"""Every kind of metric and its class, in report order; the module has the name of the kind."""


class _Kinds(Mapping[str, "type[Metric]"]):
    """Imports a metric's module on first use: most runs compute few metrics."""

    def __getitem__(self, kind: str) -> type[Metric]:
        name = _CLASSES[kind]
        metric: type[Metric] = getattr(importlib.import_module(f"assay.metrics.{kind}"), name)
        return metric

    def __contains__(self, kind: object) -> bool:
        return kind in _CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


METRICS: Mapping[str, type[Metric]] = _Kinds()
"""Every kind of metric by name; `info` describes a metric to people, the docstring of its module defines it."""


MAX_OF_A_RUN = 200
"""The most metrics of a run, and the most gates."""


def count_problem(what: str, count: int) -> str:
    """Return the problem of a run with too many metrics or gates, which `what` names; empty for a valid count."""
    return f"has {count:,} {what}, more than {MAX_OF_A_RUN}: split the run" if count > MAX_OF_A_RUN else ""


def decides_rows(settings: MetricSpec) -> bool:
    """Return whether a metric gives rows a verdict."""
    decides = METRICS[settings.kind].info.decides
    return decides == "always" or (decides == "threshold" and settings.parameters.get("threshold") is not None)


def known_kind(name: str) -> str:
    """Return the kind of metric with this name, written with `-` or `_`, or with this alias; empty if unknown."""
    folded = name.strip().lower().replace("-", "_")
    return folded if folded in METRICS else ALIASES_OF_METRICS.get(folded, "")


def metric_kind(name: str) -> str:
    """Return the kind of metric with this name, as `known_kind` does.

    Raises:
        SpecError: There is no such metric; the message suggests the nearest name.
    """
    if kind := known_kind(name):
        return kind
    raise SpecError([Problem(_unknown_metric(name))])


def _unknown_metric(name: str) -> str:
    """Return the error for an unknown name: the equivalent of another tool's metric, or the nearest name."""
    folded = name.strip().lower().replace("-", "_").replace(" ", "_")
    if folded in _RUBRIC_NAMES:
        return f"unknown metric {name!r}; judge_score with a rubric that asks for it does that (docs/judges.md)"
    if folded in _NAMES_ELSEWHERE:
        return f"unknown metric {name!r}; did you mean {_NAMES_ELSEWHERE[folded]!r}?"
    return unknown_name("metric", name, METRICS)


def definition(kind: str) -> str:
    """Return the definition of a kind of metric: the docstring of its module."""
    return inspect.getdoc(sys.modules[METRICS[kind].__module__]) or METRICS[kind].info.summary


def build_metric(settings: MetricSpec) -> Metric:
    """Return a metric; the parameters must be complete, as `complete_parameters` returns them."""
    metric = METRICS[settings.kind](settings.name, settings.parameters)
    if (use_judge := getattr(metric, "use_judge", None)) is not None:
        use_judge(settings)
    return metric


def rubric_of(settings: MetricSpec) -> str:
    """Return the rubric of a metric's verdicts; empty if it has none, or if each check has its own."""
    known = settings.kind in METRICS
    return settings.rubric or (getattr(METRICS[settings.kind], "default_rubric", "") if known else "")


def complete_parameters(kind: str, given: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Return a metric's parameters with defaults filled in.

    A similarity threshold belongs to a model: with a model other than the default, there is no default threshold.

    Args:
        kind: The kind of metric, a name in METRICS.
        given: The parameters that the spec sets.
        where: Path of the metric in the spec, for problems.

    Raises:
        SpecError: The metric or a parameter is unknown, or a value is wrong; it lists every problem.
    """
    if kind not in METRICS:
        raise SpecError([Problem(_unknown_metric(kind), where)])
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


def without_defaults(settings: RunSpec) -> RunSpec:
    """Return settings without metric parameters at their defaults, which a server fills in again.

    A server that knows fewer parameters would refuse unknown ones even at their defaults.
    """
    metrics = [
        replace(metric, parameters=given_parameters(metric.kind, metric.parameters)) for metric in settings.metrics
    ]
    return replace(settings, metrics=metrics)


def given_parameters(kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a metric without those that `complete_parameters` would fill in.

    Args:
        kind: The kind of metric.
        parameters: Complete parameters; those of an unknown kind are returned unchanged.
    """
    given = dict(parameters)
    with suppress(SpecError):
        complete = complete_parameters(kind, parameters, where=kind)
        for name in parameters:
            fewer = {key: value for key, value in given.items() if key != name}
            with suppress(SpecError):  # a parameter without a default must stay
                if complete_parameters(kind, fewer, where=kind) == complete:
                    given = fewer
    return given
