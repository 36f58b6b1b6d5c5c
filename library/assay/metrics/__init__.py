"""Metric arithmetic: one metric per file, pure functions of a row; neither grpc nor stubs."""

from __future__ import annotations

import importlib
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
    from assay.model.run import MetricSettings, RunSettings

__all__ = [
    "ALIASES_OF_METRICS",
    "METRICS",
    "build_metric",
    "complete_parameters",
    "count_problem",
    "decides_rows",
    "given_parameters",
    "known_kind",
    "metric_kind",
    "without_defaults",
]

ALIASES_OF_METRICS: Mapping[str, str] = {
    "similarity": "semantic_similarity",
    "fidelity": "generation_fidelity",
    "retrieval": "retrieval_accuracy",
    "combined": "combined_score",
    "judge": "judge_score",
}
"""Short names of metrics, where no metric has that name itself."""

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
"""Names that other tools have for a metric, and the nearest metric of these."""
_RUBRIC_NAMES = frozenset((
    "faithfulness", "answer_relevancy", "answer_relevance", "relevance", "relevancy", "context_relevance",
    "context_relevancy", "context_precision", "context_recall", "groundedness", "hallucination", "correctness",
    "answer_correctness", "helpfulness", "coherence", "fluency", "toxicity", "bias", "conciseness",
    "completeness", "tone", "g_eval", "geval", "llm_rubric", "llm_judge", "factuality",
))  # fmt: skip
"""What other tools have a metric for, and a judge's rubric says here."""

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
"""Every kind of metric and its class, in report order; it is in the module of the kind's name."""


class _Kinds(Mapping[str, "type[Metric]"]):
    """Imports a metric's module when it is asked for: most runs compute few."""

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
"""Every kind of metric by name; `info` describes it to people, its module's docstring defines it."""


MAX_OF_A_RUN = 200
"""Most metrics, and most gates, of a run."""


def count_problem(what: str, count: int) -> str:
    """Return that a run has too many metrics or gates, as `what` says, or the empty string."""
    return f"has {count:,} {what}, more than {MAX_OF_A_RUN}: split the run" if count > MAX_OF_A_RUN else ""


def decides_rows(settings: MetricSettings) -> bool:
    """Return whether a metric gives rows a verdict."""
    decides = METRICS[settings.kind].info.decides
    return decides == "always" or (decides == "threshold" and settings.parameters.get("threshold") is not None)


def known_kind(name: str) -> str:
    """Return the kind of metric that a name means: its own name with `-` or `_`, or a short one; empty for none."""
    folded = name.strip().lower().replace("-", "_")
    return folded if folded in METRICS else ALIASES_OF_METRICS.get(folded, "")


def metric_kind(name: str) -> str:
    """Return the kind of metric that a name means, as `known_kind` does.

    Raises:
        SpecError: There is no such metric; names the nearest.
    """
    if kind := known_kind(name):
        return kind
    raise SpecError([Problem(_unknown_metric(name))])


def _unknown_metric(name: str) -> str:
    """Return the sentence for a name that no metric has: what another tool means by it, or the nearest name."""
    folded = name.strip().lower().replace("-", "_").replace(" ", "_")
    if folded in _RUBRIC_NAMES:
        return f"unknown metric {name!r}; judge_score with a rubric that asks for it does that (docs/judges.md)"
    if folded in _NAMES_ELSEWHERE:
        return f"unknown metric {name!r}; did you mean {_NAMES_ELSEWHERE[folded]!r}?"
    return unknown_name("metric", name, METRICS)


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


def without_defaults(settings: RunSettings) -> RunSettings:
    """Return settings without the parameters of metrics that are at their defaults, which a server adds again.

    A server is sent these alone: an older one refuses parameters that it does not know, also at their defaults.
    """
    metrics = [
        replace(metric, parameters=given_parameters(metric.kind, metric.parameters)) for metric in settings.metrics
    ]
    return replace(settings, metrics=metrics)


def given_parameters(kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a metric without those that `complete_parameters` adds again.

    Args:
        kind: The kind of metric.
        parameters: Of this version or of one that knew fewer. Those of an unknown kind are returned as they are.
    """
    given = dict(parameters)
    with suppress(SpecError):
        complete = complete_parameters(kind, parameters, where=kind)
        for name in parameters:
            fewer = {key: value for key, value in given.items() if key != name}
            with suppress(SpecError):  # a parameter without a default is given
                if complete_parameters(kind, fewer, where=kind) == complete:
                    given = fewer
    return given
