"""Alerts of rules over series: pending while their expression holds, firing once it has held for long enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.promql.evaluation import evaluate, vector
from tests.promql.series import Labels, Series, read_series, seconds
from tests.promql.syntax import parse


def firing(rule: Mapping[str, Any], series: Sequence[Series], time: float, interval_s: float) -> set[Labels]:
    """Return the labels of the alerts of a rule that fire at a moment, the rule's own labels included.

    Args:
        rule: A rule of a rule file.
        series: All series.
        time: The moment, in seconds.
        interval_s: Time between two evaluations.
    """
    expression, held_s = parse(rule["expr"]), seconds(rule.get("for", "0s"))
    since: dict[Labels, float] = {}
    for at in range(int(time // interval_s) + 1):
        now = at * interval_s
        found = vector(evaluate(expression, series, now))
        since = {labels: since.get(labels, now) for labels in found}
    own = {"alertname": rule["alert"], **rule["labels"]}
    return {
        tuple(sorted({**dict(labels), **own}.items()))
        for labels, begun in since.items()
        if int(time // interval_s) * interval_s - begun >= held_s
    }


def fixture_series(fixture: Mapping[str, Any]) -> list[Series]:
    """Return the series of a test of promtool."""
    interval_s = seconds(fixture["interval"])
    return [read_series(one["series"], str(one["values"]), interval_s) for one in fixture["input_series"]]
