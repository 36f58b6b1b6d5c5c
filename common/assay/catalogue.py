"""The metrics this version knows and their parameters: one list for the client and the orchestrator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import Problem, SpecError
from assay.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULT_MODEL", "METRICS", "MetricInfo", "Parameter", "complete_parameters"]

DEFAULT_MODEL = "all-MiniLM-L6-v2"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a metric.

    Args:
        name: Its name.
        kind: "number", "boolean", "text" or "text_list".
        default: Its value where the spec gives none; None means "none". A threshold may always be None.
        help: One sentence.
        minimum: Smallest value of a number.
        maximum: Largest value of a number.
    """

    name: str
    kind: str
    default: Any
    help: str
    minimum: float = -math.inf
    maximum: float = math.inf

    def problem(self, value: object) -> str:
        """Return what is wrong with a value, or the empty string."""
        if value is None and (self.default is None or self.name == "threshold"):
            return ""
        match self.kind:
            case "number":
                if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                    return f"must be a number, not {value!r}"
                if not self.minimum <= value <= self.maximum:
                    return f"must be from {self.minimum:g} to {self.maximum:g}, not {value!r}"
            case "boolean" if not isinstance(value, bool):
                return f"must be true or false, not {value!r}"
            case "text" if not isinstance(value, str) or not value.strip():
                return f"must be a text, not {value!r}"
            case "text_list" if not _is_text_list(value):
                return "must be a list of texts that are not blank"
        return ""


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """One metric as people and validation see it.

    Args:
        name: Its name in specs and reports.
        title: Its name in headings.
        summary: One sentence.
        parameters: What a spec may set.
        needs_embedder: Whether it needs vectors.
    """

    name: str
    title: str
    summary: str
    parameters: tuple[Parameter, ...]
    needs_embedder: bool = False


_MODEL = Parameter("model", "text", DEFAULT_MODEL, "The embedding model: a name or a local folder.")

_ALL = (
    MetricInfo(
        "semantic_similarity",
        "Semantic similarity",
        "Cosine of the embeddings of answer and reference; measures topic, not truth.",
        (
            _MODEL,
            Parameter(
                "threshold",
                "number",
                0.75,
                "Least cosine with which a row passes; belongs to the model.",
                -1.0,
                1.0,
            ),
        ),
        needs_embedder=True,
    ),
    MetricInfo(
        "exact_match",
        "Exact match",
        "Whether the answer equals the reference, apart from case and surrounding space.",
        (
            Parameter("threshold", "number", 0.85, "Least accuracy of the run.", 0.0, 1.0),
            Parameter("collapse_whitespace", "boolean", False, "Treat every run of whitespace as one space."),
            Parameter("strip_punctuation", "boolean", False, "Leave punctuation out."),
            Parameter("arabic_fold", "boolean", False, "Ignore Arabic diacritics, tatweel and alef variants."),
        ),
    ),
    MetricInfo(
        "coverage",
        "Coverage rate",
        "Share of questions for which the agent found something and said so.",
        (
            Parameter(
                "fallback_phrases",
                "text_list",
                ["couldn't find any events"],
                "Phrases that mean nothing was found.",
            ),
            Parameter("threshold", "number", None, "Least rate of the run.", 0.0, 1.0),
        ),
    ),
    MetricInfo(
        "satisfaction",
        "Satisfaction",
        "Similarity (0.5), findings (0.3) and speed (0.2) in one number.",
        (_MODEL, Parameter("threshold", "number", None, "Least score with which a row passes.", 0.0, 1.0)),
        needs_embedder=True,
    ),
    MetricInfo(
        "latency",
        "Latency",
        "Wall time of the agent in seconds, and its tier.",
        (Parameter("threshold", "number", None, "Longest time in seconds with which a row passes.", 0.0, 3600.0),),
    ),
)

METRICS: Mapping[str, MetricInfo] = {info.name: info for info in _ALL}


def complete_parameters(name: str, given: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    """Return the metric's parameters with defaults filled in.

    A similarity threshold belongs to a model: with another model than the default, none is assumed.

    Args:
        name: The metric.
        given: What the spec sets.
        where: Path of the metric in the spec, for problems.

    Raises:
        SpecError: The metric or a parameter is unknown, or a value is wrong; holds every problem.
    """
    info = METRICS.get(name)
    if info is None:
        raise SpecError([Problem(unknown_name("metric", name, METRICS), where)])
    known = {parameter.name: parameter for parameter in info.parameters}
    problems = [
        Problem(unknown_name(f"parameter of {name}", key, known), f"{where}.{key}") for key in given if key not in known
    ]
    complete = {}
    for parameter in info.parameters:
        value = given.get(parameter.name, parameter.default)
        if message := parameter.problem(value):
            problems.append(Problem(message, f"{where}.{parameter.name}"))
        complete[parameter.name] = list(value) if isinstance(value, list) else value
    if problems:
        raise SpecError(problems)
    if name == "semantic_similarity" and complete["model"] != DEFAULT_MODEL and "threshold" not in given:
        complete["threshold"] = None
    return complete


def _is_text_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item.strip() for item in value)
