"""Metrics that no row can have a value of, because the dataset or the spec lacks what they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.metrics import build_metric
from assay.metrics.rows.row_scores import in_dependency_order
from assay.specs.judging import NO_JUDGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.datasets import DatasetInfo
    from assay.errors import Problem
    from assay.metrics.core.score import Metric
    from assay.model.run_settings import MetricSettings
    from assay.specs.model import Spec


@dataclass(frozen=True, slots=True)
class _Need:
    """What cases must have for a metric, in words, and how to give it to them."""

    what: str
    remedy: str


_NEEDS = {
    "references": _Need("a reference", "map the field that holds it, `map: {reference: FIELD}`"),
    "expected_sources": _Need("expected sources", "add `expected_sources` to the cases"),
    "expected_tools": _Need("expected tool calls", "add `expected_tools` to the cases"),
    "assertions": _Need("checks of their own", "add `assertions` to the cases"),
}


def unfed_metrics(spec: Spec, info: DatasetInfo) -> Iterator[Problem]:
    """Yield a warning about each metric of a spec that cannot be computed on any row, whatever the agent answers.

    Args:
        spec: A checked spec.
        info: The dataset.
    """
    optional = {metric.name for metric in spec.settings.metrics if metric.is_optional}
    has_judge = spec.settings.judge is not None
    for name, why, remedy in unfed(spec.settings.metrics, info, has_judge=has_judge):
        end = "it is optional, so the verdict leaves it out" if name in optional else f"{remedy}, or leave it out"
        yield spec.place(f"metrics.{name}", f"cannot be computed: {why}; {end}")


def unfed(settings: Sequence[MetricSettings], info: DatasetInfo, *, has_judge: bool) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each metric that cannot be computed on any row, why, and what to do.

    Args:
        settings: The metrics.
        info: The dataset.
        has_judge: Whether the run has a judge.
    """
    counts = {
        "references": info.reference_count,
        "expected_sources": info.sources_count,
        "expected_tools": info.tools_count,
        "assertions": sum(info.checks.values()),
    }
    missing: dict[str, tuple[str, str]] = {}
    for metric in in_dependency_order([build_metric(each) for each in settings]):
        if found := _lack(metric, counts, info.case_count, missing, has_judge=has_judge):
            missing[metric.name] = found
    yield from ((each.name, *missing[each.name]) for each in settings if each.name in missing)


def _lack(
    metric: Metric, counts: Mapping[str, int], case_count: int, missing: Mapping[str, object], *, has_judge: bool
) -> tuple[str, str] | None:
    """Return what a metric lacks and what to do; None where it lacks nothing."""
    needed = "" if getattr(metric, "expects_itself", False) else metric.info.needs
    if needed and not counts[needed]:
        need = _NEEDS[needed]
        cases = f"none of the {case_count:,} cases has" if case_count != 1 else "the only case does not have"
        return f"{cases} {need.what}", need.remedy
    if getattr(metric, "rubric", "") and not has_judge:
        return NO_JUDGE.split(":")[0], NO_JUDGE.split(": ", 1)[1]
    read = [name for name in getattr(metric, "inputs", ()) if name in missing]
    lacks = getattr(metric, "lacks", None)
    if read and (lacks is None or lacks(read)):
        return f"it reads {' and '.join(read)}, which cannot be computed", "give that what it needs"
    return None
