"""Warnings about gates and thresholds that always pass, can never pass, or reward the worse result."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay.gates.gates import CHECK_GROUP, Gate, read_gate
from assay.metrics import build_metric, decides_rows
from assay.metrics.core.info import RULE_SIGNS, SHARE

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from assay.errors import Problem
    from assay.metrics.core.info import MetricInfo
    from assay.specs.model import Spec

_UNDIRECTED = ("formula",)
"""Kinds of metrics that do not define whether higher is better."""


def doubtful_criteria(spec: Spec) -> Iterator[Problem]:
    """Yield a warning about each gate and threshold that cannot fail, cannot pass, or rewards the worse result.

    Args:
        spec: A checked spec.
    """
    metrics = {metric.name: metric for metric in spec.settings.metrics}
    infos = {name: build_metric(metric).info for name, metric in metrics.items()}
    decides = any(decides_rows(metric) or metric.is_function for metric in metrics.values())
    for place, expression in enumerate(spec.settings.gates):
        gate = read_gate(expression, metrics={name: metric.kind for name, metric in metrics.items()})
        info = infos.get(gate.name) if gate.stat != "pass_rate" else None
        doubt = _doubt(gate, info)
        if not doubt and not decides and gate.name in ("pass_rate", "pass_at_k", "pass_hat_k"):
            doubt = "cannot be computed: no metric of the run gives rows a verdict"
        if doubt:
            yield spec.place(f"gates[{place}]", f"{gate.expression!r} {doubt}")
    for name, metric in metrics.items():
        threshold = metric.parameters.get("threshold")
        if threshold is None:
            continue
        gate = Gate("", name, "value", RULE_SIGNS[infos[name].rule], threshold)
        if doubt := _doubt(gate, infos[name]):
            yield spec.place(f"metrics.{name}.threshold", f"the threshold {threshold:g} {doubt}")


def missing_groups(spec: Spec, groups: Mapping[str, Container[str]]) -> Iterator[Problem]:
    """Yield a warning about each gate on a category or tag that no case has.

    Args:
        spec: A checked spec.
        groups: The labels of the cases, by "category" and "tag".
    """
    kinds = {metric.name: metric.kind for metric in spec.settings.metrics}
    for place, expression in enumerate(spec.settings.gates):
        gate = read_gate(expression, metrics=kinds)
        if gate.group and gate.label not in groups[gate.group]:
            message = f"{gate.expression!r} cannot be computed: no case has the {gate.group} {gate.label!r}"
            yield spec.place(f"gates[{place}]", message)


def _doubt(gate: Gate, info: MetricInfo | None) -> str:
    """Return the doubt about a criterion, or the empty string.

    Args:
        gate: The criterion.
        info: The criterion's metric; None for a rate of rows, cases or calls.
    """
    low, high = _bounds(gate, info)
    bound, shown = gate.bound, _subject(gate)
    never_below = f"{shown} is never below {low:g}"
    never_above = f"{shown} is never above {high:g}"
    always = {">=": bound <= low, ">": bound < low, "<=": bound >= high, "<": bound > high}.get(gate.op, False)
    never = {">=": bound > high, ">": bound >= high, "<=": bound < low, "<": bound <= low}.get(
        gate.op, not low <= bound <= high
    )
    if always:
        return f"cannot fail: {never_below if gate.op in ('>=', '>') else never_above}"
    if never:
        return f"cannot hold: {never_above if gate.op in ('>=', '>') or bound > high else never_below}"
    better = _direction(gate, info)
    if better > 0 and gate.op in ("<", "<="):
        return f"lets worse runs pass: higher is better; write {shown} >= {bound:g}"
    if better < 0 and gate.op in (">", ">="):
        return f"lets worse runs pass: lower is better; write {shown} <= {bound:g}"
    return ""


def _subject(gate: Gate) -> str:
    return gate.expression.split(gate.op)[0].strip() if gate.expression else gate.name


def _bounds(gate: Gate, info: MetricInfo | None) -> tuple[float, float]:
    if info is None or gate.stat.startswith(CHECK_GROUP):
        return SHARE
    return info.bounds if gate.stat == "value" else info.score_stats.get(gate.stat, (0.0, math.inf))


def _direction(gate: Gate, info: MetricInfo | None) -> int:
    """Return 1 if higher is better, -1 if lower is better, 0 if unknown."""
    if info is None:
        return -1 if gate.name == "agent_errors" else 1
    if gate.stat in info.score_stats or gate.stat.startswith(CHECK_GROUP):
        return 1
    if info.rule == "at_most":
        return -1
    return 0 if gate.stat != "value" or info.name in _UNDIRECTED else 1
