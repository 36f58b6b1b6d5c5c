"""What of a spec decides the verdict: bounds on errors, and the gates that a preset brings."""

from __future__ import annotations

from typing import Any

import pytest

from assay.errors import SpecError
from assay.model.run_spec import RunSpec
from assay.specs.loader import spec_from_mapping
from assay.specs.presets import PRESETS

JUDGE = {"provider": "replay"}


def settings(**spec: Any) -> RunSpec:
    """The settings of a run by this spec."""
    return spec_from_mapping(spec, needs_dataset=False, needs_agent=False).settings


@pytest.mark.parametrize(
    ("given", "share"), [("5%", 0.05), ("0.5 %", 0.005), (0.05, 0.05), (0, 0.0), ("0%", 0.0), ("100%", 1.0)]
)
@pytest.mark.parametrize("key", ["max_agent_errors", "max_metric_errors"])
def test_bounds_are_shares(key: str, given: object, share: float) -> None:
    """A number below 1 or a percentage; 5 % where the spec says nothing."""
    assert getattr(settings(metrics=["rouge"], **{key: given}), key) == pytest.approx(share)
    assert getattr(settings(metrics=["rouge"]), key) == 0.05


@pytest.mark.parametrize("given", [5, 1, 1.0, -0.1, "5", "101%", "-5%", "%", True, None, [], "5%%", float("nan")])
def test_what_is_no_share_is_refused(given: object) -> None:
    """A 5 that means 5 % would allow every error, and a 1 is every row to some and one in a hundred to others."""
    with pytest.raises(SpecError, match=r"max_agent_errors: must be a share of the rows such as 0\.05 or 5%"):
        settings(metrics=["rouge"], max_agent_errors=given)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_brings_gates(preset: str) -> None:
    """Without gates of its own a spec has those of its preset; a gate on a judged metric only with a judge."""
    options = settings(preset=preset)
    assert options.gates
    judged = settings(preset=preset, judge=JUDGE)
    assert judged.gates == PRESETS[preset].gates
    assert not {"quality", "judge_score"} & {gate.split()[0] for gate in options.gates}


@pytest.mark.parametrize(("preset", "metric"), [("prompt-quality", "quality"), ("research-agent", "judge_score")])
def test_judged_metrics_of_a_preset_are_optional_without_a_judge_alone(preset: str, metric: str) -> None:
    """A judge that is named and fails leaves the run incomplete, with gates of the spec's own too."""

    def optional(**keys: object) -> bool:
        return next(one.is_optional for one in settings(preset=preset, **keys).metrics if one.name == metric)

    assert [optional(), optional(gates=["pass_rate >= 0"])] == [True, True]
    assert [optional(judge=JUDGE), optional(judge=JUDGE, gates=["pass_rate >= 0"])] == [False, False]


def test_gates_of_a_preset_give_way() -> None:
    """A spec's own gates replace them, an empty list removes them, and other metrics leave a gate on the pass rate."""
    assert settings(preset="sql-agent", gates=["pass_rate >= 0.5"]).gates == ("pass_rate >= 0.5",)
    assert settings(preset="sql-agent", gates=[]).gates == ()
    assert settings(preset="sql-agent", metrics=["retrieval_accuracy"]).gates == ("pass_rate >= 0.85",)
    assert settings(preset="research-agent", metrics=[{"hit_rate": {"threshold": 0.6}}]).gates == ()


def test_metrics_that_an_option_leaves_out_take_their_preset_gates_along() -> None:
    """`--metrics` of a spec with a preset and without gates refuses nothing."""
    spec = spec_from_mapping({"preset": "rag"}, needs_dataset=False, needs_agent=False, metrics=["coverage"])
    assert spec.settings.gates == ("coverage >= 0.7",)
