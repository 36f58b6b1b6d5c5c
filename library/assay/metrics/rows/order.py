"""Checks of a run's metrics together: the scores that they read from each other, and the vector that a row keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import Problem
from assay.metrics import METRICS, build_metric
from assay.metrics.core.score import keeps_vector
from assay.metrics.formula import FIELDS, Formula
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from assay.metrics.core.score import Metric
    from assay.model.run import MetricSpec


def check_metrics(metrics: Mapping[str, MetricSpec], *, others: Collection[str] = ()) -> list[Problem]:
    """Return the problems of a run's metrics together: unknown or circular inputs, and different vectors to keep.

    Args:
        metrics: The run's metrics with complete parameters, by their paths in the spec.
        others: Names of metrics that have problems of their own: reading them is no further problem.
    """
    built = {path: build_metric(settings) for path, settings in metrics.items()}
    named = {settings.name: settings for settings in metrics.values()}
    reads = {metric.name: tuple(getattr(metric, "inputs", ())) for metric in built.values()}
    problems = []
    for path, metric in built.items():
        messages = (
            _formula_problems(metric, metrics[path], named, others)
            if isinstance(metric, Formula)
            else _composite_problems(metric, reads[metric.name], named, others)
        )
        if cycle := _way_back(metric.name, reads):
            messages.append(f"reads itself: {' reads '.join(cycle)}")
        where = f"{path}.formula" if isinstance(metric, Formula) else path
        problems += [Problem(message, where) for message in messages]
    return problems + _vector_problems(built)


def _vector_problems(built: Mapping[str, Metric]) -> list[Problem]:
    """Return a problem for each metric that needs another vector than the one that a row keeps."""
    keeping = [(path, metric) for path, metric in built.items() if keeps_vector(metric)]
    return [
        Problem(
            f"needs other vectors than {keeping[0][1].name}, and a row keeps one: give both the same model, dimension "
            "and windowed, or use two runs",
            path,
        )
        for path, metric in keeping[1:]
        if metric.embedding != keeping[0][1].embedding
    ]


def _formula_problems(
    formula: Formula, settings: MetricSpec, named: Mapping[str, MetricSpec], others: Collection[str]
) -> list[str]:
    messages = [
        _input_problem(name, settings, named) for name in formula.inputs if name not in others and name != formula.name
    ]
    messages += [
        f"{name} is a field of the answer and a metric of the run: give the metric another name"
        for name in formula.names
        if name in FIELDS and name in named
    ]
    return [message for message in messages if message]


def _composite_problems(
    metric: Metric, reads: Sequence[str], named: Mapping[str, MetricSpec], others: Collection[str]
) -> list[str]:
    """Return the problems of the inputs of a built-in composite; a missing input is reported by its rows."""
    known = [name for name in named if name != metric.name]
    messages = []
    for name in reads:
        if name in named and name != metric.name and _is_of_the_run(named[name]):
            messages.append(f"{name} has one value for the whole run and none for a row: it cannot be read here")
        elif name not in named and name not in METRICS and name not in others:
            messages.append(unknown_name("metric", name, known))
    return messages


def _is_of_the_run(settings: MetricSpec) -> bool:
    return bool(getattr(METRICS[settings.kind], "keeps_vector", False))


def _input_problem(name: str, reader: MetricSpec, named: Mapping[str, MetricSpec]) -> str:
    if name in named:
        whole_run = _is_of_the_run(named[name])
        return f"{name} has one value for the whole run and none for a row: a formula cannot read it" * whole_run
    if name in METRICS:
        return f"{name} is not among the metrics of the run: add it to them"
    numbers = reader.parameters["parameters"] or {}
    return unknown_name("name in a formula", name, [*(n for n in named if n != reader.name), *FIELDS, *numbers])


def _way_back(start: str, reads: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the shortest cycle of inputs through a metric; empty if there is none."""
    ways = [[start]]
    seen: set[str] = set()
    while ways:
        way = ways.pop(0)
        for name in reads.get(way[-1], ()):
            if name == start:
                return [*way, name]
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return []
