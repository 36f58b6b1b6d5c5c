"""Metrics in Python code in a spec: how an entry names a function, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from assay.errors import SpecError
from assay.model.run import AgentSpec, MetricSpec, RunSpec
from assay.specs.loader import spec_from_mapping


def settings_of(*metrics: Any, **more: Any) -> RunSpec:
    """Return the settings of a spec with these metrics."""
    data = {"dataset": "d.jsonl", "agent": {"adapter": "replay"}, "metrics": list(metrics), **more}
    return spec_from_mapping(data).settings


def test_an_entry_names_its_function() -> None:
    """As its kind, as a parameter, or alone; then the name is that of the function."""
    settings = settings_of(
        {"a": {"function": "metrics:helpful", "threshold": 0.7, "timeout_s": 5}},
        {"b": {"kind": "python", "function": "my/metrics.py:helpful"}},
        "package.metrics:Judge.polite",
        gates=["a >= 0.7", "polite.pass_rate >= 0.5"],
    )
    assert [(metric.name, metric.kind) for metric in settings.metrics] == [
        ("a", "python"), ("b", "python"), ("polite", "python")
    ]  # fmt: skip
    assert settings.function_targets == {
        "a": "metrics:helpful",
        "b": "my/metrics.py:helpful",
        "polite": "package.metrics:Judge.polite",
    }
    assert settings.metrics[0].parameters == {
        "function": "metrics:helpful", "threshold": 0.7, "higher_is_better": None, "timeout_s": 5
    }  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("metrics:", "a metric's name has letters"),
        ({"m": {"function": ":f"}}, "metrics[0].m.function: must be module:function or file.py:function, not ':f'"),
        ({"m": {"function": "a:b c"}}, "must be module:function"),
        ({"m": {"kind": "a:f"}}, "metrics[0].m: unknown metric 'a:f'"),
        ({"m": {"kind": "python"}}, "metrics[0].m.function: is missing"),
        ({"m": {"function": "a:f", "treshold": 1}}, "did you mean 'threshold'?"),
        ({"m": {"function": "a:f", "timeout_s": 0}}, "must be from 0.001 to 3600"),
        ({"m": {"function": "a:f", "higher_is_better": "no"}}, "must be true or false"),
    ],
)
def test_what_names_no_function_is_refused(entry: Any, message: str) -> None:
    """With its place and what is due."""
    with pytest.raises(SpecError) as refused:
        settings_of(entry)
    assert message in refused.value.message


def test_a_run_needs_a_client_for_code_of_the_user() -> None:
    """A run needs a client for a Python agent or metric, and not otherwise."""
    plain, function = MetricSpec("exact_match"), MetricSpec("m", {"function": "a:f"}, "python")
    hosted, recorded = AgentSpec("python", "a:f"), AgentSpec("replay")
    assert [
        RunSpec("run", agent, metrics).needs_host
        for agent, metrics in [(recorded, [plain]), (recorded, [plain, function]), (hosted, [plain])]
    ] == [False, True, True]
