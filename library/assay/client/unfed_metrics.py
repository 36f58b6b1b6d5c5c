"""Metrics that no row can compute, because the dataset or the spec lacks their inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.metrics import METRICS, build_metric
from assay.metrics.rows.row_scores import in_dependency_order
from assay.model.run_spec import DEFAULT_JUDGE
from assay.specs.judging import NO_JUDGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.datasets import DatasetInfo
    from assay.errors import Problem
    from assay.metrics.core.score import Metric
    from assay.model.run_spec import MetricSpec
    from assay.specs.model import Spec


@dataclass(frozen=True, slots=True)
class _Need:
    """An input that a metric needs from the cases, and the remedy for its absence."""

    noun: str
    remedy: str


_NEEDS = {
    "references": _Need("a reference", "map the field that holds it, `map: {reference: FIELD}`"),
    "expected_sources": _Need("expected sources", "add `expected_sources` to the cases"),
    "expected_tools": _Need("expected tool calls", "add `expected_tools` to the cases"),
    "assertions": _Need("checks of their own", "add `assertions` to the cases"),
}


def unfed_metrics(spec: Spec, info: DatasetInfo) -> Iterator[Problem]:
    """Yield a warning for each metric that no answer of the agent could make computable, and each unused named judge.

    Args:
        spec: The checked spec.
        info: Description of the dataset.
    """
    optional = {metric.name for metric in spec.settings.metrics if metric.is_optional}
    has_judge = bool(spec.settings.judges)
    for name, why, remedy in unfed(spec.settings.metrics, info, has_judge=has_judge):
        end = "it is optional, so the verdict leaves it out" if name in optional else f"{remedy}, or leave it out"
        yield spec.place(f"metrics.{name}", f"cannot be computed: {why}; {end}")
    yield from _unused_judges(spec)


def _unused_judges(spec: Spec) -> Iterator[Problem]:
    settings = spec.settings
    judged = [metric for metric in settings.metrics if metric.kind in METRICS and METRICS[metric.kind].info.needs_judge]
    used = [settings.judge_of(metric) for metric in judged]
    for judge in settings.judges:
        if judge not in used and judge.name != DEFAULT_JUDGE:
            message = f"is used by no metric: name it in a metric with `judge: {judge.name}`, or remove it"
            yield spec.place(f"judges.{judge.name}", message)


def unfed(settings: Sequence[MetricSpec], info: DatasetInfo, *, has_judge: bool) -> Iterator[tuple[str, str, str]]:
    """Yield each metric that no row can compute: name, reason and remedy.

    Args:
        settings: Settings of the metrics.
        info: Description of the dataset.
        has_judge: Whether the run has a judge.
    """
    counts = {
        "references": info.reference_count,
        "expected_sources": info.sources_count,
        "expected_tools": info.tools_count,
        "assertions": sum(info.checks.values()),
    }
    missing: dict[str, tuple[str, str]] = {}
    for metric in in_dependency_order([build_metric(metric_settings) for metric_settings in settings]):
        if lack := _lack(metric, counts, info.case_count, missing, has_judge=has_judge):
            missing[metric.name] = lack
    yield from (
        (metric_settings.name, *missing[metric_settings.name])
        for metric_settings in settings
        if metric_settings.name in missing
    )


def _lack(
    metric: Metric, counts: Mapping[str, int], case_count: int, missing: Mapping[str, object], *, has_judge: bool
) -> tuple[str, str] | None:
    """Return a metric's missing input and the remedy; None if it has everything."""
    needed = "" if getattr(metric, "expects_itself", False) else metric.info.needs
    if needed and not counts[needed]:
        need = _NEEDS[needed]
        cases = f"none of the {case_count:,} cases has" if case_count != 1 else "the only case does not have"
        return f"{cases} {need.noun}", need.remedy
    if getattr(metric, "rubric", "") and not has_judge:
        return NO_JUDGE.split(":")[0], NO_JUDGE.split(": ", 1)[1]
    read = [name for name in getattr(metric, "inputs", ()) if name in missing]
    lacks = getattr(metric, "lacks", None)
    if read and (lacks is None or lacks(read)):
        return f"it reads {' and '.join(read)}, which cannot be computed", "supply its inputs"
    return None
