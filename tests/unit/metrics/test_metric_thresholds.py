"""Thresholds and parameters: how values compare, the defaults, and what a client sends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import SpecError
from assay.metrics import METRICS, build_metric, complete_parameters, given_parameters
from assay.model.run import MetricSpec
from assay.statistics.thresholds import exceeds, holds, meets


@pytest.mark.parametrize(
    ("value", "threshold", "expected"),
    [(0.1 + 0.2, 0.3, True), (0.7499999999, 0.75, True), (0.749999, 0.75, False), (0.3, 0.1 + 0.2, True)],
)
def test_at_least_forgives_float_noise_only(value: float, threshold: float, expected: bool) -> None:
    """A value 1e-10 below the threshold meets it, one 1e-6 below does not."""
    assert meets(value, threshold) is expected


@pytest.mark.parametrize(
    ("value", "threshold", "expected"),
    [(16 / 20, 0.80, False), (0.8000001, 0.80, True), (0.1 + 0.2, 0.3, False), (0.7, 0.8, False)],
)
def test_more_than_needs_more_than_float_noise(value: float, threshold: float, expected: bool) -> None:
    """Equality up to float noise is not "more than"."""
    assert exceeds(value, threshold) is expected


@pytest.mark.parametrize(
    ("value", "rule", "expected"),
    [
        (0.8, "at_least", True),
        (0.8, "more_than", False),
        (0.8, "at_most", True),
        (0.8 + 1e-10, "more_than", False),
        (0.8 + 1e-10, "at_most", True),
        (0.8 - 1e-10, "at_least", True),
        (0.8 + 1e-6, "at_most", False),
    ],
)
def test_rules(value: float, rule: str, expected: bool) -> None:
    """Each rule compares with 0.8 as its name says, float noise aside; there is no other rule."""
    assert holds(value, rule, 0.8) is expected
    with pytest.raises(ValueError, match="no rule"):
        holds(value, "about", 0.8)


@pytest.mark.parametrize(
    ("kind", "rule", "threshold", "goal"),
    [
        ("semantic_similarity", "at_least", 0.75, None),
        ("exact_match", "at_least", 0.85, None),
        ("consistency", "at_least", 0.8, None),
        ("quality", "at_least", 4.0, None),
        ("hit_rate", "more_than", 0.80, 0.90),
        ("mrr", "more_than", 0.70, 0.85),
        ("judge_score", "more_than", 0.75, 0.85),
        ("combined_score", "more_than", None, 1.20),
    ],
)
def test_defaults(kind: str, rule: str, threshold: float | None, goal: float | None) -> None:
    """Thresholds, goals and rules that hold where a spec says nothing; a summary carries all three."""
    metric = build_metric(MetricSpec(kind, complete_parameters(kind, {}, where="m")))
    summary = metric.aggregate().result()
    assert (summary.rule, summary.threshold, summary.goal) == (rule, threshold, goal)
    assert metric.info.rule == rule
    assert (summary.meets_threshold, summary.meets_goal) == (None, None)


def test_every_other_metric_decides_nothing_by_default() -> None:
    """A metric that is not in the table above has no threshold until a spec gives it one."""
    decided = {"semantic_similarity", "exact_match", "consistency", "quality", "hit_rate", "mrr", "judge_score"}
    names = {
        kind
        for kind in METRICS
        if complete_parameters(kind, METRICS[kind].info.example, where="m").get("threshold") is not None
    }
    assert names == decided


CHANGED = {kind: {parameter.name: parameter.default for parameter in METRICS[kind].info.parameters} for kind in METRICS}
VALUES = st.one_of(st.none(), st.booleans(), st.floats(0, 1), st.integers(1, 9), st.sampled_from(["a", "other", ["a"]]))


@given(st.data())
def test_the_defaults_make_them_complete_again(data: st.DataObject) -> None:
    """Unsent parameters are restored by their defaults, and no set parameter is lost."""
    kind = data.draw(st.sampled_from(sorted(METRICS)))
    parameters = data.draw(st.dictionaries(st.sampled_from(sorted(CHANGED[kind]) or ["none"]), VALUES, max_size=3))
    try:
        complete = complete_parameters(kind, parameters, where=kind)
    except SpecError:
        return
    sent = given_parameters(kind, complete)
    assert complete_parameters(kind, sent, where=kind) == complete
    assert sent.items() <= complete.items()
    assert set(sent) <= set(parameters)


@pytest.mark.parametrize("threshold", [0.75, None])
def test_a_threshold_that_belongs_to_another_model_is_sent(threshold: float | None) -> None:
    """With another model the default has no threshold: the usual one has to be sent."""
    parameters = {"model": "other", "threshold": threshold}
    sent = given_parameters("semantic_similarity", complete_parameters("semantic_similarity", parameters, where="m"))
    assert sent == ({"model": "other", "threshold": 0.75} if threshold else {"model": "other"})


def test_an_unknown_kind_is_sent_as_it_is() -> None:
    """Parameters of an unknown metric are sent unchanged for the server to judge."""
    assert given_parameters("nothing", {"a": 1}) == {"a": 1}
