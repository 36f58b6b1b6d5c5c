"""Runs made of a few cases, for tests of comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.comparison.cases import CaseScores
from assay.comparison.compare import ComparedRun, compare_runs
from assay.comparison.facts import MetricFacts, RunFacts
from assay.comparison.model import Comparison, ComparisonSettings
from assay.model.answers.agent_response import AgentStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

METRICS = {
    "exact_match": MetricFacts("exact_match", "exact_match", "%", "1", scale=(0.0, 1.0)),
    "quality": MetricFacts("quality", "quality", "", "1", is_judged=True, scale=(1.0, 5.0)),
    "latency": MetricFacts("latency", "latency", "s", "2", higher_is_better=False),
}


def facts(run_id: str, metrics: Mapping[str, MetricFacts] = METRICS, **changed: Any) -> RunFacts:
    """Return the facts of a run."""
    return RunFacts(run_id, run_id, metrics=metrics, **changed)


def compared(
    run_id: str,
    values: Mapping[str, Sequence[float | None]],
    *,
    ids: Sequence[str] | None = None,
    errors: Sequence[int] = (),
    settings: ComparisonSettings | None = None,
    run_facts: RunFacts | None = None,
    categories: Sequence[str] = (),
) -> ComparedRun:
    """Return a run with one row a case; its verdict is that of exact match where it has that metric.

    Args:
        run_id: Its id.
        values: By metric, the value of each case.
        ids: The cases; c0, c1 and so on by default.
        errors: Places of cases whose agent failed.
        settings: How it is compared, for the cluster key.
        run_facts: Of the run; all metrics of `values` by default.
        categories: Of each case.
    """
    metrics = {name: METRICS.get(name) or MetricFacts(name, name) for name in values}
    scores = CaseScores(tuple(metrics), settings.cluster if settings else "")
    count = len(next(iter(values.values())))
    for place in range(count):
        row = {name: column[place] for name, column in values.items()}
        verdict = row.get("exact_match")
        scores.take(
            ids[place] if ids else f"c{place}",
            row,
            passed=None if verdict is None else verdict == 1,
            status=AgentStatus.ERROR if place in errors else AgentStatus.SUCCESS,
            errors=[name for name, value in row.items() if value is None and place in errors],
            category=categories[place] if categories else "",
        )
    return ComparedRun(run_facts or facts(run_id, metrics, total=count, finished=count), scores)


def compare_columns(
    *columns: Mapping[str, Sequence[float | None]], settings: ComparisonSettings | None = None
) -> Comparison:
    """Return the comparison of runs that are given as columns of values."""
    how = settings or ComparisonSettings()
    return compare_runs([compared(f"run-{at}", each, settings=how) for at, each in enumerate(columns)], how)


def disagreeing(b: int, c: int, n: int) -> tuple[list[float], list[float]]:
    """Return the columns of two runs over n cases, of which A alone has b right and B alone c; the rest are right."""
    same = n - b - c
    return [1.0] * b + [0.0] * c + [1.0] * same, [0.0] * b + [1.0] * c + [1.0] * same
