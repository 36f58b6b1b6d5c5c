"""Columns of figures in `assay runs list`, named as in gates."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.run import MetricSummary, Run


def figure(run: Run, name: str) -> float | str | None:
    """Return a figure of a run, such as "verdict", "pass_rate", "exact_match", "rouge.pass_rate" or "latency.p95".

    None if the run has not ended or does not have the figure.
    """
    summary = run.summary
    if summary is None:
        return None
    if name == "verdict":
        return summary.verdict.value
    if name == "pass_rate":
        return summary.pass_rate
    if name in ("agent_errors", "interrupted"):
        count = run.counts.agent_error_count if name == "agent_errors" else run.counts.interrupted_count
        return count / run.counts.total_count if run.counts.total_count else None
    metric_name, _, stat = name.partition(".")
    if metric_name == "latency" and stat:
        time_ms: float | None = getattr(summary.latency, f"{stat}_ms", None)
        return None if time_ms is None else time_ms / 1000
    result = next((metric for metric in summary.metrics if metric.metric == metric_name), None)
    return _of_metric(result, stat) if result is not None else None


def _of_metric(metric: MetricSummary, stat: str) -> float | None:
    if not stat:
        return metric.value
    if stat == "pass_rate":
        decided = metric.passed_count + metric.failed_count
        return metric.passed_count / decided if decided else None
    groups = metric.detail.get("groups") or {}
    value = groups.get(stat.removeprefix("group.")) if stat.startswith("group.") else None
    return float(value) if value is not None else None


def unknown_figures(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """Return a sentence for every name that no run has a figure for, if any run has ended."""
    ended = [run for run in runs if run.summary is not None]
    metrics = {metric.metric: None for run in ended if run.summary is not None for metric in run.summary.metrics}
    offered = ["verdict", "pass_rate", "agent_errors", "interrupted", "latency.p50", "latency.p95", *metrics]
    return [
        unknown_name("figure", name, offered)
        for name in names
        if ended and name not in offered and all(figure(run, name) is None for run in ended)
    ]


def figure_cells(run: Run, names: Sequence[str]) -> tuple[str, ...]:
    """Return the figures of a run as table cells."""
    cells = []
    for name in names:
        value = figure(run, name)
        cells.append("-" if value is None else value if isinstance(value, str) else f"{value:.4g}")
    return tuple(cells)


def figures_document(run: Run) -> dict[str, Any]:
    """Return all figures of a run as a JSON document; null before its end."""
    summary = run.summary
    if summary is None:
        return {"verdict": None, "pass_rate": None, "metrics": None, "latency": None}
    return {
        "verdict": summary.verdict.value,
        "pass_rate": summary.pass_rate,
        "metrics": {
            metric.metric: {
                **{
                    name: getattr(metric, name)
                    for name in ("value", "scored_count", "passed_count", "failed_count", "threshold")
                },
                "groups": dict(metric.detail.get("groups") or {}),
            }
            for metric in summary.metrics
        },
        "latency": dataclasses.asdict(summary.latency),
    }
