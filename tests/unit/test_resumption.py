"""`assay run --resume`: what it refuses, what it takes, and what it says of a spec that differs by now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.judge_specs import judge_of

from assay.errors import SpecError
from assay.model.run import DatasetRef, Run, RunCounts, RunState
from assay.model.run_spec import (
    AgentSpec,
    CaseSelection,
    DatasetReading,
    MetricSpec,
    RunSpec,
)
from assay.model.settings_differences import differing_settings
from assay_cli.resumption import Resumption

SETTINGS = RunSpec(
    "test",
    AgentSpec("http", "http://agent", options={"headers": {"a": "b"}}),
    [MetricSpec("exact_match"), MetricSpec("rouge", {"threshold": 0.5, "kinds": ("rouge1", "rougeL")})],
    ["pass_rate >= 0.1"],
    dataset=DatasetReading("qa.json", "plain/json", "abc", {"input": "question"}),
    judges=(judge_of("openai", "m"),),
)
STORED = Run("r1", SETTINGS, DatasetRef("d", "qa.json", 4), RunState.PAUSED, "", RunCounts(4), "now")


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, []),
        ({"gates": ("pass_rate >= 0.1",), "team": "red", "group_id": "g"}, []),
        ({"metrics": (SETTINGS.metrics[0],)}, ["metrics.rouge"]),
        ({"metrics": (SETTINGS.metrics[0], MetricSpec("rouge", {"threshold": 0.6}))}, ["metrics.rouge"]),
        ({"agent": replace(SETTINGS.agent, timeout_s=5.0, options={})}, ["agent.timeout", "agent.headers"]),
        ({"judges": (judge_of("openai", "n"),), "spend_cap_nano_usd": 10**9}, ["spend_cap", "judge.model"]),
        ({"dataset": DatasetReading("qa.json", "plain/json", "def", {"input": "question"})}, ["dataset"]),
        ({"selection": CaseSelection(limit=3, matched_count=3)}, ["selection"]),
        ({"selection": CaseSelection(matched_count=3)}, []),
        ({"name": "other", "labels": {"a": "b"}, "repeats": 2}, ["name", "repeats", "labels"]),
    ],
)
def test_settings_differ_by_the_names_of_a_spec(changes: dict[str, Any], names: list[str]) -> None:
    """Each difference has the name that a spec has for it; lists and tuples are alike, and a team is no setting."""
    assert differing_settings(SETTINGS, replace(SETTINGS, **changes)) == names


def resume(settings: RunSpec, changed: frozenset[str] | None, *parameters: str, keys: str = "") -> None:
    """Resume the stored run with options of these parameters, and these keys of --set."""
    options = {name: f"--{name}" for name in parameters}
    Resumption("r1", settings, changed, options, frozenset(keys.split())).check(STORED)


def test_what_agrees_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """The options of the command that started the run change the spec, and nothing differs from the run."""
    resume(SETTINGS, frozenset({"gates", "repeats"}), "overrides", "repeats")
    assert capsys.readouterr().err == ""


def test_an_option_without_an_effect_is_refused() -> None:
    """The options that can have changed what differs are named, and no others."""
    settings = replace(SETTINGS, repeats=3, gates=("pass_rate > 0.5",))
    with pytest.raises(SpecError, match=r"^--repeats has no effect on run r1, .* other values of repeats: "):
        resume(settings, frozenset({"repeats"}), "repeats", "metrics")
    with pytest.raises(SpecError, match=r"^--overrides and --repeats have no effect"):
        resume(settings, None, "overrides", "repeats", keys="gates")
    with pytest.raises(SpecError, match=r"^--overrides has no effect"):
        resume(settings, frozenset({"gates"}), "overrides", "repeats", keys="preset")
    with pytest.raises(SpecError, match=r"^--repeats has no effect"):
        resume(settings, frozenset({"repeats"}), "overrides", "repeats", keys="agent")


def test_a_spec_that_differs_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    """What the spec's file changed since the run was started refuses nothing: the run keeps its own."""
    resume(replace(SETTINGS, gates=()), frozenset(), "metrics")
    assert capsys.readouterr().err == ("note: run r1 keeps its settings, which differ from this spec in gates\n")


def test_another_agent_is_refused() -> None:
    """Answers of two agents are not one run."""
    with pytest.raises(SpecError, match="calls the agent 'http://agent', and this spec names 'http://other'"):
        resume(replace(SETTINGS, agent=replace(SETTINGS.agent, target="http://other")), frozenset())
