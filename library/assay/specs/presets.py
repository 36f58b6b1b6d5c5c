"""Presets: the default metrics, gates and reports for common kinds of evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.metrics import METRICS
from assay.model.report_settings import DEFAULT_REPORTS, ReportSettings, by_default

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.run_spec import MetricSpec


@dataclass(frozen=True, slots=True)
class Preset:
    """A common kind of evaluation.

    Args:
        summary: One sentence.
        metrics: Metrics with the parameters that differ from their defaults.
        gates: The gates for a spec without gates. A gate on a metric that needs a judge counts only if the spec has a
            judge.
        reports: The reports for a spec without reports.
    """

    name: str
    summary: str
    metrics: Mapping[str, Mapping[str, Any]]
    gates: tuple[str, ...]
    reports: tuple[ReportSettings, ...] = DEFAULT_REPORTS


_OPTIONAL = {"optional": True}

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "prompt-benchmark",
            "One agent, questions with reference answers, similarity as the verdict.",
            {"semantic_similarity": {"threshold": 0.75}, "latency": {}},
            ("semantic_similarity >= 0.75",),
        ),
        Preset(
            "rag",
            "An agent that retrieves items and answers from them.",
            {"semantic_similarity": {"threshold": 0.75}, "coverage": {}, "satisfaction": {}, "latency": {}},
            ("semantic_similarity >= 0.75", "coverage >= 0.7"),
        ),
        Preset(
            "sql-agent",
            "An agent that turns questions into SQL and reports what it found.",
            {"retrieval_accuracy": {}, "generation_fidelity": {}, "latency": {}},
            ("pass_rate >= 0.85",),
            by_default("json", "csv", "charts", "html"),
        ),
        Preset(
            "prompt-quality",
            "A prompt template whose outputs are compared with what was expected.",
            {"exact_match": {}, "consistency": {}, "quality": _OPTIONAL, "rouge": {}, "latency": {}},
            ("exact_match >= 0.85", "quality >= 4"),
            by_default("json", "markdown", "charts", "html"),
        ),
        Preset(
            "research-agent",
            "An agent that searches, cites ranked sources and counts tokens.",
            {
                "hit_rate": {},
                "mrr": {},
                "judge_score": _OPTIONAL,
                "combined_score": _OPTIONAL,
                "tokens": {},
                "latency": {},
            },
            ("hit_rate > 0.8", "mrr > 0.7", "judge_score > 0.75"),
        ),
    )
}


def preset_metrics(name: str, *, judged: bool = False) -> list[dict[str, dict[str, Any]]]:
    """Return the metrics of a preset in the form of a spec.

    Args:
        name: The preset.
        judged: Whether the spec has a judge. Without one, judged metrics are optional; with one, they are required, so
            that a failing judge makes the run incomplete.
    """
    return [
        {metric: {} if judged and METRICS[metric].info.needs_judge else dict(parameters)}
        for metric, parameters in PRESETS[name].metrics.items()
    ]


def preset_reports(name: str) -> tuple[ReportSettings, ...]:
    """Return the reports for a spec without `reports`; an empty name means no preset."""
    return PRESETS[name].reports if name else DEFAULT_REPORTS


def preset_gates(name: str, metrics: Sequence[MetricSpec], *, standard: bool, judged: bool) -> tuple[str, ...]:
    """Return the preset's gates for a spec without gates.

    Args:
        name: The preset.
        metrics: The metrics of the run.
        standard: Whether the spec leaves the preset's metrics unchanged; if not, only the preset's gate on the pass
            rate is used, besides the thresholds of the spec's metrics.
        judged: Whether the spec has a judge.
    """
    kinds = {metric.name: metric.kind for metric in metrics}
    return tuple(
        gate for gate in PRESETS[name].gates if _applies(gate.split()[0], kinds, standard=standard, judged=judged)
    )


def _applies(subject: str, kinds: Mapping[str, str], *, standard: bool, judged: bool) -> bool:
    if subject == "pass_rate":
        return True
    return standard and subject in kinds and (judged or not METRICS[kinds[subject]].info.needs_judge)
